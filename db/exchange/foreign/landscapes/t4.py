"""The T4 results format of the auto-tuning community, and the landscapes in T4 files and Kernel Tuner caches.

T4 is the results schema 1.0.0 that Kernel Tuner ships. Its times are in the `timeunit` of its metadata, by default
milliseconds; ours are in microseconds.
Beyond the schema, our T4 files hold `metadata` (the scope), `verified` (whether the output agreed with the reference),
`verified_by` (`self` if it was compared with that of the kernel's default config instead), and `total` among a result's
times (the trial's wall time). `runtimes` are the kept repetitions of a measured time, else the only time; `time` among
the measurements is their median.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import msgspec

from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.typed import Config as ConfigJson
from tilewise.db.exchange.typed import Number, Object, typed
from tilewise.db.records import Config, Scope, Status, Trial
from tilewise.db.store import Store
from tilewise.errors import BadImport, NotFound

__all__ = [
    "Landscape",
    "Row",
    "export_t4",
    "parse_recording",
    "read_landscape",
    "recorded_metadata",
    "recorded_rows",
]

_SCHEMA_VERSION = "1.0.0"
_MS = 1e3
_US_PER = {"ms": _MS, "us": 1.0, "ns": 1e-3, "s": 1e6}
_US_PER |= {"milliseconds": _MS, "microseconds": 1.0, "nanoseconds": 1e-3, "seconds": 1e6, "miliseconds": _MS}
"""Microseconds per unit of time; public files spell milliseconds with one l, too. A measurement without a unit is in
the file's unit, by default milliseconds."""

_KERNEL_TUNER_ERROR = "__error__"
_KERNEL_TUNER_ERRORS = {"InvalidConfig": Status.CONSTRAINTS, "CompilationFailedConfig": Status.COMPILE}
"""Errors recorded in place of a time, or in a field of their own. Any other text (such as `RuntimeFailedConfig`) means
that the run failed."""

_KERNEL_TUNER_PARTS = ("compile_time", "verification_time", "benchmark_time", "framework_time")
"""The parts of a recorded trial's wall time, without `strategy_time`, which belongs to the recorded search."""

_T4_PARTS = ("compilation", "compilation_time", "validation", "benchmark", "framework")

_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]')
"""Brackets, and strings, since brackets inside them do not count. The last string may be cut off."""

_DEPTH = 2

_UNFINISHED = re.compile(r'[\s,]*(?:"(?:[^"\\]|\\.)*\\?|\\?[-+.\w]*)')
"""The text after the parse error in a document that was cut off. In a damaged document more than a word follows."""

_UNMODELLED = "unmodelled: "
"""How the reason of a config begins that a model could not judge. Its `invalidity` is `constraints`."""

_KERNEL_TUNER_ERROR_VALUE = 1e20
"""The "time" that older recorders write for a config that failed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded config. `seconds` is the wall time of the trial. None means that the record does not say."""

    config: Config
    status: Status
    time_us: float | None
    samples_us: tuple[float, ...]
    seconds: float | None
    p20_us: float | None = None
    p80_us: float | None = None
    verified: bool = False
    verified_by: str | None = None
    created: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Landscape:
    """A recorded search space: parameter names in order, metadata, one row per config, and whether no record was
    cut off."""

    parameters: tuple[str, ...]
    metadata: Mapping[str, Any]
    rows: tuple[Row, ...]
    whole: bool = True


class _T4(msgspec.Struct):
    results: list[Any]
    metadata: Object = {}


class _T4Configuration(msgspec.Struct):
    configuration: ConfigJson


class _T4Result(_T4Configuration):
    invalidity: Status
    times: Object
    reason: Any = None
    measurements: list[Object] | None = None
    verified: Any = None
    verified_by: Any = None
    timestamp: Any = None


class _Measurement(msgspec.Struct):
    value: Number


class _Cache(msgspec.Struct):
    tune_params_keys: list[Any]
    cache: Object


class _Config(msgspec.Struct):
    config: ConfigJson


def export_t4(store: Store, scope: Scope) -> dict[str, Any]:
    """Return the scope's current trials as a T4 document. Raises `NotFound` if there are none."""
    trials = store.trials(scope)
    if not trials:
        raise NotFound(f"no trial of {scope.problem} is stored for {scope.device}")
    metadata = {
        "kernel": scope.kernel,
        "source_hash": scope.source_hash,
        "dims": dict(scope.shape),
        "dtype": scope.dtype,
        "device": scope.device,
        "clock": str(scope.clock),
        "cores": scope.cores,
        "toolchain": scope.toolchain,
        "parameters": list(trials[0].config),
    }
    results = [_result(trial) for trial in trials]
    return {"schema_version": _SCHEMA_VERSION, "metadata": metadata, "results": results}


