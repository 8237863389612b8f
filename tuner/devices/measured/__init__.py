"""Accelerators with measured times: compile workers, one bench process, recovery from faults."""
