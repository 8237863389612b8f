"""Accelerators timed for real: compile workers, one bench process, recovery from faults."""
