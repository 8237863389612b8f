"""Ray as the engine of a fleet: what its nodes offer, and what runs on them."""
