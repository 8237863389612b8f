"""Figures of devices: targets by name, Ascend parts and their costs."""
