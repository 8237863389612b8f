"""The seed documents' claims about kernel variants, checked on a device: both sides are tuned, shape by shape.

Each question compares sides of a kernel's space (one load or a loop, two passes or three, numbers of parts). Each side
is tuned separately over its own configs, so that a side does not lose because of its tile sizes.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.db.sql.sql_store import open_store
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Constraint, KernelSpec, Problem, Target, ceil_div
from tilewise.tuner.devices.base import Device
from tilewise.tuner.prior.penalties import rank_by_prior
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning

__all__ = ["QUESTIONS", "Question", "bench_variants"]

Side = Callable[[Config, Problem], bool]


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison of `sides`, by name. `says` is the documents' claim in words. `published` is the documents' time of
    the first side over that of the last, or None if they give no number."""

    id: str
    kernel: str
    says: str
    sides: Mapping[str, Side]
    shapes: Sequence[Mapping[str, int]]
    published: float | None = None


def _variant(*names: str, **more: int) -> Side:
    def belongs(config: Config, problem: Problem) -> bool:
        return config["VARIANT"] in names and all(config[name] == value for name, value in more.items())

    return belongs


def _parts(count: int) -> Side:
    def belongs(config: Config, problem: Problem) -> bool:
        return ceil_div(problem.dims["N"], int(config["BLOCK_SIZE_N"])) == count

    return belongs


QUESTIONS = (
    Question(
        id="log_softmax_loads",
        kernel="log_softmax",
        says="one load of several rows against a loop over one row: 82.32 us became 7.97",
        sides={"online, one row": _variant("online", ROWS_PER_BLOCK=1), "one_load": _variant("one_load")},
        shapes=[{"M": 4096, "N": n} for n in (1000, 2000, 4000, 8000)],
        published=82.32 / 7.97,
    ),
    Question(
        id="batch_norm_passes",
        kernel="batch_norm",
        says="three passes became two: 73.67 ms became about 52",
        sides={"three_passes": _variant("three_passes"), "two_passes": _variant("two_passes")},
        shapes=[{"N": 32, "C": 128, "HW": hw} for hw in (784, 3136, 12544)],
        published=1.42,
    ),
    Question(
        id="max_parts",
        kernel="max_rows",
        says="rows of 65536 whole, in parts of 16384 or of 1024: all make sense",
        sides={f"{count} part{'s' * (count > 1)}": _parts(count) for count in (16, 8, 4, 2, 1)},
        shapes=[{"M": 256, "N": 65536}],
    ),
    Question(
        id="layer_norm_backward_fused",
        kernel="layer_norm_backward",
        says="one kernel while N float32 elements fit 64 KiB (16384), two kernels beyond",
        sides={"split": _variant("split"), "fused": _variant("fused_atomic", "fused_parts")},
        shapes=[{"M": 4096, "N": n} for n in (1024, 4096, 6144, 7168, 8192, 12288)],
    ),
)


def bench_variants(
    device: Device,
    questions: Sequence[Question] = QUESTIONS,
    *,
    trials: int = 24,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run `tilewise bench variants` and return its JSON: per question and shape, the best time of each side.

    `ratio` is the first side's time over the last's. A side of which no config runs is absent, and its row has no
    ratio. Nothing is stored.
    """
    rows = []
    for question in questions:
        spec = registry.load(question.kernel)
        for dims in question.shapes:
            problem = Problem(spec.name, dims, "float32")
            sides: dict[str, Mapping[str, Any]] = {}
            for name, side in question.sides.items():
                progress(f"{spec.name} {', '.join(f'{d}={n}' for d, n in dims.items())}: {name}")
                sides |= _best(device, spec, problem, name, side, trials)
            rows.append(_row(question, problem, sides))
    return {
        "device": device.target.name,
        "clock": str(device.clock),
        "toolchain": device.toolchain,
        "trials": trials,
        "rows": rows,
    }


def _row(question: Question, problem: Problem, sides: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    first, *_, last = question.sides
    row: dict[str, Any] = {
        "question": question.id,
        "kernel": question.kernel,
        "dims": dict(problem.dims),
        "dtype": problem.dtype,
        "says": question.says,
        "sides": dict(sides),
        "fastest": min(sides, key=lambda name: sides[name]["time_us"], default=None),
    }
    if question.published is not None:
        row["published_ratio"] = round(question.published, 2)
    if first in sides and last in sides:
        row["ratio"] = round(sides[first]["time_us"] / sides[last]["time_us"], 3)
    return row


def _best(
    device: Device, spec: KernelSpec, problem: Problem, name: str, side: Side, trials: int
) -> dict[str, dict[str, Any]]:
    """Return the side's best config and time, or nothing if none of its configs runs."""
    try:
        restricted = _restricted(spec, problem, device.target, name, side)
        with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{Path(folder, 'side.db')}") as store:
            result = Tuning(restricted, problem, device, store, budget=Budget(trials)).run()
    except NothingFeasible:
        return {}
    assert result.winner is not None, "a tuning without a winner raises"
    return {name: {"time_us": result.winner.time_us, "config": dict(result.winner.config)}}


def _restricted(spec: KernelSpec, problem: Problem, target: Target, name: str, side: Side) -> KernelSpec:
    """Return the spec restricted to one side's configs, with the prior's best of them as default."""
    rule = Constraint(f"belongs to {name}", lambda config, problem, target: side(config, problem))
    restricted = dataclasses.replace(spec, constraints=(*spec.constraints, rule))
    default = rank_by_prior(restricted, problem, enumerate_space(restricted, problem, target).configs, target)[0]
    return dataclasses.replace(restricted, default=lambda problem, target: default)
