"""Commands of raw files as they run today: some name modules by the paths that these had when the file was made."""

from __future__ import annotations

import re

__all__ = ["MOVED", "present_command"]

MOVED = {
    "tilewise.tuner.bench.endings": "tilewise.benchmarks.search.endings",
}
"""Modules that raw files run, by their former names."""

_MODULE = re.compile(r"(?<=python -m )[\w.]+")


def present_command(command: str) -> str:
    """Return the command with the modules that it runs by their present names."""
    return _MODULE.sub(lambda match: MOVED.get(match[0], match[0]), command)
