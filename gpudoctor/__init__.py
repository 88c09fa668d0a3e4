"""gpudoctor: says what is wrong with the communication between GPUs, why, and how to fix it."""

__version__ = "0.1.0"
