"""From bytes to sections: files, snapshots and standard input, cut into outputs that a parser knows."""
