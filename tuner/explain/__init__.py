"""Explanations of one config: feasibility, memory traffic, time by pipe, and changes that would help."""
