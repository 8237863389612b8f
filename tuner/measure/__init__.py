"""Launching, timing and verifying a config, and the statistics behind a time."""
