"""Conversion of records to table rows and back. Rows are read by position, in the order of the records' fields."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from tilewise.db.records import Clock, Problem, Result, Scope, Status, Suggestion, Trial

__all__ = [
    "FIGURE_COLUMNS",
    "SCOPE_COLUMNS",
    "SUGGESTION_COLUMNS",
    "TRIAL_COLUMNS",
    "read_result",
    "read_scope",
    "read_suggestion",
    "read_trial",
    "scope_values",
    "suggestion_values",
    "trial_values",
]

SCOPE_COLUMNS = ("kernel", "source_hash", "dims", "dtype", "device", "clock", "toolchain", "cores")
_COLUMNS = {"time_to_beat_us": "settled_us"}
"""Columns whose name differs from their field's."""

TRIAL_COLUMNS = tuple(_COLUMNS.get(field.name, field.name) for field in dataclasses.fields(Trial))
FIGURE_COLUMNS = ("config", "status", "reason", "time_us", "verified", "ordinal")
"""The columns of a trial that a landscape shows. Its facts and its date would take most of the time to read."""

SUGGESTION_COLUMNS = ("kernel", "dims", "dtype", "device", "config", "origin")

_WINNER = len(SCOPE_COLUMNS)
_DEFAULT = _WINNER + len(TRIAL_COLUMNS)
_TALLY = _DEFAULT + len(TRIAL_COLUMNS)


def scope_values(scope: Scope) -> dict[str, Any]:
    values = {name: getattr(scope, name) for name in SCOPE_COLUMNS}
    keys = {"key": scope.key, "question_key": scope.question.key}
    return values | keys | {"dims": _json(scope.problem.shape), "clock": str(scope.clock)}


def trial_values(trial: Trial) -> dict[str, Any]:
    values = {_COLUMNS.get(field.name, field.name): getattr(trial, field.name) for field in dataclasses.fields(Trial)}
    texts = {"config": _json(trial.config), "facts": _json(trial.facts), "status": str(trial.status)}
    return values | texts | {"config_key": trial.config_key, "standing_us": trial.ranking}


def suggestion_values(suggestion: Suggestion) -> dict[str, Any]:
    values = {name: getattr(suggestion, name) for name in SUGGESTION_COLUMNS}
    texts = {"dims": _json(suggestion.problem.shape), "config": _json(suggestion.config)}
    return values | texts | {"key": suggestion.key}


def read_scope(row: Sequence[Any]) -> Scope:
    kernel, source_hash, dims, dtype, device, clock, toolchain, cores = row
    return Scope(Problem.of(kernel, json.loads(dims), dtype), source_hash, device, Clock(clock), toolchain, cores)


def read_suggestion(row: Sequence[Any]) -> Suggestion:
    kernel, dims, dtype, device, config, origin = row
    return Suggestion(Problem.of(kernel, json.loads(dims), dtype), device, json.loads(config), origin)


def read_trial(row: Sequence[Any]) -> Trial:
    config, status, *figures, facts, why, seconds, created = row
    values: list[Any] = [json.loads(config), Status(status), *figures, json.loads(facts), why, seconds, created]
    return Trial(*values)


def read_result(row: Sequence[Any]) -> Result:
    """Read a row of scope, winner, default, the number of trials of each status, and their seconds."""
    *counts, seconds = row[_TALLY:]
    return Result(
        scope=read_scope(row[:_WINNER]),
        winner=_read_optional_trial(row[_WINNER:_DEFAULT]),
        default=_read_optional_trial(row[_DEFAULT:_TALLY]),
        counts={status: count for status, count in zip(Status, counts, strict=True) if count},
        seconds=seconds or 0.0,
    )


def _read_optional_trial(row: Sequence[Any]) -> Trial | None:
    return None if row[0] is None else read_trial(row)


def _json(value: Any) -> str:
    """Return JSON in the given order, in which people read a config; keys are made from the canonical form."""
    return json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
