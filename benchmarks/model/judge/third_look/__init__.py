"""Published timings listed without a look at the modelled clock, after its figures had been fitted again: copies."""
