"""Verbs that tune, explain, and check devices."""
