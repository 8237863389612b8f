"""The state of a running service: stores, answers in memory, metrics."""
