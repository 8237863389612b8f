"""Benchmarks that are modules to run, beside the verbs of `tilewise bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.errors import TilewiseError

__all__ = ["script"]


@contextmanager
def script() -> Iterator[None]:
    """An error that is raised on purpose ends the program with its one line."""
    try:
        yield
    except TilewiseError as error:
        sys.exit(f"tilewise: {error}")
