"""Hardware figures: targets by name, Ascend parts and their costs."""
