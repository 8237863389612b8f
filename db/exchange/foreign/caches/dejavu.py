"""Storage of triton-dejavu (`cache.json` in the folder of a function), which keeps the winners of a Triton autotuner.

    {"signature": "JITFunction(module:function)",
     "cache": {"(1024, 'torch.float32')": "BLOCK: 64, num_warps: 4, num_stages: 2, maxnreg: None"},
     "timings": {"(1024, 'torch.float32')": {"values": [median, ...], "lables": ["ms", ...]}}}

Keys are those of `triton.autotune`, and configs the text of a `triton.Config`. A folder's name holds the hash of the
function and the device's, neither of which is in the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from tilewise.db.exchange.foreign.caches.triton_cache import shape_of, split_key, trial_of
from tilewise.db.exchange.format import Format
from tilewise.db.exchange.import_file import About, ImportFile, Offer, Refusal, foreign_scope
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.launchable import OPTIONS
from tilewise.db.exchange.typed import Object, typed
from tilewise.errors import BadImport

__all__ = ["DEJAVU"]

_ORIGIN = "triton-dejavu storage"
_WORDS = {"True": True, "False": False}
_LEFT_OUT = ("pre_hook", "enable_persistent", "enable_warp_specialization")
"""Attributes of a `triton.Config` of some releases that are no part of a config here."""


class _Storage(msgspec.Struct):
    signature: str
    cache: dict[str, str]
    timings: dict[str, Object]


def _read(data: bytes, about: About, written: datetime) -> ImportFile:
    """Read a file. Each key is a problem with one trial, which gets the file's time. Raises `BadImport`."""
    try:
        storage = typed(parse(text_of(data), constant=float), _Storage)
        kernel = about.kernel or storage.signature.rpartition(":")[2].removesuffix(")")
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable file of triton-dejavu: {one_line(error)}") from error
    found = list(_parts(storage, replace(about, kernel=kernel), written))
    offers = tuple(part for part in found if isinstance(part, Offer))
    return ImportFile(offers, tuple(part for part in found if isinstance(part, Refusal)))


def _parts(storage: _Storage, about: About, written: datetime) -> Iterator[Offer | Refusal]:
    for key, config in storage.cache.items():
        place = f"key {key[:60]}"
        try:
            yield _offer(place, key, config, storage.timings.get(key, {}), about, written)
        except (ValueError, OverflowError, RecursionError) as error:
            yield Refusal(place, one_line(error))


def _offer(place: str, key: str, config: str, timings: Object, about: About, written: datetime) -> Offer:
    values = _tuple(key)
    named = split_key(values, about.key)
    shape, dtype = {**shape_of(named), **about.dims}, about.dtype or named.dtype
    scope = foreign_scope(replace(about, dims=shape, dtype=dtype), _ORIGIN)
    times = timings.get("values")
    if not isinstance(times, list) or not times:
        raise ValueError("it has no times")
    return Offer(place, scope, (trial_of(_fields(config), times[0], written),))


def _tuple(text: str) -> list[Any]:
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, TypeError, ValueError, MemoryError):
        found = None
    if not isinstance(found, tuple):
        raise ValueError("its key is not a tuple of values")
    return list(found)


def _fields(config: str) -> dict[str, Any]:
    """Return the attributes of the `triton.Config` with this text. Raises `ValueError`."""
    fields: dict[str, Any] = {"kwargs": {}}
    for part in config.split(", "):
        name, colon, text = part.partition(": ")
        if not colon:
            raise ValueError(f"its config has {part[:40]!r} where a name and a value were expected")
        if name not in _LEFT_OUT:
            place = fields if name in OPTIONS else fields["kwargs"]
            place[name] = None if text == "None" else _value(text)
    return fields


def _value(text: str) -> bool | int | str:
    return _WORDS[text] if text in _WORDS else int(text) if text.lstrip("-").isdecimal() else text


DEJAVU = Format(
    "dejavu",
    read=lambda data, name, about, written: _read(data, about, written),
    mark=r'"total_bench_time_s"|"lables"',
)
"""The format `dejavu`, which is read only: a folder's name needs hashes that only triton-dejavu makes."""
