"""Benchmarks of the search on recorded landscapes."""
