"""Tune: the search loop, the final comparison of the leaders, and the evidence that is stored."""
