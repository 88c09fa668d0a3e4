"""One file per check. They reach the program only through the entry-point group `gpudoctor.checkers`."""
