"""All file formats of `db`, and the detection of a file's format from its text.

A format is one module that defines a `Format`, and one line here. (Formats made from portfolios are in
`tuner.portfolio.formats`, above the database.)
"""

from __future__ import annotations

import re
from datetime import datetime

from tilewise.db.exchange.foreign.caches.dejavu import DEJAVU
from tilewise.db.exchange.foreign.caches.fla import FLA
from tilewise.db.exchange.foreign.caches.triton import TRITON
from tilewise.db.exchange.foreign.landscapes.recording import KERNEL_TUNER, T4
from tilewise.db.exchange.foreign.tables.csv_parquet import CSV, PARQUET
from tilewise.db.exchange.foreign.tables.flaggems import FLAGGEMS
from tilewise.db.exchange.foreign.tables.inductor import INDUCTOR
from tilewise.db.exchange.foreign.tables.sglang import SGLANG
from tilewise.db.exchange.foreign.tables.vllm import VLLM
from tilewise.db.exchange.format import Format
from tilewise.db.exchange.import_file import About, ImportFile
from tilewise.db.exchange.jsonfile import one_line, text_of
from tilewise.db.exchange.native.export_file import JSON
from tilewise.errors import BadImport

__all__ = ["FORMATS", "READABLE", "detect", "read"]

FORMATS = {
    one.name: one
    for one in (JSON, TRITON, DEJAVU, VLLM, SGLANG, FLA, FLAGGEMS, INDUCTOR, T4, KERNEL_TUNER, CSV, PARQUET)
}
"""Formats by name."""

READABLE = tuple(one.name for one in (JSON, T4, KERNEL_TUNER, TRITON, DEJAVU, FLA, VLLM))
"""Names of the formats that can be imported, in the order in which their marks are searched. A table of SGLang is read
as one of vLLM."""


def detect(text: str) -> Format:
    """Return the first readable format whose mark is in this text. Raises `BadImport` if there is none."""
    for name in READABLE:
        if re.search(FORMATS[name].mark, text):
            return FORMATS[name]
    raise BadImport(f"the format of this file is not recognized; give it with --format: {', '.join(READABLE)}")


def read(data: bytes, name: str, about: About, *, written: datetime, kind: str = "") -> ImportFile:
    """Read a file of format `kind`, or of the format that is detected.

    Raises `BadImport`, with a message of one line, for a file that cannot be used at all.
    """
    try:
        found = FORMATS[kind] if kind else detect(text_of(data))
    except ValueError as error:
        raise BadImport(f"not a usable file: {one_line(error)}") from error
    assert found.read is not None, "only readable formats are detected or offered"
    return found.read(data, name, about, written)
