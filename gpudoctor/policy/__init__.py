"""What a team asks of a node, held against what was read. Pure: text and facts in, outcomes out."""
