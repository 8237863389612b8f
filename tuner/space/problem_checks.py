"""Problems and configs parsed from text, and problems checked against the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tilewise.db.records import Shape
from tilewise.errors import BadConfig, BadDimension, UnknownDtype
from tilewise.kernels.spec import Config, KernelSpec, Problem, Value

__all__ = ["LARGEST", "config_text", "make_problem", "parse_config", "parse_dims", "shape_distance"]

LARGEST = 2**31 - 1
"""The largest dimension: kernels take dimensions as 32-bit integers."""


def parse_dims(text: str) -> dict[str, int]:
    """Parse `M=1000,N=8192` into dimensions by name. Raises `BadDimension`."""
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
    """Return the problem, with its dimensions in the kernel's order.

    Raises `BadDimension` for missing, unknown or invalid dimensions, `UnknownDtype` for an unsupported dtype.
    """
    wanted = ", ".join(spec.dims)
    if not isinstance(dims, Mapping):
        raise BadDimension(f"the dimensions are {dims!r:.60}; expected a mapping with the size of {wanted}")
    if unknown := [name for name in dims if name not in spec.dims]:
        raise BadDimension(f"kernel {spec.name} has no dimension {', '.join(unknown)}; it has {wanted}")
    if missing := [name for name in spec.dims if name not in dims]:
        raise BadDimension(f"kernel {spec.name} needs {wanted}; {', '.join(missing)} is missing")
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise BadDimension(f"dimension {name} is {size}; expected a whole number from 1 to {LARGEST}")
    if dtype not in spec.dtypes:
        raise UnknownDtype(f"kernel {spec.name} does not take {dtype!r}; it takes {', '.join(spec.dtypes)}")
    return Problem(spec.name, {name: int(dims[name]) for name in spec.dims}, dtype)


def parse_config(text: str) -> dict[str, Value]:
    """Parse `BLOCK_SIZE_M=25,multibuffer=True` into values by name. Raises `BadConfig`."""
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
    """Return the sum over dimensions of the log ratios of two shapes; a dimension twice as large counts log 2."""
    return sum(abs(math.log(one[name] / other[name])) for name in one)


def config_text(config: Config) -> str:
    """Return `BLOCK_SIZE_M=25, multibuffer=True`, which `parse_config` reads."""
    return ", ".join(f"{name}={value}" for name, value in config.items())
