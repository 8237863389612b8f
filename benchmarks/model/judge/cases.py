"""The published timings: cases of one kernel at one shape on one part, each with the times of its configs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tilewise.db.records import L2State
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.space.problem_checks import make_problem

__all__ = ["Case", "Row", "published_cases"]


@dataclass(frozen=True, slots=True)
class Row:
    """One config, and its published time in microseconds or the reason why it did not run; neither for one of several
    configs of which only the fastest one's time is published."""

    config: Config
    us: float | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one shape. `best_us` is the time of the fastest config, if only that is published.

    Cases of the same `family` are left out together: they are the same kernel. `micro` cases are written in Ascend C,
    and `transfers_only` marks those that compute nothing, so their twins' vector work is dropped before timing.
    `beside` names the case whose published times this one is shown beside: another program for the same problem.
    `more` names kernels of another library whose times the published one holds too. With `all_blocks_parallel` it was
    compiled under TRITON_ALL_BLOCKS_PARALLEL.
    """

    id: str
    family: str
    kernel: str
    operator: str
    problem: Problem
    part: str
    l2: L2State
    source: str
    rows: Sequence[Row]
    best_us: float | None = None
    micro: bool = False
    transfers_only: bool = False
    beside: str = ""
    more: str = ""
    all_blocks_parallel: bool = False

    def spec(self) -> KernelSpec:
        """Return the registered kernel, or the one that exists only for its published timings."""
        return _load(self.kernel)


def published_cases(package: str = "tilewise.benchmarks.model.judge") -> list[Case]:
    """Return the cases of a package's `published.json`."""
    body = json.loads(files(package).joinpath("published.json").read_text())
    return [_case(entry) for entry in body["cases"]]


def _case(entry: dict[str, Any]) -> Case:
    rows = [Row(row["config"], row.get("us"), row.get("failure", "")) for row in entry.get("rows", ())]
    return Case(
        id=entry["id"],
        family=entry.get("kernel_of") or entry.get("beside") or entry["id"],
        kernel=entry["kernel"],
        operator=entry["operator"],
        problem=make_problem(_load(entry["kernel"]), entry["dims"], entry["dtype"]),
        part=entry["part"],
        l2=L2State(entry["l2"]),
        source=entry["source"],
        rows=rows or [Row(config) for config in entry["best_of"]],
        best_us=entry.get("best_us"),
        micro=entry.get("micro", False),
        transfers_only=entry.get("transfers_only", False),
        beside=entry.get("beside", ""),
        more=entry.get("more", ""),
        all_blocks_parallel=entry.get("all_blocks_parallel", False),
    )


def _load(kernel: str) -> KernelSpec:
    module, colon, attribute = kernel.partition(":")
    if not colon:
        return registry.load(kernel)
    spec: KernelSpec = getattr(importlib.import_module(module), attribute)
    return spec
