"""Peak rates of matrix units, and the floor that arithmetic sets to a kernel's time.

The rates are of dense products at the boost clock, in 10**12 operations per second. 989.4 and 494.7 for the SXM parts
of the H series are from the white paper "NVIDIA H100 Tensor Core GPU Architecture", the others from NVIDIA's data
sheets (H100 Tensor Core GPU, H200 Tensor Core GPU, A100 Tensor Core GPU), which print those of the H series for sparse
matrices: twice as many. Those of Ascend are the operations of a cube core per cycle, from a public cost model of its
instructions, times cores and clock. A part under load seldom holds the boost clock, so even the best kernels stay below
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.targets import memory_gb_s

__all__ = ["Arithmetic", "arithmetic", "arithmetic_binds", "peak_tflop_s"]

_HOPPER = {"float64": 66.9, "float32": 494.7, "float16": 989.4, "float8_e4m3fn": 1978.9, "int8": 1978.9}
_HOPPER_NVL = {"float64": 60.0, "float32": 417.5, "float16": 835.0, "float8_e4m3fn": 1670.5, "int8": 1670.5}
_HOPPER_PCIE = {"float64": 51.2, "float32": 378.0, "float16": 756.0, "float8_e4m3fn": 1513.0, "int8": 1513.0}
_AMPERE = {"float64": 19.5, "float32": 156.0, "float16": 312.0, "int8": 624.0}

_PEAKS = (
    (("H100", "PCIe"), _HOPPER_PCIE),
    (("H100", "NVL"), _HOPPER_NVL),
    (("H200", "NVL"), _HOPPER_NVL),
    (("H100",), _HOPPER),
    (("H200",), _HOPPER),
    (("GH200",), _HOPPER),
    (("A100",), _AMPERE),
)
"""Rates by words of the device's name, the first match counting. float32 is multiplied as TF32."""

_CUBE_OPERATIONS = {"float16": 8192, "int8": 16384, "float32": 2048}
"""Operations of a cube core per cycle: 16 x 32 bytes x 16 products, and a quarter of those of float16 in float32."""

_SAME_RATE = {"bfloat16": "float16", "float8_e5m2": "float8_e4m3fn", "uint8": "int8"}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The least time that a problem's operations take on a device's matrix units, and the rate that it follows from."""

    floor_us: float
    peak_tflop_s: float

    def share(self, time_us: float) -> float:
        """Return the share of the peak rate that a kernel reaches in this time."""
        return self.floor_us / time_us

    def tflop_s(self, time_us: float) -> float:
        return self.peak_tflop_s * self.share(time_us)

    def text(self, time_us: float) -> str:
        """Format the rate as `640.1 TFLOP/s, 64.7% of the peak`."""
        return f"{self.tflop_s(time_us):.1f} TFLOP/s, {self.share(time_us):.1%} of the peak"


def peak_tflop_s(device: str, dtype: str) -> float | None:
    """Return the peak of the named device's matrix units for operands of this dtype; None if it is not listed."""
    if device in PARTS:
        rate = _CUBE_OPERATIONS.get(_SAME_RATE.get(dtype, dtype))
        return None if rate is None else rate * (PARTS[device].cores // 2) * PARTS[device].clock_ghz / 1e3
    words = set(device.replace("-", " ").split())
    rates = next((rates for names, rates in _PEAKS if words.issuperset(names)), {})
    return rates.get(_SAME_RATE.get(dtype, dtype))


def arithmetic(spec: KernelSpec, problem: Problem, device: str) -> Arithmetic | None:
    """Return the floor of a kernel that multiplies on matrix units; None for another, or where the peak is unknown."""
    if spec.matrix_dtype is None:
        return None
    peak = peak_tflop_s(device, spec.matrix_dtype(problem))
    return None if peak is None else Arithmetic(spec.flops(problem) / peak / 1e6, peak)


def arithmetic_binds(spec: KernelSpec, problem: Problem, device: str) -> Arithmetic | None:
    """Return the floor of a kernel's arithmetic if memory, at the rate of its data sheet, would be done earlier."""
    found, moved = arithmetic(spec, problem, device), spec.bytes(problem)
    memory_us = moved / memory_gb_s(device, moved) / 1e3
    return found if found is not None and found.floor_us > memory_us else None
