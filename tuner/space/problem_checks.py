"""Problems and configs parsed from text, and problems checked against the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tilewise.db.records import OBJECTIVE, Shape
from tilewise.errors import BadConfig, BadDimension, UnknownDtype
from tilewise.kernels.spec import WORD, Config, KernelSpec, Problem, Value

__all__ = [
    "LARGEST",
    "checked_flags",
    "config_text",
    "make_problem",
    "parse_config",
    "parse_dims",
    "parse_flag",
    "shape_distance",
]

LARGEST = 2**31 - 1
"""The largest dimension: kernels take dimensions as 32-bit integers."""


def parse_dims(text: str) -> dict[str, int | bool | str]:
    """Parse `M=1000,N=8192,causal=true` into dimensions and flags by name. Raises `BadDimension`."""
    shape: dict[str, int | bool | str] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise BadDimension(f"cannot read {item.strip()!r} as a dimension; write for example M=1000,N=8192")
        if name in shape:
            raise BadDimension(f"dimension {name} is given twice")
        if re.fullmatch("-?[0-9]{1,20}", value):
            shape[name] = int(value)
        elif (flag := parse_flag(value)) is not None:
            shape[name] = flag
        else:
            raise BadDimension(f"dimension {name} is {_cut(value)!r}; expected a whole number from 1 to {LARGEST}")
    return shape


def parse_flag(text: str) -> bool | str | None:
    """Return a flag's value: true, false or a word that begins with a letter; None for any other text."""
    if (truth := _truth(text)) is not None:
        return truth
    return text if WORD.fullmatch(text) else None


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def make_problem(spec: KernelSpec, dims: Shape, dtype: str) -> Problem:
    """Return the problem, with its dimensions in the kernel's order, and without flags that have their default.

    Raises `BadDimension` for missing, unknown or invalid dimensions and flags, `UnknownDtype` for an unsupported dtype.
    """
    flags = [flag.name for flag in spec.flags]
    objective = {OBJECTIVE: spec.objective} if spec.objective else {}
    wanted = ", ".join(spec.dims)
    if not isinstance(dims, Mapping):
        raise BadDimension(f"the dimensions are {dims!r:.60}; expected a mapping with the size of {wanted}")
    if unknown := [name for name in dims if name not in {*spec.dims, *flags, *objective}]:
        more = f", and the flags {', '.join(flags)}" if flags else ""
        raise BadDimension(f"kernel {spec.name} has no dimension {', '.join(unknown)}; it has {wanted}{more}")
    if missing := [name for name in spec.dims if name not in dims]:
        raise BadDimension(f"kernel {spec.name} needs {wanted}; {', '.join(missing)} is missing")
    for name in spec.dims:
        size = dims[name]
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
            raise BadDimension(f"dimension {name} is {_quoted(size)}; expected a whole number from 1 to {LARGEST}")
    given = checked_flags(spec, {name: dims[name] for name in flags if name in dims})
    if dtype not in spec.dtypes:
        raise UnknownDtype(f"kernel {spec.name} does not take {dtype!r}; it takes {', '.join(spec.dtypes)}")
    if objective and (other := dims.get(OBJECTIVE, spec.objective)) != spec.objective:
        raise BadDimension(f"kernel {spec.name} ranks configs by {spec.objective}, not by {_shown(other)}")
    return Problem(spec.name, {name: int(dims[name]) for name in spec.dims}, dtype, given | objective)


def checked_flags(spec: KernelSpec, given: Shape) -> dict[str, bool | str]:
    """Return the flags in the spec's order, without those that have their default. Raises `BadDimension`."""
    if unknown := sorted(given.keys() - {flag.name for flag in spec.flags}):
        known = ", ".join(flag.name for flag in spec.flags) or "none"
        raise BadDimension(f"kernel {spec.name} has no flag {', '.join(unknown)}; it has {known}")
    for flag in spec.flags:
        value = given.get(flag.name, flag.values[0])
        if not any(value == allowed and type(value) is type(allowed) for allowed in flag.values):
            either = ", ".join(map(_shown, flag.values))
            raise BadDimension(f"flag {flag.name} is {_shown(value)}; expected one of {either}")
    problem = Problem.of(spec.name, given, "")
    return {flag.name: flag.of(problem) for flag in spec.flags if flag.of(problem) != flag.values[0]}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else _quoted(value)


def _quoted(value: object) -> str:
    return repr(_cut(value)) if isinstance(value, str) else _cut(str(value))


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
    if (truth := _truth(text)) is not None:
        return truth
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
