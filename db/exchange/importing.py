"""A file of any known format, told apart by what it holds."""

from __future__ import annotations

import re
from datetime import datetime

from tilewise.db.exchange.jsonfile import one_line, text_of
from tilewise.db.exchange.native import FORMAT, read_native
from tilewise.db.exchange.reading import KINDS, About, Reading
from tilewise.db.exchange.recorded import read_recorded
from tilewise.db.exchange.tables import read_table
from tilewise.db.exchange.triton_cache import read_triton_cache
from tilewise.errors import BadImport

__all__ = ["kind_of", "read"]

_MARKS = (
    ("json", rf'"format"\s*:\s*"{FORMAT}"'),
    ("t4", r'"schema_version"|"results"\s*:'),
    ("kernel-tuner", r'"tune_params_keys"'),
    ("triton", r'"configs_timings"'),
    ("vllm", r'^\s*\{\s*"([0-9]+|triton_version)"\s*:'),
)
"""Looked for in the text rather than in the parsed document: a recording that was cut off has none."""


def kind_of(text: str) -> str:
    """Raises `BadImport` where it is nothing that is known."""
    for kind, mark in _MARKS:
        if re.search(mark, text):
            return kind
    raise BadImport(f"no known format looks like this file; --format says which it is: {', '.join(KINDS)}")


def read(data: bytes, name: str, about: About, *, written: datetime, kind: str = "") -> Reading:
    """Raises `BadImport`, whose message is one line, for a file that cannot be used at all."""
    try:
        kind = kind or kind_of(text_of(data))
    except ValueError as error:
        raise BadImport(f"not a usable file: {one_line(error)}") from error
    if kind == "json":
        return read_native(data)
    if kind == "triton":
        return read_triton_cache(data, about, written=written)
    if kind == "vllm":
        return read_table(data, name, about)
    return read_recorded(data, about, written=written)
