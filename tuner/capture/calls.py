"""Recorded launches, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewise.db.records import Config, Value

__all__ = ["Argument", "Call", "CapturedKernel", "TensorArgument", "TritonDtype"]


@dataclass(frozen=True, slots=True)
class TritonDtype:
    """A Triton dtype passed as a constant: `tl.float32` has the name `fp32`, and is written `tl.float32`."""

    text: str


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor: shape and strides in elements, and the dtype by torch's name.

    `low` and `high` bound the values of integers and truths; None where unknown. `values` are the values themselves of
    few integers, such as lengths of sequences, of more that rise, such as their offsets, or all differ, and of truths:
    any others would be wrong. `memory` counts the elements from the first to the end of the memory where
    those of the tensor overlap: a kernel that gets such a view indexes the axis that it lacks by itself.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None
    values: tuple[int, ...] | None = None
    memory: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to the last one in memory that a kernel may use."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return max(1 + last, self.memory)

    @property
    def is_dense(self) -> bool:
        """True if the elements fill their span, in whatever order of the axes."""
        return self.span == self.elements

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "strides": list(self.strides), "dtype": self.dtype}

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape)) or "scalar"
        return f"{self.dtype} {sizes}"


Argument = TensorArgument | TritonDtype | Value | None


@dataclass(frozen=True)
class Call:
    """One launch: the arguments that the program passed, by name.

    `configs` are those that the autotuner would have tried, constants and compile options in one, and `grids` and
    `computed` the grid and the constants from `triton.heuristics` with each of them. A kernel without an autotuner has
    one config without values.
    """

    arguments: Mapping[str, Argument]
    configs: tuple[Config, ...]
    grids: tuple[tuple[int, ...], ...]
    computed: tuple[Mapping[str, Value], ...]

    @property
    def tensors(self) -> dict[str, TensorArgument]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, TensorArgument)}

    def to_json(self) -> dict[str, Any]:
        arguments = {name: _json(value) for name, value in self.arguments.items()}
        return {"arguments": arguments, "grid": list(self.grids[0])}

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {v}" if isinstance(v, TensorArgument) else f"{name}={_json(v)}"
            for name, v in self.arguments.items()
        )


def _json(value: Argument) -> Any:
    if isinstance(value, TensorArgument):
        return value.to_json()
    return value.text if isinstance(value, TritonDtype) else value


@dataclass
class CapturedKernel:
    """A kernel and its launches; `counts` says how often each was made.

    `nesting` is its name behind those of the functions around it, `outer.inner`, the name alone at the top level.
    `imported` are the names that the program sets in the kernel's file, each with its place, as in a `KernelSpec`.
    `obstacles` are one-line reasons why no spec can be made of it, `left_out` those why some launches could not be
    read, `not_interpreted` why what a launch stores was not computed although a program may need it.
    """

    name: str
    file: Path
    parameters: tuple[str, ...]
    constants: frozenset[str]
    key: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    imported: Mapping[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    nesting: str = ""
    not_interpreted: str = ""

    def __post_init__(self) -> None:
        self.nesting = self.nesting or self.name

    def add(self, call: Call) -> None:
        """Add a launch, or count it if it was made before."""
        if call in self.calls:
            self.counts[self.calls.index(call)] += 1
        else:
            self.calls.append(call)
            self.counts.append(1)

    @property
    def configs(self) -> list[Config]:
        """Every config of any call, once, in the order of the program."""
        found: list[Config] = []
        for call in self.calls:
            found += [config for config in call.configs if config not in found]
        return found

    @property
    def options(self) -> frozenset[str]:
        """The names in the configs that are compile options."""
        return frozenset(name for config in self.configs for name in config) - frozenset(self.parameters)

    def to_json(self) -> dict[str, Any]:
        calls = [{**call.to_json(), "count": count} for call, count in zip(self.calls, self.counts, strict=True)]
        body = {"kernel": self.name, "file": str(self.file), "configs": [dict(config) for config in self.configs]}
        return {**body, "key": list(self.key), "calls": calls, "obstacles": self.obstacles, "left_out": self.left_out}
