"""The project's own benchmarks, run by `tilewise bench`."""
