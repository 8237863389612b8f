"""Benchmarks of the REST service."""
