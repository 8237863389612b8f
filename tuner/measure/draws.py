"""The ways to draw a problem's inputs for verification. Each exposes kernels that are right on other data only.

| way | floats | exposes |
|---|---|---|
| `NORMAL` | standard normal | most mistakes |
| `NEGATIVE` | all negative | a maximum that starts from 0, padding with 0, a result kept from an earlier run |
| `LARGE` | normal, times 100 | an exponential without its maximum, squares that cancel |
| `PEAKS` | about -17, and one 200 per row at an edge | an edge left out of a maximum, a softmax or a sum of sigmoids |
| `TROUGHS` | about 17, and one -200 per row at an edge | the same for minima |
| `SPARSE` | about 0, and one 200 per row at an edge | an edge left out of a sum too long for 16 bits to show it |
| `ACROSS` | about 0, and one 200 per column at an edge | the same along the first axis; the start of a single row |

The edges of an axis are its first and last element and both sides of the places where a config's tiles end and its
tails begin. Neighbouring rows have their extremes at different edges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Problem

if TYPE_CHECKING:
    import torch

__all__ = ["DRAWS", "Edges", "Way", "draw", "edges", "magnitude"]

Edges = Mapping[int, tuple[int, ...]]
"""Indices at which extremes are planted along an axis, by the axis's length; other axes have only their ends."""


class Way(IntEnum):
    """A way to draw inputs; the module's docstring says what each is for."""

    NORMAL = 0
    NEGATIVE = 1
    LARGE = 2
    PEAKS = 3
    TROUGHS = 4
    SPARSE = 5
    ACROSS = 6


DRAWS = len(Way)
"""Number of ways to draw the inputs."""

EXTREME = 200.0
"""Magnitude of planted values: its exponential overflows float32, and the product of two fits into float16."""

_LARGE = 100.0
"""Factor of large inputs: the exponential of one that is a standard deviation from zero overflows float32."""

_AWAY = 16.0
"""Distance from zero of what surrounds an extreme: a sigmoid is 0 or 1 to the last bit of float16 there."""

_NEAR = 1 / 64
"""Factor of what surrounds an extreme in a sum: 65536 normal numbers of this size add up to 4, an extreme is 200."""

_MOST_EDGES = 16


@dataclass(frozen=True, slots=True)
class _Planting:
    """Extremes of one value; rows begin with the edge number `first`, or columns do if `across` is set."""

    value: float
    first: int = 0
    across: bool = False


_PLANTED = {
    Way.PEAKS: _Planting(EXTREME),
    Way.TROUGHS: _Planting(-EXTREME),
    Way.SPARSE: _Planting(EXTREME),
    Way.ACROSS: _Planting(EXTREME, first=1, across=True),
}

_INTEGERS = 8
"""Integers are drawn from -8 to 7, small enough to add up; extremes are one step beyond."""


def magnitude(way: Way) -> float:
    """Return the factor by which sums of inputs that cancel by chance are larger than those of normal numbers."""
    return _LARGE if way is Way.LARGE else 1.0


def edges(spec: KernelSpec, problem: Problem, config: Config) -> Edges:
    """Return the edges of the problem's axes under a config's tiling: ends and tails first, the last element first."""
    found: dict[int, tuple[int, ...]] = {}
    for axis in spec.tiling(config, problem).axes:
        found[axis.size] = tuple(dict.fromkeys((*found.get(axis.size, ()), *_edges(axis))))[:_MOST_EDGES]
    return found


