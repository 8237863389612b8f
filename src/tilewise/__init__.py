"""tilewise: find, keep and serve the fastest tile config of a Triton kernel.

The public names live in the four packages: `tilewise.kernels` (what is tuned), `tilewise.tuner` (how it is
found), `tilewise.db` (what is kept) and `tilewise.api` (how it is served).
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("tilewise")
except PackageNotFoundError:  # a source tree on the path, never installed
    __version__ = "0+unknown"
