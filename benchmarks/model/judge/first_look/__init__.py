"""Published timings that decided nothing of the modelled clock: listed, then timed with the shipped figures."""
