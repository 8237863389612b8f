"""Launches with stored configs: `tuned`, `Operator`, and the choice of a config for a call."""
