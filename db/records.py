"""The stored records as plain values: problems, scopes, trials, and the results made from them.

Times are in microseconds. JSON forms are those of the command line, the REST service and the export file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

__all__ = [
    "ENERGY",
    "ITEM_BYTES",
    "METRICS",
    "OBJECTIVE",
    "VERIFIED_BY",
    "Clock",
    "Config",
    "Dims",
    "Flags",
    "L2State",
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
    "metrics_among",
    "outcome_of_comparison",
    "shape_text",
]

VERIFIED_BY = "verified_by"
"""Key of a trial's fact: `self` where its kernel has no reference, so that nothing else could verify it."""

METRICS = "metrics"
"""Key of a trial's fact: the figures that its spec counts beside the time, by name, and the energy."""

ENERGY = "energy_uj"
"""Name of the metric that a device measures: microjoules of one launch among many, one after the other."""

OBJECTIVE = "objective"
"""Name of the flag of a problem whose configs are ranked by a metric instead of their time, and key of a trial's fact:
the metric's name in both. As a flag, it keeps bests by different objectives apart wherever results are looked up."""

Value = int | float | str | bool
Config = Mapping[str, Value]
Dims = Mapping[str, int]
Flags = Mapping[str, bool | str]
Shape = Mapping[str, int | bool | str]
"""Dimensions and flags in one mapping, as users write them and as they are stored."""

ITEM_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int32": 4,
    "int64": 8,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
}
"""Bytes of an element of each known dtype, by torch's name for it."""


class L2State(StrEnum):
    """The L2 cache before each run of a kernel.

    `WARM`: as the last run left it. `COLD`: empty. `DIRTY`: full of other data, not written back yet.
    """

    COLD = "cold"
    WARM = "warm"
    DIRTY = "dirty"


class Clock(StrEnum):
    """The origin of a device's times."""

    MEASURED = "measured"
    MODELLED = "modelled"


class Status(StrEnum):
    """The outcome of a trial; the values are those of `invalidity` in the T4 format, and `unmodelled`.

    `unmodelled` says nothing about the config: a modelled part could not time it, or not execute it.
    """

    CORRECT = "correct"
    CONSTRAINTS = "constraints"
    COMPILE = "compile"
    CORRECTNESS = "correctness"
    RUNTIME = "runtime"
    TIMEOUT = "timeout"
    UNMODELLED = "unmodelled"


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and no NaN, so that equal values give equal text."""
    return _canonical(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def shape_text(shape: Shape) -> str:
    """Format a shape as users write it: `M=1000,N=8192`."""
    return ",".join(f"{name}={value}" for name, value in shape.items())


@dataclass(frozen=True, slots=True)
class Problem:
    """The thing tuned: a kernel's name, the size of each dimension, the dtype of the inputs, and the flags.

    A flag changes the work without being a size (causal or not, the name of an activation). Most kernels have none.
    Problems with different flags are different problems; a result for one never answers for the other. A flag that has
    its default value is left out, so that a kernel that gains a flag keeps the results stored before.
    """

    kernel: str
    dims: Dims
    dtype: str
    flags: Flags = field(default_factory=dict)

    @classmethod
    def of(cls, kernel: str, shape: Shape, dtype: str) -> Problem:
        """Return the problem of a shape, which holds dimensions and flags in one mapping."""
        flags = {name: value for name, value in shape.items() if isinstance(value, bool | str)}
        dims = {name: value for name, value in shape.items() if not isinstance(value, bool | str)}
        return cls(kernel, dims, dtype, flags)

    @property
    def shape(self) -> Shape:
        return {**self.dims, **self.flags}

    def to_json(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "dims": dict(self.shape), "dtype": self.dtype}

    def __str__(self) -> str:
        """Format as `row_reduce M=1000,N=8192 float32`."""
        return " ".join(filter(None, (self.kernel, shape_text(self.shape), self.dtype)))

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def objective(self) -> str:
        """The metric by which configs are ranked; empty where it is the time."""
        return str(self.flags.get(OBJECTIVE, ""))

    def resized(self, dims: Dims) -> Problem:
        return replace(self, dims=dims)


class _OfProblem:
    """A mixin that exposes the fields of a record's problem as the record's own."""

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
    """The question of a look-up: a problem and the name of the device that will run it."""

    problem: Problem
    device: str

    @property
    def key(self) -> str:
        return digest([self.kernel, dict(self.shape), self.dtype, self.device])

    def to_json(self) -> dict[str, Any]:
        return {**self.problem.to_json(), "device": self.device}

    def __str__(self) -> str:
        """Format as `row_reduce M=1000,N=8192 float32 on Ascend910B4`."""
        return f"{self.problem} on {self.device}"

    def resized(self, dims: Dims) -> Question:
        return replace(self, problem=self.problem.resized(dims))


@dataclass(frozen=True, slots=True)
class Scope(_OfProblem):
    """The conditions that trials must share to be compared: problem, kernel source, device, clock, toolchain, cores."""

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
    """One config tried once: the outcome and its evidence.

    `ordinal` counts the search's evaluations from 1 and is None for a trial that the search did not draw (the spec's
    default). `verified` means that the output agreed with the float64 reference. `facts` holds the findings of
    compiling and modelling (effective options, on-chip memory, waves, time by pipe); `why` sums them up in one
    sentence. `seconds` is the wall time that the trial added to its run.

    The median lies between `low_us` and `high_us` with 95% confidence. `dropped` means that the config was clearly
    behind the best after a few repetitions, so its time is an estimate. `method` is how the time was taken, and `l2`
    the state of the cache before each run (`L2State`). Only a trial that a comparison declared the winner has a
    `time_to_beat_us`: the smallest time among the trials that it was declared over, which a later trial has to beat.
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
    def verified_by(self) -> str | None:
        """`reference`, or `self` if the output was compared with that of the kernel's own default config; None if the
        trial is not verified."""
        if not self.verified:
            return None
        return "self" if self.facts.get(VERIFIED_BY) == "self" else "reference"

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of this trial beside its time, by name."""
        return metrics_among(self.facts)

    @property
    def cost(self) -> float | None:
        """The figure that is to be small: the metric that is its problem's objective, or else the time."""
        if OBJECTIVE not in self.facts:
            return self.time_us
        cost = self.metrics.get(str(self.facts[OBJECTIVE]))
        return cost if cost is not None and cost > 0 else None

    @property
    def ranking(self) -> float | None:
        """The figure by which trials are ranked."""
        return self.cost if self.time_to_beat_us is None else self.time_to_beat_us


