"""The command line: the only room that prints, reads the environment, or ends the process."""
