"""Benchmarks of launching with stored configs."""
