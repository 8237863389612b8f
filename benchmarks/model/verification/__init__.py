"""Verification on the modelled part: its share of a tuning, and that it refuses no right kernel."""
