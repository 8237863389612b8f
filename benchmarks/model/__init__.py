"""Benchmarks of the modelled Ascend part: its clock, its executor, its verification."""
