"""All current trials of a problem as columns, which are much smaller than as many records.

Trials are numbered from 0 in recorded order; a page's addresses and scripts name them by that number.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

from tilewise.db.records import Config, Status, Value

__all__ = ["ABSENT", "Landscape", "Parameter"]

ABSENT = -1
"""The code of a parameter that a trial's config lacks, as some imported ones do."""

_CORRECT = str(Status.CORRECT)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter's tried values, numbers by size and then others by name, and each trial's index in them."""

    name: str
    values: tuple[Value, ...]
    codes: Sequence[int]

    def labels(self) -> list[str]:
        return [str(value) for value in self.values]


class Landscape:
    """The trials' parameters, outcomes and times. `times_us` is None for trials that did not run."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        """Read rows of `FIGURE_COLUMNS`."""
        configs: list[Config] = list(map(msgspec.json.Decoder().decode, (row[0] for row in rows)))
        self.statuses: list[str] = [row[1] for row in rows]
        self.reasons: list[str] = [row[2] for row in rows]
        self.times_us: list[float | None] = [
            row[3] if status == _CORRECT else None for row, status in zip(rows, self.statuses, strict=True)
        ]
        self.verified: list[bool] = [bool(row[4]) for row in rows]
        self.ordinals: list[int | None] = [row[5] for row in rows]
        names = dict.fromkeys(chain.from_iterable(dict.fromkeys(map(tuple, configs))))
        self.parameters = [_parameter(name, configs) for name in names]

    def __len__(self) -> int:
        return len(self.statuses)

    @property
    def varied(self) -> list[Parameter]:
        """The parameters with more than one tried value, in the kernel's order."""
        return [parameter for parameter in self.parameters if len(parameter.values) > 1]

    def parameter(self, name: str) -> Parameter:
        """Return a parameter. Raises `KeyError`."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def config(self, trial: int) -> Config:
        return {each.name: each.values[each.codes[trial]] for each in self.parameters if each.codes[trial] != ABSENT}

    def find(self, config: Config) -> int | None:
        """Return the trial of a config, or None."""
        wanted = dict(config)
        codes = []
        for each in self.parameters:
            value = wanted.pop(each.name, None)
            if value is not None and value not in each.values:
                return None
            codes.append((each.codes, ABSENT if value is None else each.values.index(value)))
        if wanted:
            return None
        return next((n for n in range(len(self)) if all(column[n] == code for column, code in codes)), None)

    def timed(self) -> Iterator[tuple[int, float]]:
        """Yield the number and time of each trial that ran."""
        for trial, time_us in enumerate(self.times_us):
            if time_us is not None:
                yield trial, time_us

    @cached_property
    def best_us(self) -> float | None:
        """The smallest time, verified or not."""
        return min((time_us for time_us in self.times_us if time_us is not None), default=None)

    def fastest(self) -> int | None:
        """Return the trial with the smallest time, verified or not."""
        return None if self.best_us is None else self.times_us.index(self.best_us)

    def encoded(self, winner: int | None, default: int | None) -> bytes:
        """Return the JSON that the page's script draws: columns, with texts and values named by their indices."""
        statuses, of_status = _coded(self.statuses)
        reasons, of_reason = _coded(self.reasons)
        return msgspec.json.encode(
            {
                "parameters": [
                    {"name": each.name, "values": each.labels(), "codes": list(each.codes)} for each in self.parameters
                ],
                "statuses": statuses,
                "status": of_status,
                "reasons": reasons,
                "reason": of_reason,
                "time_us": [None if time is None else round(time, 4) for time in self.times_us],
                "verified": [int(each) for each in self.verified],
                "ordinal": self.ordinals,
                "winner": winner,
                "default": default,
            }
        )


def _parameter(name: str, configs: Sequence[Config]) -> Parameter:
    column = [config.get(name) for config in configs]
    values = sorted((value for value in set(column) if value is not None), key=_order)
    index: dict[Value | None, int] = {None: ABSENT} | {value: n for n, value in enumerate(values)}
    return Parameter(name, tuple(values), array("i", map(index.__getitem__, column)))


def _order(value: Value) -> tuple[bool, float | str]:
    return (True, value) if isinstance(value, str) else (False, value)


def _coded(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    index = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    return list(index), [index[text] for text in texts]
