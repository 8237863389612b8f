"""Import of results from T4 files and Kernel Tuner caches.

A T4 file written by tilewise identifies its problem. For any other file the caller must do so; its trials count as
measured, and as unverified whatever it says, since `verified` is no word of T4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tilewise.db.evidence import flaw
from tilewise.db.exchange.foreign.landscapes.kernel_tuner_cache import encode_cache
from tilewise.db.exchange.foreign.landscapes.t4 import Row, export_t4, parse_recording, recorded_metadata, recorded_rows
from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.import_file import About, ImportFile, Offer, Refusal, foreign_scope
from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.exchange.selection import Selection
from tilewise.db.exchange.trials import scope_from_json
from tilewise.db.records import VERIFIED_BY, Scope, Trial
from tilewise.errors import BadImport

__all__ = ["KERNEL_TUNER", "T4", "read_recorded"]


def read_recorded(data: bytes, about: About, *, written: datetime) -> ImportFile:
    """Read a recording. Records without a timestamp get the file's, `written`. Raises `BadImport`."""
    try:
        document, whole = parse_recording(data)
        metadata = recorded_metadata(document)
        own = "cache" not in document and "source_hash" in metadata
        scope = scope_from_json(dict(metadata)) if own else _foreign_scope(metadata, about, "cache" in document)
        rows = [(place, _trial(row, written, own)) for place, row in recorded_rows(document)]
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable T4 file or Kernel Tuner cache: {one_line(error)}") from error
    trials = tuple(trial for _, trial in rows if isinstance(trial, Trial))
    refused = tuple(Refusal(place, one_line(error)) for place, error in rows if isinstance(error, ValueError))
    refused += () if whole else (Refusal("after the last whole record", "the file was cut off"),)
    return ImportFile(offers=(Offer("the recording", scope, trials),), refusals=refused)


def _foreign_scope(metadata: Mapping[str, Any], about: About, is_cache: bool) -> Scope:
    named = str(metadata.get("device_name") or "")
    return foreign_scope(about, "Kernel Tuner cache" if is_cache else "T4 file", device=about.device or named)


def _trial(row: Row | ValueError, written: datetime, own: bool) -> Trial | ValueError:
    if isinstance(row, ValueError):
        return row
    trial = Trial(
        config=dict(row.config),
        status=row.status,
        reason=row.reason,
        time_us=row.time_us,
        p20_us=row.p20_us,
        p80_us=row.p80_us,
        samples=len(row.samples_us),
        verified=row.verified and own,
        facts=_facts(row, own),
        seconds=row.seconds or 0.0,
        created=row.created or written,
    )
    found = flaw(trial)
    return ValueError(found) if found else trial


def _facts(row: Row, own: bool) -> dict[str, Any]:
    times = {"times_us": list(row.samples_us)} if len(row.samples_us) > 1 else {}
    return times | ({VERIFIED_BY: row.verified_by} if own and row.verified and row.verified_by else {})


def _read(data: bytes, name: str, about: About, written: datetime) -> ImportFile:
    return read_recorded(data, about, written=written)


def _write_t4(selection: Selection) -> Written:
    document = export_t4(selection.store, selection.single_scope("t4"))
    return Written.single(json.dumps(document, allow_nan=False).encode(), 1)


def _write_cache(selection: Selection) -> Written:
    return Written.single(encode_cache(selection.store, selection.single_scope("kernel-tuner")), 1)


T4 = Format(
    "t4",
    "all trials of one problem as a landscape in the T4 format",
    write=_write_t4,
    read=_read,
    mark=r'"schema_version"|"results"\s*:',
)
KERNEL_TUNER = Format(
    "kernel-tuner",
    "the same as a cache for Kernel Tuner's simulation mode",
    write=_write_cache,
    read=_read,
    mark=r'"tune_params_keys"',
)
