"""Support for benchmarks that are run as modules instead of as verbs of `tilewise bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.errors import TilewiseError

__all__ = ["script"]


@contextmanager
def script() -> Iterator[None]:
    """Exit with a one-line message on a `TilewiseError`."""
    try:
        yield
    except TilewiseError as error:
        sys.exit(f"tilewise: {error}")