@dataclass(frozen=True, slots=True)
class Suggestion(_OfProblem):
    """A config recommended for a problem without a time: only a starting point for a search.

    `device` is the device name that the recommendation is for; `origin` says where it was read (`vllm table FILE`).
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
    """The answer to a question with its evidence: the winner, the default, and the number of trials by status.

    `winner` is None if no trial is correct and verified. `match` says how far the look-up relaxed. `distance` is the
    distance between the shapes of answer and question: 0 for `exact`, None if the question has no shape. A winner that
    was not tried for this very problem has no time, and its `why` says where it comes from. `trials` holds all of the
    scope's trials in the result of a tuning, and none in that of a look-up.
    """

    scope: Scope
    winner: Trial | None
    default: Trial | None
    counts: Mapping[Status, int]
    seconds: float
    match: str = "exact"
    distance: float | None = 0.0
    trials: tuple[Trial, ...] = field(default=(), compare=False, repr=False)

    @property
    def speed_up(self) -> float | None:
        """The default's time divided by the winner's, or None if either is unknown."""
        winner = self.winner.time_us if self.winner else None
        default = self.default.time_us if self.default else None
        return default / winner if winner and default else None

    def __getitem__(self, name: str) -> Any:
        """Return a value of the result object that the command line prints: `result["config"]`. Raises `KeyError`."""
        return self.to_json()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> KeysView[str]:
        """Return the keys of the result object; `dict(result)` is the object that the command line prints."""
        return self.to_json().keys()

    def to_json(self) -> dict[str, Any]:
        """Return the result object of the command line and the REST service; an absent key means unknown, never 0."""
        scope, winner = self.scope, self.winner
        body: dict[str, Any] = {
            **scope.to_json(),
            "match": self.match,
            **({} if self.distance is None else {"distance": self.distance}),
            "verified": winner is not None and winner.verified,
            **({"verified_by": winner.verified_by} if winner is not None and winner.verified else {}),
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
            known[METRICS] = winner.metrics or None
            body |= {name: value for name, value in known.items() if value is not None}
        return body


def _certainty(winner: Trial) -> dict[str, Any]:
    """Return how the time was taken, and the outcome of the final comparison if there was one."""
    tie, probability = outcome_of_comparison(winner.facts)
    return {"method": winner.method or None, "l2": winner.l2 or None, "tie": tie, "probability": probability}


def metrics_among(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return, from a trial's facts, the figures beside its time; an imported trial may hold anything there."""
    found = facts.get(METRICS)
    known = found.items() if isinstance(found, Mapping) else ()
    return {name: value for name, value in known if type(value) in (int, float) and math.isfinite(value)}


def outcome_of_comparison(facts: Mapping[str, Any]) -> tuple[bool | None, float | None]:
    """Return, from a winner's facts, whether it is tied and its probability of being fastest; None where unknown."""
    compared = facts.get("contest")
    compared = compared if isinstance(compared, Mapping) else {}
    tied, chance = compared.get("tied"), compared.get("chance")
    return (
        tied if isinstance(tied, bool) else None,
        chance if isinstance(chance, float) and 0 <= chance <= 1 else None,
    )


def _default_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    body: dict[str, Any] = {"config": dict(trial.config)}
    if trial.time_us is not None:
        body["time_us"] = trial.time_us
    return body