def read_landscape(path: str | Path) -> Landscape:
    """Read a T4 file or a Kernel Tuner cache, plain or gzipped. Raises `BadImport`.

    A file that was cut off while being written (closing braces missing, last record incomplete) is read up to its last
    whole record.
    """
    path = Path(path)
    try:
        landscape = _landscape(*parse_recording(_bytes(path)))
    except (ValueError, RecursionError) as error:
        raise BadImport(f"{path} is not a usable T4 file or Kernel Tuner cache: {one_line(error)}") from error
    return landscape


def parse_recording(data: bytes) -> tuple[Object, bool]:
    """Return the document of a T4 file or a Kernel Tuner cache, and False if its last record was cut off, else True.
    Raises `ValueError`."""
    document, whole = _load(text_of(data, cut=True))
    return typed(document, Object), whole


def recorded_rows(document: Object) -> Iterator[tuple[str, Row | ValueError]]:
    """Yield each record's place in the document, with the record or what is wrong with it. Raises `ValueError`."""
    if "results" in document:
        read = partial(_t4_row, us_per=_us_per(recorded_metadata(document).get("timeunit", "ms")))
        parameters = _t4_parameters(document)
        for number, result in enumerate(typed(document, _T4).results, 1):
            yield f"result {number}", _row_or_error(read, result, parameters)
    else:
        cache = typed(document, _Cache)
        parameters = _names(cache.tune_params_keys)
        for key, record in cache.cache.items():
            yield f"record {key[:40]!r}", _row_or_error(_cache_row, record, parameters)


def _row_or_error(read: Callable[..., Row], record: Any, parameters: tuple[str, ...]) -> Row | ValueError:
    try:
        return read(record, parameters)
    except ValueError as error:
        return error


def _landscape(document: Object, whole: bool) -> Landscape:
    rows = []
    for place, row in recorded_rows(document):
        if isinstance(row, ValueError):
            raise ValueError(f"{place}: {row}")
        rows.append(row)
    if not rows:
        raise ValueError("it holds no configs")
    return Landscape(tuple(rows[0].config), recorded_metadata(document), tuple(rows), whole)


def recorded_metadata(document: Object) -> dict[str, Any]:
    """Return the metadata beside the records."""
    if "results" in document:
        return typed(document, _T4).metadata
    return {name: value for name, value in document.items() if name not in ("cache", "tune_params_keys")}


# Writing


def _result(trial: Trial) -> dict[str, Any]:
    kept, compiling = trial.facts.get("times_us"), trial.facts.get("compile_s")
    if not isinstance(kept, list) or not all(map(_is_time, kept)):  # facts are free-form: an import may hold anything
        kept = [] if trial.time_us is None else [trial.time_us]
    times: dict[str, Any] = {"runtimes": [time / 1000 for time in kept], "total": trial.seconds * 1000}
    if isinstance(compiling, int | float):
        times["compilation"] = compiling * 1000
    milliseconds = {"time": trial.time_us, "p20": trial.p20_us, "p80": trial.p80_us}
    measurements = [
        {"name": name, "value": value / 1000, "unit": "ms"} for name, value in milliseconds.items() if value is not None
    ]
    return {
        "timestamp": trial.created.isoformat(),
        "configuration": dict(trial.config),
        "times": times,
        **_invalidity(trial),
        "correctness": 1 if trial.status is Status.CORRECT else 0,
        "verified": trial.verified,
        **({"verified_by": "self"} if trial.verified_by == "self" else {}),
        "measurements": measurements,
        "objectives": ["time"],
    }


def _invalidity(trial: Trial) -> dict[str, str]:
    """Return the outcome in T4's words, which has none for what a model could not judge."""
    if trial.status is Status.UNMODELLED:
        return {"invalidity": str(Status.CONSTRAINTS), "reason": f"{_UNMODELLED}{trial.reason}"}
    return {"invalidity": str(trial.status)}


# Reading


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _load(text: str) -> tuple[Any, bool]:
    """Parse JSON. Recorders write NaN and Infinity for failed times, and leave brackets open when they are stopped."""
    try:
        return parse(text, constant=float), True
    except ValueError as error:
        wrong = error.__cause__
        if not isinstance(wrong, JSONDecodeError) or not _UNFINISHED.fullmatch(text, wrong.pos):
            raise
        kept, left = _up_to_the_last_record(text)
        return parse(kept + left, constant=float), not text[len(kept) :].strip(" \n\r\t,")


def _up_to_the_last_record(text: str) -> tuple[str, str]:
    """Return a cut document up to the end of its last whole record, and the brackets that close it. Records are objects
    two levels deep, in caches and T4 files alike."""
    closers: list[str] = []
    kept, left = 0, ""
    for mark in _MARKS.finditer(text):
        found = mark.group()
        if found in "{[":
            closers.append("}" if found == "{" else "]")
        elif found in "}]":
            closers.pop()
            if len(closers) <= _DEPTH:
                kept, left = mark.end(), "".join(reversed(closers))
    return text[:kept], left