def _edges(axis: Axis) -> Sequence[int]:
    tails = [axis.size // length * length for length in (axis.step, axis.block)]
    ends = [n for start in (*tails, axis.step, axis.block) for n in (start, start - 1)]
    return [n for n in (axis.size - 1, 0, *ends) if 0 <= n < axis.size]


_WIDENED = ("torch.uint16", "torch.uint32", "torch.uint64")
"""Integers for which torch plants nothing, and draws no range."""


def draw(
    tensor: torch.Tensor,
    buffer: Buffer,
    generator: torch.Generator,
    way: Way,
    edges: Edges,
    *,
    any_value: bool = False,
    beside: bool = False,
) -> None:
    """Fill a tensor. A buffer's own `draw` is used instead, in every way or, with `any_value`, in the first only.

    A tensor `beside` others of more axes (weights, statistics) stays normal where the others are about 0: a product of
    several small numbers would vanish in the rounding of what it is added to.
    """
    if beside and way in (Way.SPARSE, Way.ACROSS):
        way = Way.NORMAL
    if str(tensor.dtype) in _WIDENED:
        wide = tensor.long()
        draw(wide, buffer, generator, way, edges, any_value=any_value)
        tensor.copy_(wide.abs())
    elif buffer.draw is not None and not (any_value and way is not Way.NORMAL):
        buffer.draw(tensor, generator)
    elif tensor.is_floating_point() and tensor.element_size() == 1:
        _draw_small_floats(tensor, generator, way, edges)
    elif tensor.is_floating_point():
        _draw_floats(tensor, generator, way)
        _plant(tensor, way, edges)
    elif buffer.dtype == "bool":
        tensor.random_(0, 2, generator=generator)
    else:
        _draw_integers(tensor, generator, way)
        _plant(tensor, way, edges)


def _draw_small_floats(tensor: torch.Tensor, generator: torch.Generator, way: Way, edges: Edges) -> None:
    """Fill a tensor of 8-bit floats, for which torch draws nothing: by way of float32, within their range."""
    import torch

    drawn = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    _draw_floats(drawn, generator, way)
    _plant(drawn, way, edges)
    largest = torch.finfo(tensor.dtype).max
    tensor.copy_(drawn.clamp_(-largest, largest))


def _draw_floats(tensor: torch.Tensor, generator: torch.Generator, way: Way) -> None:
    tensor.normal_(generator=generator)
    match way:
        case Way.NEGATIVE:
            tensor.abs_().mul_(-2)
        case Way.LARGE:
            tensor.mul_(_LARGE)
        case Way.PEAKS:
            tensor.abs_().neg_().sub_(_AWAY)
        case Way.TROUGHS:
            tensor.abs_().add_(_AWAY)
        case Way.SPARSE | Way.ACROSS:
            tensor.mul_(_NEAR)


def _draw_integers(tensor: torch.Tensor, generator: torch.Generator, way: Way) -> None:
    signed = str(tensor.dtype) != "torch.uint8"
    below = 0 if way is Way.NEGATIVE and signed else _INTEGERS
    tensor.random_(-_INTEGERS if signed else 0, below, generator=generator)


def _plant(tensor: torch.Tensor, way: Way, edges: Edges) -> None:
    """Write one extreme into each row, or column, at an edge."""
    import torch

    if (planting := _PLANTED.get(way)) is None or tensor.numel() == 0:
        return
    lines = tensor.movedim(_axis(tensor, planting), -1)
    length = lines.shape[-1]
    places = torch.tensor(edges.get(length, tuple(dict.fromkeys((length - 1, 0)))), device=tensor.device)
    turns = torch.arange(math.prod(lines.shape[:-1]), device=tensor.device) + planting.first
    at = places[turns % len(places)].reshape(*lines.shape[:-1], 1)
    lines.scatter_(-1, at, _value(tensor, planting.value))


def _axis(tensor: torch.Tensor, planting: _Planting) -> int:
    """Return the axis along which a line has one extreme: the last, or across it the first that is longer than 1."""
    longer = [axis for axis, size in enumerate(tensor.shape) if size > 1]
    return longer[0] if planting.across and longer else tensor.dim() - 1


def _value(tensor: torch.Tensor, value: float) -> float:
    if tensor.is_floating_point():
        return value
    if value < 0:
        return 0 if str(tensor.dtype) == "torch.uint8" else -_INTEGERS - 1
    return _INTEGERS
