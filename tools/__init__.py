"""What is built from the sources: the one-file program, manual pages, archives."""
