"""Problems from what a user typed, checked against the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from tilewise.db.records import Question, Scope
from tilewise.errors import BadConfig, BadDimension, UnknownDtype
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec, Problem, Value
from tilewise.tuner.devices.base import Device

__all__ = [
    "check_memory",
    "make_problem",
    "nearest",
    "parse_config",
    "parse_dims",
    "question",
    "scope",
    "sizes_text",
]

LARGEST = 2**31 - 1
"""Kernels take sizes as 32-bit integers."""


def parse_dims(text: str) -> dict[str, int]:
    """`M=1000,N=8192` as sizes by name. Raises `BadDimension`."""
    dims: dict[str, int] = {}
    for item in text.split(","):
        name, equals, number = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise BadDimension(f"cannot read {item.strip()!r} as a dimension; write for example M=1000,N=8192")
        if name in dims:
            raise BadDimension(f"dimension {name} is given twice")
        if not re.fullmatch("-?[0-9]{1,20}", number):
            raise BadDimension(f"dimension {name} is {_cut(number)!r}; expected a whole number from 1 to {LARGEST}")
        dims[name] = int(number)
    return dims


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def make_problem(spec: KernelSpec, dims: Mapping[str, int], dtype: str) -> Problem:
    """Raises `BadDimension` for missing, unknown or impossible dimensions, `UnknownDtype` for a dtype not taken."""
    wanted = ", ".join(spec.dims)
    if not isinstance(dims, Mapping):
        raise BadDimension(f"the dimensions are {dims!r:.60}; expected the size of each of {wanted} by name")
    if unknown := [name for name in dims if name not in spec.dims]:
        raise BadDimension(f"kernel {spec.name} has no dimension {', '.join(unknown)}; it has {wanted}")
    if missing := [name for name in spec.dims if name not in dims]:
        raise BadDimension(f"kernel {spec.name} needs {wanted}; {', '.join(missing)} is missing")
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise BadDimension(f"dimension {name} is {size}; expected a whole number from 1 to {LARGEST}")
    if dtype not in spec.dtypes:
        raise UnknownDtype(f"kernel {spec.name} takes no {dtype!r}; it takes {', '.join(spec.dtypes)}")
    return Problem(spec.name, {name: dims[name] for name in spec.dims}, dtype)


def check_memory(spec: KernelSpec, problem: Problem, device: Device) -> None:
    """Raises `BadDimension` where the problem's buffers cannot be in the device's memory."""
    needed = sum(buffer.bytes for buffer in spec.buffers(problem).values())
    if needed > device.memory_bytes():
        free = device.memory_bytes() / 2**30
        wanted = f"{sizes_text(problem.dims)} needs {needed / 2**30:.1f} GiB of buffers"
        raise BadDimension(f"{wanted}; {device.target.name} takes {free:.0f} GiB")


def parse_config(text: str) -> dict[str, Value]:
    """`BLOCK_SIZE_M=25,multibuffer=True` as values by name. Raises `BadConfig`."""
    config: dict[str, Value] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name or not value:
            raise BadConfig(
                f"cannot read {item.strip()!r} as a parameter; write for example BLOCK_SIZE_M=25,BLOCK_SIZE_N=256"
            )
        if name in config:
            raise BadConfig(f"parameter {name} is given twice")
        config[name] = _value(value)
    return config


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def scope(spec: KernelSpec, problem: Problem, device: Device) -> Scope:
    """What this device's trials of the problem are stored under."""
    return Scope(
        kernel=spec.name,
        source_hash=source_hash(spec),
        dims=dict(problem.dims),
        dtype=problem.dtype,
        device=device.target.name,
        clock=device.clock,
        toolchain=device.toolchain,
        cores=device.target.cores,
    )


def question(problem: Problem, device: str) -> Question:
    return Question(problem.kernel, dict(problem.dims), problem.dtype, device)


def nearest(problem: Problem, shapes: Sequence[Mapping[str, int]], most: int = 5) -> list[Mapping[str, int]]:
    """The closest of other shapes: by the sum of the dimensions' log ratios."""

    def distance(dims: Mapping[str, int]) -> float:
        return sum(abs(math.log(dims[name] / size)) for name, size in problem.dims.items())

    return sorted((dims for dims in shapes if dims.keys() == problem.dims.keys()), key=distance)[:most]


def sizes_text(dims: Mapping[str, int]) -> str:
    """`M=1000,N=8192`, as `parse_dims` reads it."""
    return ",".join(f"{name}={size}" for name, size in dims.items())
