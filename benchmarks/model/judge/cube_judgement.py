"""`tilewise bench cube`: modelled times of kernels with matrix products against those that others measured."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.benchmarks.model.judge.cube_cases import CubeCase, cube_cases
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES, cube_fingerprint
from tilewise.tuner.hardware.figure import Figure

__all__ = ["bench_cube", "judged", "summary"]


def bench_cube(*, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Time every published kernel whose program is known, and return the JSON.

    Raises `Unavailable` if the Ascend toolchain is not installed.
    """
    if reason := toolchain.unavailable_reason():
        raise Unavailable(f"bench cube {reason}")
    folder, rows = read_settings().cache_folder, []
    for case in cube_cases():
        progress(case.name)
        rows.append(judged(case, folder))
    return {
        "command": "tilewise bench cube --json",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "clock": "modelled",
        "toolchain": f"{toolchain.fingerprint()}, cube {cube_fingerprint()}",
        "rows": rows,
        "summary": summary(rows),
    }


def judged(case: CubeCase, folder: Path) -> dict[str, Any]:
    """Return the row of one case: the published time and the modelled one, the fastest of several configs.

    Figures that were fitted to the case are where they were before, at an end of their range.
    """
    spec = registry.load(case.kernel)
    instead = {name: _at(getattr(CUBE_FIGURES[name], end), CUBE_FIGURES[name]) for name, end in case.fitted.items()}
    times = [found for config in case.configs if (found := _time(spec, case, config, folder, instead))]
    modelled_us, pipes = min(times)
    modelled_us *= case.busiest
    return {
        "name": case.name,
        "source": case.source,
        "kind": case.kind,
        "part": case.part,
        "problem": str(case.problem),
        "tiles": [_tile(config) for config in case.configs],
        "l2": str(case.l2),
        "published_us": case.published_us,
        "modelled_us": round(modelled_us, 2),
        "ln_error": round(math.log(modelled_us / case.published_us), 4),
        "busy": dict(pipes),
        "published_busy": dict(case.busy),
    }


def _tile(config: Config) -> list[int]:
    return [int(value) for name, value in config.items() if name.startswith("BLOCK_")]


def _time(
    spec: KernelSpec, case: CubeCase, config: Config, folder: Path, instead: Mapping[str, Figure]
) -> tuple[float, list[tuple[str, float]]] | None:
    """Return a config's time in microseconds and the busy share of each pipe; None if it does not compile."""
    target = toolchain.target(case.part, folder)
    _, machines = model_config(spec, case.problem, config, target, folder, l2=case.l2)
    if machines is None:
        return None
    timed = machines.time_at(costs(instead=instead))
    return timed.time_us, [(pipe, round(busy / timed.time_us, 3)) for pipe, busy in timed.pipes_us.items()]


def _at(value: float, figure: Figure) -> Figure:
    return Figure(value, value, value, figure.unit, figure.source)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean error |ln(modelled / published)| by kind, and of the large products by source."""
    large = [row for row in rows if row["kind"] == "large"]
    groups = {kind: [row for row in rows if row["kind"] == kind] for kind in dict.fromkeys(row["kind"] for row in rows)}
    groups |= {f"large, {source}": [row for row in large if row["source"] == source] for source in _sources(large)}
    return {
        name: {
            "timings": len(found),
            "mean_ln_error": round(sum(abs(row["ln_error"]) for row in found) / len(found), 4),
        }
        for name, found in groups.items()
    }


def _sources(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["source"] for row in rows))
