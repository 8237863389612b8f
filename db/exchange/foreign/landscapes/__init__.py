"""Recorded search spaces: T4 files and Kernel Tuner caches."""
