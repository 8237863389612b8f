"""Rungs: the sizes of one dimension for which a table of configs has an entry each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.db.records import Shape
from tilewise.errors import BadDimension, UsageError
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.space.problem_checks import LARGEST

__all__ = ["Rungs", "parse_rungs"]

_LADDERS: Mapping[str, tuple[int, ...]] = {"vllm": LADDER, "sglang": LADDER}
"""The sizes of a project's tables, all of the dimension `M` unless the user names another."""

_LADDERLESS = {"fla": "flash-linear-attention looks for exact keys"}
"""Projects that read configs of single problems, and why they have no sizes of their own."""

_EXAMPLE = "M=1,2,4,8"


@dataclass(frozen=True, slots=True)
class Rungs:
    """Sizes of the dimension `dim`, in ascending order."""

    dim: str
    sizes: tuple[int, ...]

    def shapes(self, shape: Shape) -> list[Shape]:
        """Return the shape with each of the sizes. Raises `BadDimension` if the shape gives the dimension itself."""
        if self.dim in shape:
            raise BadDimension(
                f"dimension {self.dim} is given in the shape and in the rungs; leave {self.dim}={shape[self.dim]} out"
            )
        return [{**shape, self.dim: size} for size in self.sizes]

    def check(self, spec: KernelSpec) -> None:
        """Raise `BadDimension` if the kernel has no such dimension."""
        if self.dim not in spec.dims:
            raise BadDimension(
                f"kernel {spec.name} has no dimension {self.dim} for the rungs; it has {', '.join(spec.dims)}: "
                f"name one, as in --rungs {spec.dims[0]}=1,2,4,8 or --rungs {spec.dims[0]}=vllm"
            )


def parse_rungs(text: str) -> Rungs:
    """Parse `vllm`, `M=1,2,4,8` or `ROWS=vllm`. Raises `UsageError`, for sizes `BadDimension`."""
    dim, equals, given = (part.strip() for part in text.partition("="))
    if equals and dim and re.match("[-0-9]|$", given):
        return Rungs(dim, _sizes(dim, given))
    table = given if equals else dim
    if table in _LADDERLESS:
        raise UsageError(
            f"tables of {table} have no sizes of their own: {_LADDERLESS[table]}; "
            f"list those you need, as in --rungs {_EXAMPLE}"
        )
    if table not in _LADDERS:
        raise UsageError(
            f"unknown table {_cut(table)!r}; expected {', '.join(_LADDERS)}, or a dimension and its sizes, as in "
            f"--rungs {_EXAMPLE}"
        )
    return Rungs(dim if equals else "M", _LADDERS[table])


def _sizes(dim: str, text: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for word in (part.strip() for part in text.split(",")):
        size = int(word) if re.fullmatch("[0-9]{1,10}", word) else 0
        if not 1 <= size <= LARGEST:
            raise BadDimension(f"rung {_cut(word)!r} of {dim} is no size; expected whole numbers from 1 to {LARGEST}")
        if size in sizes:
            raise BadDimension(f"rung {dim}={size} is given twice")
        sizes.append(size)
    return tuple(sorted(sizes))


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
