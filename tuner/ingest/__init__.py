"""Take in results from elsewhere: check imported trials, listen to triton's autotuner."""
