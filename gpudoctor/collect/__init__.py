"""Running probes on this host, and keeping what they printed."""
