"""Report to text: each format is a function from a Report to a string; the command line writes it."""
