"""A roofline plot of one config: FLOP per byte against GFLOP/s. It needs the `plot` extra.

The peak is that of the matrix units for a kernel that multiplies there, else that of additions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.db.records import shape_text
from tilewise.errors import Unavailable, UsageError
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.hardware.peaks import arithmetic

__all__ = ["Roofs", "draw", "modelled_roofs"]


@dataclass(frozen=True, slots=True)
class Roofs:
    """The upper bounds of any kernel: the memory rate by source (GB/s), and additions per second (GFLOP/s)."""

    memory_gb_s: Mapping[str, float]
    vector_gflop_s: float


def modelled_roofs(device: Device) -> Roofs:
    """Return the roofs of a modelled part. Raises `UsageError` for another device, whose rates are unknown."""
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.hardware.ascend_costs import costs
    from tilewise.tuner.hardware.calibrated_costs import calibrated

    if not isinstance(device, ModelDevice):
        raise UsageError(f"--roofline needs a modelled part, such as --device model:Ascend910B4, not {device.id}")
    figures = costs(instead=calibrated(device.part.name))
    lanes = 256 / 4 / figures.repeat_cycles["vadd"]  # float32 additions per cycle
    return Roofs(
        {
            "global memory": device.part.read_gb_s * figures["read_share"],
            "L2 cache": device.part.l2_gb_s * figures["l2_share"],
        },
        device.target.cores * lanes * device.part.clock_ghz,
    )


def draw(file: Path, device: Device, spec: KernelSpec, problem: Problem, body: Mapping[str, Any]) -> None:
    """Write the plot as PNG or SVG, by the file's suffix. `body` is the JSON object of `explain`.

    Raises `UsageError` for another suffix or a device that is not modelled, and `Unavailable` without matplotlib.
    """
    if file.suffix not in (".png", ".svg"):
        raise UsageError(f"--roofline writes .png or .svg, not {file.name!r}")
    roofs = modelled_roofs(device)
    if importlib.util.find_spec("matplotlib") is None:
        raise Unavailable("--roofline needs matplotlib: pip install 'tilewise[plot]'")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "tilewise"  # makes the same plot the same file
    flops, time_us = spec.flops(problem), float(body["time_us"])
    bound = arithmetic(spec, problem, device.target.name)
    peak, made_of = (bound.peak_tflop_s * 1e3, "products") if bound else (roofs.vector_gflop_s, "additions")
    moved = body.get("traffic", {}).get("bytes", spec.bytes(problem))
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    low, high = (flops / spec.bytes(problem) * factor for factor in (1 / 30, 30))
    for name, rate in roofs.memory_gb_s.items():
        knee = peak / rate
        points = [low, min(max(knee, low), high), high]
        axes.plot(points, [min(rate * x, peak) for x in points], label=f"{name}, {rate:.0f} GB/s")
    axes.axhline(peak, linestyle=":", color="gray", label=f"{peak:.0f} GFLOP/s, {made_of}")
    achieved = flops / time_us / 1e3
    axes.plot(flops / moved, achieved, "o", color="black", label=f"this config, {time_us:.2f} us ({body['clock']})")
    axes.axvline(flops / spec.bytes(problem), linestyle="--", color="silver", label="least traffic")
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte moved", ylabel="GFLOP/s", xlim=(low, high))
    axes.set_title(f"{spec.name} {shape_text(problem.shape)} {problem.dtype} on {body['device']}")
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=120)
