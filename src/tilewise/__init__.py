"""tilewise: find, keep and serve the fastest tile config of a Triton kernel.

The public names live in the four packages: `tilewise.kernels` (what is tuned), `tilewise.tuner` (how it is
found), `tilewise.db` (what is kept) and `tilewise.api` (how it is served).
"""

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """`__version__`, read from the installed package when asked for: reading it costs 30 ms at start."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilewise")
    except PackageNotFoundError:  # a source tree on the path, never installed
        return "0+unknown"
