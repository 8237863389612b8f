"""Searches of other projects, to compare with on the same landscapes."""
