"""Results of triton's own autotuner, from its `<function>.autotune.json` cache or from its listener.

Triton writes one file per kernel and key when `TRITON_CACHE_AUTOTUNING=1` or `cache_results=True`:

    {"key": [argument values ..., "torch.float32" ...], "configs_timings": [[config, [median, p20, p80]], ...]}

Times are in milliseconds; a config that failed has `Infinity`. The file holds neither the device nor the source nor
the names of the key's arguments.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tilewise.db.evidence import flaw
from tilewise.db.exchange.import_file import About, ImportFile, Offer, Refusal, foreign_scope
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.launchable import DEFAULTS
from tilewise.db.exchange.typed import Config as ConfigJson
from tilewise.db.exchange.typed import Object, typed
from tilewise.db.exchange.typed import Shape as ShapeJson
from tilewise.db.records import Config, Shape, Status, Trial
from tilewise.errors import BadImport

__all__ = ["Key", "config_of", "read_triton_cache", "shape_of", "split_key", "trial_of"]

_ORIGIN = "triton autotune cache"
_RARE_OPTIONS = ("num_ctas", "maxnreg", "ir_override")
"""Options of a `triton.Config` that are stored only if they are set."""

_UNSET = (None, 1)
_DTYPE = "torch."


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The key of one tuning by triton's autotuner: sizes by name, the tensors' dtypes, and other values by name."""

    dims: dict[str, int]
    dtype: str
    rest: dict[str, Any]


class _Cache(msgspec.Struct):
    key: list[Any]
    configs_timings: list[Any]


class _Options(msgspec.Struct):
    kwargs: Object


def read_triton_cache(data: bytes, about: About, *, written: datetime) -> ImportFile:
    """Read a cache; its trials get the file's time. `about.key` names the key's values in order. Raises `BadImport`."""
    try:
        document = typed(parse(text_of(data), constant=float), _Cache)
        key = split_key(document.key, about.key)
        shape, dtype = {**shape_of(key), **about.dims}, about.dtype or key.dtype
        scope = foreign_scope(dataclasses.replace(about, dims=shape, dtype=dtype), _ORIGIN)
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable autotune cache of triton: {one_line(error)}") from error
    read = [(f"config {number}", _read(item, written)) for number, item in enumerate(document.configs_timings, 1)]
    trials = tuple(trial for _, trial in read if isinstance(trial, Trial))
    refused = tuple(Refusal(place, one_line(error)) for place, error in read if isinstance(error, ValueError))
    return ImportFile(offers=(Offer("the cache", scope, trials),), refusals=refused)


def split_key(key: Sequence[Any], names: Sequence[str]) -> Key:
    """Split a key by name. Raises `ValueError` unless there is one name for each value before the dtypes."""
    count = len(key)
    while count and isinstance(key[count - 1], str) and key[count - 1].startswith(_DTYPE):
        count -= 1
    if len(names) != count:
        shown = ", ".join(str(value)[:20] for value in key[:count])
        raise ValueError(f"its key has {count} values ({shown}); name them in order with --key, as in --key M,N")
    values = dict(zip(names, key[:count], strict=True))
    dims = {name: value for name, value in values.items() if _is_size(value)}
    rest = {name: value for name, value in values.items() if name not in dims}
    dtypes = dict.fromkeys(str(text)[len(_DTYPE) :] for text in key[count:])
    return Key(dims, ",".join(dtypes), rest)


def shape_of(key: Key) -> Shape:
    """Return a key's sizes and flags: truth values and words. Raises `ValueError` for a value that is neither."""
    if odd := [word for word, value in key.rest.items() if not isinstance(value, bool | str)]:
        raise ValueError(f"its key holds {', '.join(odd)}, which is neither a size nor a flag")
    return typed({**key.dims, **key.rest}, ShapeJson)


def config_of(fields: Mapping[str, Any]) -> Config:
    """Return the config with a `triton.Config`'s attributes. Raises `ValueError`."""
    body = dict(typed(dict(fields), _Options).kwargs)
    body |= {name: fields.get(name, default) for name, default in DEFAULTS.items()}
    body |= {name: fields[name] for name in _RARE_OPTIONS if fields.get(name) not in _UNSET}
    return typed(body, ConfigJson)


def trial_of(fields: Mapping[str, Any], timings: Any, created: datetime) -> Trial:
    """Return a trial of triton's timings of a config: median and two percentiles, or one time. Raises `ValueError`."""
    times = list(timings) if isinstance(timings, list | tuple) else [timings]
    if not times or not all(isinstance(time, int | float) and not isinstance(time, bool) for time in times):
        raise ValueError("its times are not numbers")
    if not math.isfinite(times[0]):
        return Trial(config_of(fields), Status.RUNTIME, "triton's autotuner could not run it", created=created)
    median, *percentiles = (float(f"{time * 1000:.15g}") for time in times)
    low, high = percentiles if len(percentiles) == 2 else (None, None)
    trial = Trial(config_of(fields), Status.CORRECT, time_us=median, p20_us=low, p80_us=high, created=created)
    if found := flaw(trial):
        raise ValueError(found)
    return trial


def _read(item: Any, written: datetime) -> Trial | ValueError:
    try:
        if not isinstance(item, list) or len(item) != 2:
            raise ValueError("expected a config and its times")
        return trial_of(typed(item[0], Object), item[1], written)
    except (ValueError, OverflowError) as error:
        return ValueError(str(error))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63
