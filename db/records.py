"""What is kept, as plain values: problems, the scope of a tuning, its trials, and the result made from them.

Times are microseconds. JSON forms are those of the command line, the REST service and the export file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

__all__ = [
    "ITEM_BYTES",
    "Clock",
    "Config",
    "Dims",
    "Flags",
    "Problem",
    "Question",
    "Result",
    "Scope",
    "Shape",
    "Status",
    "Suggestion",
    "Trial",
    "Value",
    "canonical_json",
    "digest",
    "shape_text",
]

Value = int | float | str | bool
Config = Mapping[str, Value]
Dims = Mapping[str, int]
Flags = Mapping[str, bool | str]
Shape = Mapping[str, int | bool | str]
"""Dimensions and flags in one mapping, as users write them and as they are stored."""

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1}


class Clock(StrEnum):
    """How a device's times came about."""

    MEASURED = "measured"
    MODELLED = "modelled"


class Status(StrEnum):
    """How a trial ended; the values are those of `invalidity` in the T4 format."""

    CORRECT = "correct"
    CONSTRAINTS = "constraints"
    COMPILE = "compile"
    CORRECTNESS = "correctness"
    RUNTIME = "runtime"
    TIMEOUT = "timeout"


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def shape_text(shape: Shape) -> str:
    """`M=1000,N=8192`, as users write it."""
    return ",".join(f"{name}={value}" for name, value in shape.items())


@dataclass(frozen=True, slots=True)
class Problem:
    """The thing tuned: a kernel's name, the size of each of its dimensions, the dtype of its inputs, and its flags.

    A flag is a choice that changes the work without being a size (causal or not, the name of an activation). Most
    kernels have none. Problems of other flags are other problems: they never answer for each other.
    """

    kernel: str
    dims: Dims
    dtype: str
    flags: Flags = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: str, shape: Shape, dtype: str) -> Problem:
        """The problem of a shape, which holds dimensions and flags in one mapping."""
        flags = {name: value for name, value in shape.items() if isinstance(value, bool | str)}
        dims = {name: value for name, value in shape.items() if not isinstance(value, bool | str)}
        return cls(kernel, dims, dtype, flags)

    @property
    def shape(self) -> Shape:
        return {**self.dims, **self.flags}

    def to_json(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "dims": dict(self.shape), "dtype": self.dtype}

    def __str__(self) -> str:
        """`row_reduce M=1000,N=8192 float32`."""
        return " ".join(filter(None, (self.kernel, shape_text(self.shape), self.dtype)))

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    def resized(self, dims: Dims) -> Problem:
        return replace(self, dims=dims)


class _OfProblem:
    """The fields of a record's problem, as the record's own."""

    __slots__ = ()
    problem: Problem

    @property
    def kernel(self) -> str:
        return self.problem.kernel

    @property
    def dims(self) -> Dims:
        return self.problem.dims

    @property
    def shape(self) -> Shape:
        return self.problem.shape

    @property
    def dtype(self) -> str:
        return self.problem.dtype


@dataclass(frozen=True, slots=True)
class Question(_OfProblem):
    """What a look-up asks for: a problem and the name of the device that is to run it."""

    problem: Problem
    device: str

    @property
    def key(self) -> str:
        return digest([self.kernel, dict(self.shape), self.dtype, self.device])

    def to_json(self) -> dict[str, Any]:
        return {**self.problem.to_json(), "device": self.device}

    def __str__(self) -> str:
        """`row_reduce M=1000,N=8192 float32 on Ascend910B4`."""
        return f"{self.problem} on {self.device}"

    def resized(self, dims: Dims) -> Question:
        return replace(self, problem=self.problem.resized(dims))


@dataclass(frozen=True, slots=True)
class Scope(_OfProblem):
    """What trials must share to be compared: the problem, the kernel's source, the device and its toolchain."""

    problem: Problem
    source_hash: str
    device: str
    clock: Clock
    toolchain: str
    cores: int

    @property
    def question(self) -> Question:
        return Question(self.problem, self.device)

    @property
    def key(self) -> str:
        return digest(
            [
                self.kernel,
                self.source_hash,
                dict(self.shape),
                self.dtype,
                self.device,
                self.clock,
                self.toolchain,
                self.cores,
            ]
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "dims": dict(self.shape),
            "dtype": self.dtype,
            "device": self.device,
            "clock": str(self.clock),
            "toolchain": self.toolchain,
            "source_hash": self.source_hash,
            "cores": self.cores,
        }

    def resized(self, dims: Dims) -> Scope:
        return replace(self, problem=self.problem.resized(dims))


