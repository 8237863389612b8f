"""Check a device step by step, and fit the modelled part to a chip."""
