"""Problems from what a user typed, checked against the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tilewise.db.records import Shape
from tilewise.errors import BadConfig, BadDimension, UnknownDtype
from tilewise.kernels.spec import Config, KernelSpec, Problem, Value

__all__ = ["LARGEST", "config_text", "make_problem", "parse_config", "parse_dims", "shape_distance"]

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


def make_problem(spec: KernelSpec, dims: Shape, dtype: str) -> Problem:
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
    return Problem(spec.name, {name: int(dims[name]) for name in spec.dims}, dtype)


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


def shape_distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """How far two shapes are apart: the sum over dimensions of their log ratios; log 2 where one is twice as large."""
    return sum(abs(math.log(one[name] / other[name])) for name in one)


def config_text(config: Config) -> str:
    """`BLOCK_SIZE_M=25, multibuffer=True`, as `parse_config` reads it."""
    return ", ".join(f"{name}={value}" for name, value in config.items())
