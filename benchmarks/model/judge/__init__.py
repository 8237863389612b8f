"""The judge of the modelled clock: published kernels, each timed with its own timings left out of every fit."""
