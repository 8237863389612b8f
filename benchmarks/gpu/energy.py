"""`tilewise bench energy`: configs that take the least energy beside those that take the least time, on an NVIDIA GPU.

Each problem is tuned for both. Then the two winners and the default are measured again and again, in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.db.records import ENERGY, Config, Result, metrics_among
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.tuning.tune import tune

__all__ = ["CASES", "bench_energy"]

_SPECS = Path(__file__).with_name("energy_specs.py")

CASES = {
    "row_reduce": (f"{_SPECS}:ROW_REDUCE", {"M": 16384, "N": 8192}, "float32"),
    "gemm": (f"{_SPECS}:GEMM", {"M": 4096, "N": 4096, "K": 4096}, "bfloat16"),
}
"""The spec, the shape and the dtype of each kernel: one bound by memory, one by arithmetic."""


def bench_energy(
    trials: int,
    rounds: int,
    progress: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Run the benchmark and return its JSON. Raises `Unavailable` if the GPU does not measure energy.

    `keep` gets the JSON after each problem: a run takes minutes, and one that is cut off has those before.
    """
    command = f"tilewise bench energy --trials {trials} --rounds {rounds}"
    rows: list[dict[str, Any]] = []
    with CudaDevice() as device:
        if not device.measures_energy:
            raise Unavailable(f"{device.id} does not measure energy")
        about = {**header(command, "measured", device.target.name), "toolchain": device.toolchain}
        for name, (text, dims, dtype) in CASES.items():
            spec = registry.load(text)
            problem = make_problem(spec, dims, dtype)
            results = {}
            for words, ranked in (("time", registry.load(name)), ("energy", spec)):
                progress(f"{name}, by {words}")
                with open_store("sqlite://") as store:
                    results[words] = tune(ranked, dims, dtype, device=device, trials=trials, db=store)
            progress(f"{name}, in turns")
            rows.append(
                {**problem.to_json(), "tunings": {k: _tuned(r) for k, r in results.items()}}
                | {"in_turns": _in_turns(device, spec, problem, results, rounds)}
            )
            keep({**about, "rows": rows})
        return {**about, "rows": rows}


def _tuned(result: Result) -> dict[str, Any]:
    assert result.winner is not None, "a tuning without a winner raises"
    found = {"trials": sum(result.counts.values()), "seconds": round(result.seconds, 1)}
    return {**found, "config": dict(result.winner.config)}


def _in_turns(
    device: CudaDevice, spec: KernelSpec, problem: Problem, results: dict[str, Result], rounds: int
) -> list[dict[str, Any]]:
    """Measure the winners and the default once in each round; a config that has several parts is measured once."""
    parts: dict[str, Config] = {
        f"least {name}": result.winner.config for name, result in results.items() if result.winner is not None
    }
    parts["default"] = spec.default(problem, device.target)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, config in parts.items():
            found[name] += _measured(device, spec, problem, config)
    return [{"config": name, **_spread(figures)} for name, figures in found.items() if figures]


def _measured(device: CudaDevice, spec: KernelSpec, problem: Problem, config: Config) -> list[tuple[float, float]]:
    """Return the time and the energy of a launch; nothing if it failed."""
    outcomes = device.evaluate(spec, problem, [config])
    known = [(o.timing, metrics_among(o.facts).get(ENERGY)) for o in outcomes]
    return [(timing.time_us, energy) for timing, energy in known if timing is not None and energy is not None]


def _spread(figures: Sequence[tuple[float, float]]) -> dict[str, float]:
    times, energies = zip(*figures, strict=True)
    return {
        "measurements": len(figures),
        "time_us": round(statistics.median(times), 3),
        ENERGY: round(statistics.median(energies), 1),
        "lowest_uj": round(min(energies), 1),
        "highest_uj": round(max(energies), 1),
    }
