"""Queued tuning jobs, each run in a process of its own."""
