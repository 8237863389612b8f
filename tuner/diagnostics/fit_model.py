"""The fit of the model's figures to a chip, from micro-kernels timed on the chip and by the model.

Both time the same compiled code. The fit is least squares in logarithms. Each probe's ratio of modelled to measured
time is weighted by how well it was measured, and each figure's ratio to its shipped value by that value's range. A
figure that the probes say nothing about keeps its value; the range of one that they do determine shrinks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewise.db.records import L2State
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.model_config import Machines, model_config
from tilewise.tuner.devices.base import Device
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Costs, Figure, costs
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES
from tilewise.tuner.measure.outcome import Timing

if TYPE_CHECKING:
    from tilewise.tuner.diagnostics.micro_kernels import Probe

__all__ = ["FITTED", "FITTED_CUBE", "Fit", "Measured", "Parameter", "fit", "parameters", "time_probes"]

Vector = NDArray[np.float64]

FITTED = (
    "launch_us",
    "launch_48_us",
    "cold_us",
    "dispatch_us",
    "program_start",
    "l2_latency_ns",
    "hbm_latency_ns",
    "mte2_start",
    "transfer_row",
    "row_bytes",
    "misaligned_line",
    "l2_read_bytes",
    "l2_write_bytes",
    "l2_share",
    "read_share",
    "mixed_share",
    "shared_line_us",
    "atomic_us",
    "vector_dispatch",
    "bank_conflict",
)
"""Figures of launches and transfers that are fitted, in addition to the costs of operations."""

FITTED_CUBE = (
    "mad_fractal",
    "l0a_bytes",
    "l0b_bytes",
    "mte1_start",
    "cube_read_bytes",
    "nd2nz_row",
    "nd2nz_row_bytes",
    "far_row_ns",
    "fix_bytes",
    "mixed_launch_us",
)
"""Figures of cube cores that are fitted. Products in float32, loops over elements and flags between cores have no
probe."""

_OPERATIONS = ("vadd", "vexp", "vdiv", "vcast")
"""One operation of each class whose cost the probes show; the other operations of its class cost the same."""

_ITERATIONS, _STEP, _CLOSE = 12, 0.02, 1e-4
_LEAST_NOISE = 0.02
"""Smallest relative error assumed for a probe: errors other than noise, such as effects that the model omits."""

_P20_TO_P80 = 1.683
"""Standard deviations from the 20th to the 80th percentile of a normal distribution."""

_LEAST_PRIOR = 0.05
"""Smallest prior standard deviation of a figure, in logarithms, even if its shipped range is a single point."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A probe: its time on the chip with the relative standard deviation, and its modelled time at given costs."""

    name: str
    time_us: float
    noise: float
    modelled: Callable[[Costs], float]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted value, and the names of the figures that share it."""

    names: tuple[str, ...]
    shipped: Figure

    @property
    def spread(self) -> float:
        """Return the prior standard deviation of the logarithm: half the width of the shipped range."""
        least = max(self.shipped.low, self.shipped.value / 4)  # low may be 0, which has no logarithm
        return max(_LEAST_PRIOR, float(np.log(self.shipped.high / least)) / 2)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit. `determined` names the figures that the probes narrow to less than half the prior spread."""

    figures: Mapping[str, Figure]
    determined: frozenset[str]
    rows: Sequence[Mapping[str, Any]]

    def error(self, which: str) -> float:
        """Return the mean absolute relative error of the modelled times with the `shipped` or the `fitted` figures."""
        return statistics.fmean(abs(row[f"{which}_us"] / row["measured_us"] - 1) for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        shipped = {**FIGURES, **CUBE_FIGURES, **REPEAT_CYCLES}
        return {
            "probes": [dict(row) for row in self.rows],
            "figures": [
                {
                    "name": name,
                    "shipped": shipped[name].value,
                    "fitted": round(figure.value, 6),
                    "low": round(figure.low, 6),
                    "high": round(figure.high, 6),
                    "unit": figure.unit,
                    "determined": name in self.determined,
                }
                for name, figure in self.figures.items()
            ],
            "mean_error": {which: round(self.error(which), 4) for which in ("shipped", "fitted")},
        }


def parameters(names: Sequence[str] = (*FITTED, *FITTED_CUBE, *_OPERATIONS)) -> list[Parameter]:
    """Return the parameters of these figures. An operation brings in all operations that cost the same."""
    found, single = [], {**FIGURES, **CUBE_FIGURES}
    for name in names:
        if name in single:
            found.append(Parameter((name,), single[name]))
        else:
            alike = tuple(other for other, figure in REPEAT_CYCLES.items() if figure == REPEAT_CYCLES[name])
            found.append(Parameter(alike, REPEAT_CYCLES[name]))
    return found


def fit(probes: Sequence[Measured], sought: Sequence[Parameter], source: str) -> Fit:
    """Fit with Gauss-Newton steps, each shortened until it helps. `source` becomes the source of the fitted figures."""
    weights = np.array([1 / max(_LEAST_NOISE, probe.noise) for probe in probes])
    priors = np.array([1 / parameter.spread for parameter in sought])
    measured = np.log([probe.time_us for probe in probes])

    def off(x: Vector) -> Vector:
        chosen = costs(instead=_figures(sought, x))
        found: Vector = weights * (np.log([probe.modelled(chosen) for probe in probes]) - measured)
        return found

    def loss(residuals: Vector, x: Vector) -> float:
        return float(residuals @ residuals + (priors * x) @ (priors * x))

    x, step = np.zeros(len(sought)), np.zeros(len(sought))
    start = residuals = off(x)
    slopes, curvature = _slopes(off, x, residuals), np.eye(len(sought))
    for _ in range(_ITERATIONS):
        curvature = slopes.T @ slopes + np.diag(priors**2)
        step = np.linalg.solve(curvature, -(slopes.T @ residuals + priors**2 * x))
        while loss(tried := off(x + step), x + step) > loss(residuals, x) and np.abs(step).max() > _CLOSE:
            step = step / 2
        if np.abs(step).max() <= _CLOSE:
            break
        x, residuals = x + step, tried
        slopes = _slopes(off, x, residuals)
    deviations = np.sqrt(np.diag(np.linalg.inv(curvature)))
    rows = [
        {
            "name": probe.name,
            "measured_us": probe.time_us,
            "shipped_us": round(float(probe.time_us * np.exp(before / weight)), 4),
            "fitted_us": round(float(probe.time_us * np.exp(after / weight)), 4),
        }
        for probe, weight, before, after in zip(probes, weights, start, residuals, strict=True)
    ]
    narrowed = [d < p.spread / 2 for d, p in zip(deviations, sought, strict=True)]
    determined = frozenset(name for p, known in zip(sought, narrowed, strict=True) if known for name in p.names)
    return Fit(_with_ranges(sought, x, deviations, source), determined, rows)


def _slopes(off: Callable[[Vector], Vector], x: Vector, residuals: Vector) -> Vector:
    """Return the finite-difference Jacobian, one column per parameter."""
    columns = [(off(x + _STEP * unit) - residuals) / _STEP for unit in np.eye(len(x))]
    return np.array(columns).T


def _figures(sought: Sequence[Parameter], x: Vector) -> dict[str, Figure]:
    return {
        name: replace(parameter.shipped, value=parameter.shipped.value * float(np.exp(change)))
        for parameter, change in zip(sought, x, strict=True)
        for name in parameter.names
    }


def _with_ranges(sought: Sequence[Parameter], x: Vector, deviations: Vector, source: str) -> dict[str, Figure]:
    """Return the fitted figures, each with a range of two standard deviations on either side."""
    made: dict[str, Figure] = {}
    for parameter, change, deviation in zip(sought, x, deviations, strict=True):
        value = parameter.shipped.value * float(np.exp(change))
        reach = float(np.exp(2 * deviation))
        made |= dict.fromkeys(
            parameter.names, Figure(value, value / reach, value * reach, parameter.shipped.unit, source)
        )
    return made


def time_probes(
    device: Device, probes: Sequence[Probe], done: Callable[[str], None] = lambda name: None
) -> tuple[list[Measured], list[dict[str, str]]]:
    """Time each probe on the device and compile it for the model of its part; return the timed and the failed probes.

    The device empties its cache before each run, and so does the model. Each failed probe has its reason. `done` is
    called with each probe's name. Raises `Unavailable` if the part is not modelled or no probe ran.
    """
    target, folder = _target(device), read_settings().cache_folder
    timed: list[Measured] = []
    failed: list[dict[str, str]] = []
    for probe in probes:
        (outcome,) = device.evaluate(probe.spec, probe.problem, [probe.config])
        modelled, machines = model_config(probe.spec, probe.problem, probe.config, target, folder, l2=L2State.COLD)
        if outcome.timing is None or machines is None:
            failed.append({"name": probe.name, "reason": outcome.reason or modelled.reason})
        else:
            timed.append(_measured(probe.name, outcome.timing, machines))
        done(probe.name)
    if not timed:
        raise Unavailable(f"no probe ran on {device.id}; the first failed with: {failed[0]['reason']}")
    return timed, failed


def _target(device: Device) -> Target:
    """Return the compiler's description of the device's part, with the number of cores that this process may use.

    Raises `Unavailable` without the compiler, or if the part is not modelled.
    """
    if reason := toolchain.unavailable_reason():
        raise Unavailable(f"calibrate {reason}")
    if device.target.name not in PARTS:
        raise Unavailable(
            f"{device.target.name} is not modelled, so it cannot be calibrated; modelled parts: {', '.join(PARTS)}"
        )
    return replace(toolchain.target(device.target.name, read_settings().cache_folder), cores=device.target.cores)


def _measured(name: str, timing: Timing, machines: Machines) -> Measured:
    noise = 0.0
    if timing.p20_us is not None and timing.p80_us is not None:  # a median's: 1.25 deviations / sqrt(samples)
        deviation = (timing.p80_us - timing.p20_us) / _P20_TO_P80
        noise = 1.25 * deviation / timing.time_us / timing.samples**0.5
    return Measured(name, timing.time_us, noise, lambda chosen: machines.time_at(chosen).time_us)
