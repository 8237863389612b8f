"""Results from elsewhere: checks of imported trials, and a listener on triton's autotuner."""
