"""Findings in a config's compiled code: what costs time or does not fit, on which source line, and what to do."""
