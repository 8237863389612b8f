"""All current trials as one table with one row per trial: CSV for any program, Parquet for large tables."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from itertools import islice
from typing import Any

from tilewise.db.exchange.format import Format, Written
from tilewise.db.records import Scope, Trial
from tilewise.db.store import Store
from tilewise.errors import Unavailable

__all__ = ["COLUMNS", "CSV", "PARQUET", "encode_csv", "encode_parquet"]

_SCOPE = ("kernel", "source_hash", "dims", "dtype", "device", "clock", "toolchain", "cores")
_TRIAL = {"settled_us" if field.name == "time_to_beat_us" else field.name: field.name for field in fields(Trial)}
"""The field of a trial in each column."""

COLUMNS = (*_SCOPE, *_TRIAL)
"""The scope's fields, then the trial's. Mappings are JSON, times are in microseconds, unknown values are empty."""

_ROWS_PER_GROUP = 50_000

_WHOLE = ("cores", "samples", "ordinal", "seed")
_FLAGS = ("dropped", "verified", "is_default")
_NUMBERS = ("time_us", "p20_us", "p80_us", "low_us", "high_us", "settled_us", "seconds")


def encode_csv(store: Store, scopes: Iterable[Scope]) -> Iterator[bytes]:
    """Yield RFC 4180 in UTF-8, with a header line, scope by scope."""
    yield _csv_lines([COLUMNS])
    for scope in scopes:
        yield _csv_lines([_plain(value) for value in row] for row in _rows(store, scope))


def encode_parquet(store: Store, scopes: Iterable[Scope]) -> bytes:
    """Return the table as a Parquet file. Raises `Unavailable` without pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unavailable("Parquet needs pyarrow: pip install 'tilewise[parquet]', or export --format csv")
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, _arrow_type(pa, name)) for name in COLUMNS])
    file = io.BytesIO()
    with parquet.ParquetWriter(file, schema) as writer:
        rows = (row for scope in scopes for row in _rows(store, scope))
        while group := list(islice(rows, _ROWS_PER_GROUP)):
            columns = zip(*group, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return file.getvalue()


def _arrow_type(pa: Any, name: str) -> Any:
    if name == "created":
        return pa.timestamp("us", tz="UTC")
    if name in _WHOLE:
        return pa.int64()
    if name in _FLAGS:
        return pa.bool_()
    return pa.float64() if name in _NUMBERS else pa.string()


def _rows(store: Store, scope: Scope) -> Iterator[list[Any]]:
    body = scope.to_json()
    known = [_text(body[name]) for name in _SCOPE]
    for trial in store.trials(scope):
        yield [*known, *(_text(getattr(trial, name)) for name in _TRIAL.values())]


def _text(value: Any) -> Any:
    """Convert mappings to JSON and enumerations to text; leave other values as they are."""
    if hasattr(value, "keys"):
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    return str(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, datetime) else value


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    lines = io.StringIO(newline="")
    csv.writer(lines).writerows(rows)
    return lines.getvalue().encode()


CSV = Format(
    "csv",
    "all current trials, one row each",
    write=lambda selection: Written.single(
        b"".join(encode_csv(selection.store, selection.scopes)), len(selection.scopes)
    ),
)
PARQUET = Format(
    "parquet",
    "the same in Parquet",
    write=lambda selection: Written.single(encode_parquet(selection.store, selection.scopes), len(selection.scopes)),
)
