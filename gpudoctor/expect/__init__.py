"""What a measured bandwidth should have been, and why: facts in, opinions out. Reads no host and runs nothing."""