@dataclass(frozen=True, slots=True)
class Trial:
    """One config tried once: what came of it, and the evidence.

    `ordinal` counts the evaluations of the search from 1 and is None for a trial the search did not draw (the
    spec's default). `verified` says that the output agreed with the float64 reference. `facts` is what compiling and
    modelling found (effective options, on-chip memory, waves, time by pipe); `why` is one sentence made from it.
    `seconds` is the wall time that the trial added to its run.

    The median lies between `low_us` and `high_us` with 95% confidence. `dropped` says that the config was clearly
    behind the best after a few repetitions, so that its time is an estimate. `method` is how the time was taken and
    `l2` the state of the cache before each run, `cold` or `warm`. Only a trial that was declared the winner by a
    comparison has a `time_to_beat_us`: the smallest time among all that it was declared over, which a trial recorded
    later has to beat.
    """

    config: Config
    status: Status
    reason: str = ""
    time_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int = 0
    low_us: float | None = None
    high_us: float | None = None
    dropped: bool = False
    method: str = ""
    l2: str = ""
    time_to_beat_us: float | None = None
    verified: bool = False
    is_default: bool = False
    ordinal: int | None = None
    search: str = ""
    seed: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def config_key(self) -> str:
        return digest(dict(self.config))

    @property
    def ranking_us(self) -> float | None:
        """The time by which the best trial is chosen."""
        return self.time_us if self.time_to_beat_us is None else self.time_to_beat_us


@dataclass(frozen=True, slots=True)
class Suggestion(_OfProblem):
    """A config that somebody recommends for a problem without a time of it: where a search may start, no more.

    `device` is the name the recommendation is for, `origin` says where it was read (`vllm table FILE`).
    """

    problem: Problem
    device: str
    config: Config
    origin: str

    @property
    def key(self) -> str:
        return digest([self.kernel, dict(self.shape), self.dtype, self.device, dict(self.config)])


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a question with its evidence: the winner, the default beside it, and how many trials said so.

    `winner` is None where no trial was correct and verified. `match` says how far the look-up relaxed; `distance` is
    how far the answer's shape lies from the question's (0 for `exact`, None where no shape was asked). A winner that
    was not tried for this very problem has no time, and its `why` says where it comes from.
    """

    scope: Scope
    winner: Trial | None
    default: Trial | None
    counts: Mapping[Status, int]
    seconds: float
    match: str = "exact"
    distance: float | None = 0.0

    @property
    def speed_up(self) -> float | None:
        """The default's time by the winner's; None where either is not known."""
        winner = self.winner.time_us if self.winner else None
        default = self.default.time_us if self.default else None
        return default / winner if winner and default else None

    def __getitem__(self, name: str) -> Any:
        """A value of the result object, as the command line prints it: `result["config"]`; raises `KeyError`."""
        return self.to_json()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> KeysView[str]:
        """The keys of the result object: `dict(result)` is what the command line prints."""
        return self.to_json().keys()

    def to_json(self) -> dict[str, Any]:
        """The result object of the command line and the REST service; absent means unknown, never 0."""
        scope, winner = self.scope, self.winner
        body: dict[str, Any] = {
            **scope.to_json(),
            "match": self.match,
            **({} if self.distance is None else {"distance": self.distance}),
            "verified": winner is not None and winner.verified,
            "config": dict(winner.config) if winner else None,
            "default": _default_json(self.default),
            "trials": {"total": sum(self.counts.values())} | {str(s): self.counts.get(s, 0) for s in Status},
            "seconds": round(self.seconds, 3),
        }
        if winner:
            body |= {"samples": winner.samples, "why": winner.why}
            known: dict[str, Any] = {"time_us": winner.time_us, "p20_us": winner.p20_us, "p80_us": winner.p80_us}
            known["evaluations_to_best"] = winner.ordinal
            known["tuned_at"] = winner.created.isoformat() if winner.time_us is not None else None
            known |= {"low_us": winner.low_us, "high_us": winner.high_us} | _certainty(winner)
            body |= {name: value for name, value in known.items() if value is not None}
        return body


def _certainty(winner: Trial) -> dict[str, Any]:
    """How the time was taken, and what the comparison of the leaders said, where there was one."""
    compared = winner.facts.get("contest")
    compared = compared if isinstance(compared, Mapping) else {}
    tied, chance = compared.get("tied"), compared.get("chance")
    return {
        "method": winner.method or None,
        "l2": winner.l2 or None,
        "tie": tied if isinstance(tied, bool) else None,
        "probability": chance if isinstance(chance, float) and 0 <= chance <= 1 else None,
    }


def _default_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    body: dict[str, Any] = {"config": dict(trial.config)}
    if trial.time_us is not None:
        body["time_us"] = trial.time_us
    return body