def _cache_row(record: Any, parameters: tuple[str, ...]) -> Row:
    fields = typed(record, Object)
    if not fields.keys() & {"time", _KERNEL_TUNER_ERROR}:
        raise ValueError("time is missing")
    given = {name: fields[name] for name in parameters if name in fields}
    config = typed({"config": given}, _Config).config
    if len(config) < len(parameters):
        raise ValueError(f"it lacks {', '.join(name for name in parameters if name not in config)}")
    time, status = _cache_time(fields.get(_KERNEL_TUNER_ERROR) or fields.get("time"))
    samples = _samples(fields.get("times") or [], _MS) if status is Status.CORRECT else ()
    return Row(
        config,
        status,
        time,
        samples,
        _seconds(fields, _KERNEL_TUNER_PARTS, _MS),
        created=_moment(fields.get("timestamp")),
    )


def _cache_time(time: Any) -> tuple[float | None, Status]:
    if isinstance(time, str):
        return None, _KERNEL_TUNER_ERRORS.get(time, Status.RUNTIME)
    if not _is_time(time) or time >= _KERNEL_TUNER_ERROR_VALUE:
        return None, Status.RUNTIME
    return _us(time, _MS), Status.CORRECT


def _t4_parameters(document: Object) -> tuple[str, ...]:
    results = typed(document, _T4).results
    first = typed(results[0], _T4Configuration).configuration if results else {}
    return _names(recorded_metadata(document).get("parameters") or list(first))


def _t4_row(result: Any, parameters: tuple[str, ...], us_per: float) -> Row:
    known = typed(result, _T4Result)
    config, times, correct = known.configuration, known.times, known.invalidity is Status.CORRECT
    reason = known.reason if isinstance(known.reason, str) else ""
    unmodelled = known.invalidity is Status.CONSTRAINTS and reason.startswith(_UNMODELLED)
    if set(config) != set(parameters):
        raise ValueError(f"its configuration names {', '.join(config)}; expected {', '.join(parameters)}")
    samples = _samples(times.get("runtimes") or [], us_per) if correct else ()
    return Row(
        config={name: config[name] for name in parameters},
        status=Status.UNMODELLED if unmodelled else known.invalidity,
        time_us=_t4_time(known, samples, us_per) if correct else None,
        samples_us=samples,
        seconds=_seconds(times, ("total",) if "total" in times else _T4_PARTS, us_per),
        p20_us=_measurement(known, "p20", us_per),
        p80_us=_measurement(known, "p80", us_per),
        verified=known.verified is True and correct,
        verified_by="self" if known.verified_by == "self" else None,
        created=_moment(known.timestamp),
        reason=reason.removeprefix(_UNMODELLED),
    )


def _t4_time(result: _T4Result, samples: tuple[float, ...], us_per: float) -> float:
    """Return the measurement called `time`, else the mean of the repetitions, as Kernel Tuner does."""
    if (time := _measurement(result, "time", us_per)) is not None:
        return time
    if not samples:
        raise ValueError("it is correct but has neither a measurement called time nor runtimes")
    return math.fsum(samples) / len(samples)


def _measurement(result: _T4Result, name: str, us_per: float) -> float | None:
    """Return a measurement in microseconds; `us_per` is the unit of one that names none."""
    for measurement in result.measurements or []:
        if measurement.get("name") == name:
            unit, value = measurement.get("unit"), typed(measurement, _Measurement).value
            if value <= 0:
                raise ValueError(f"its {name} is {value}; expected a positive number")
            return _us(value, _us_per(unit) if unit else us_per)
    return None


def _us_per(unit: Any) -> float:
    if not isinstance(unit, str) or unit not in _US_PER:
        raise ValueError(f"its unit of time is {str(unit)[:40]!r}; expected {', '.join(_US_PER)}")
    return _US_PER[unit]


def _moment(text: Any) -> datetime | None:
    """Return when a record was made, or None if that cannot be read. A time without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _names(values: list[Any]) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values) or not values:
        raise ValueError("its parameter names are missing; expected a list of strings")
    return tuple(values)


def _samples(values: Any, us_per: float) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(map(_is_time, values)):
        raise ValueError("its repetitions are not all positive numbers")
    return tuple(_us(value, us_per) for value in values)


def _seconds(times: Object, parts: tuple[str, ...], us_per: float) -> float | None:
    known = [typed({name: times[name]}, dict[str, Number])[name] for name in parts if times.get(name) is not None]
    return math.fsum(known) / (1e6 / us_per) if known else None


_LONGEST = 1e100
"""Times from here on are invalid in any unit; larger whole numbers may exceed every float."""


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LONGEST


def _us(value: float, us_per_unit: float) -> float:
    """Convert to microseconds with 15 significant digits, so that a time exported in milliseconds is read unchanged."""
    return float(f"{value * us_per_unit:.15g}")
