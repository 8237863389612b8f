"""The division of the work among programs and trips, read off compiled code and written in dims and parameters."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.code import Access, Work
from tilewise.tuner.inference.expressions import Fit, expression

__all__ = ["AxisFit", "Division", "Sample", "find_division", "with_memory"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A config of a recorded problem: its dims and parameters, grid, work, and the sizes of the buffers in memory
    order."""

    integers: Mapping[str, int]
    grid: tuple[int, ...]
    work: Work
    sizes: Mapping[str, tuple[int, ...]]

    @property
    def programs(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True, slots=True)
class AxisFit:
    name: str
    size: Fit
    block: Fit
    step: Fit

    def trips(self, integers: Mapping[str, int]) -> int:
        """Return the trips of a full program."""
        size, block, step = (fit.value(integers) for fit in (self.size, self.block, self.step))
        return ceil_div(min(size, block), step)


@dataclass(frozen=True, slots=True)
class Division:
    """The parts of a `Tiling`, as expressions.

    `tile` is the number of elements of the tile that moves most. `dot` holds m, n and k of a matrix product, which is
    `alone` if nothing else is computed; its axes are the product's rows, depth and columns. `flops_an_element` counts
    the operations for each element of `elements`, the largest tensor's. The rest is as in a `Tiling`; `first_apart` is
    for programs with several trips.
    """

    axes: tuple[AxisFit, ...]
    streamed: Fit
    tile: Fit
    resident: Fit
    traffic: Fit
    reductions: Fit
    flops_an_element: float
    elements: Fit
    dot: tuple[Fit, Fit, Fit] | None
    alone: bool
    stores_tiles: bool
    moved_back: bool
    first_apart: bool
    in_place: bool = False


_Numbers = list[tuple[str, tuple[int, int, int]]]
"""Axes of one sample: name, size, block, step."""


def find_division(
    samples: Sequence[Sample], dims: Sequence[str], blocks: Sequence[str], grid: Sequence[Fit], least: float
) -> Division | None:
    """Find how configs divide the work, or None if no form fits every sample.

    A constant number of programs in the `grid` divides the work too. `least` are the bytes that the first sample's
    problem moves at least.
    """
    numbers = [fit.text for fit in grid if fit.text.isdigit() and int(fit.text) > 1]
    samples = [replace(s, integers={**s.integers, **{text: int(text) for text in numbers}}) for s in samples]
    blocks = [*blocks, *numbers]
    main = _main(samples)
    if main is None:
        return None
    found = [_same(sample.work, main) for sample in samples]
    if any(access is None for access in found):
        return None
    accesses = [access for access in found if access is not None]

    def fit(values: Sequence[int]) -> Fit | None:
        return expression([(s.integers, v) for s, v in zip(samples, values, strict=True)], dims, blocks)

    pairs = list(zip(samples, accesses, strict=True))
    forms = [_flat, _rows, _blocks, *_named_blocks(blocks), _persistent_rows, _programs]
    axes = next(filter(None, (_axes([form(*pair) for pair in pairs], fit, dims) for form in forms)), None)
    if axes is None:
        return None
    loads = [_streamed(sample.work, access) for sample, access in zip(samples, accesses, strict=True)]
    always = set.intersection(*({name for name, _ in found} for found in loads))  # a loop of one trip is none
    streamed = _sum_of([[size for name, size in found if name in always] for found in loads], fit)
    tiles = fit([access.elements for access in accesses])
    elements = fit([math.prod(sample.sizes[access.argument]) for sample, access in zip(samples, accesses, strict=True)])
    if streamed is None or tiles is None or elements is None:
        return None
    dot, resident = _dot(samples, fit), _multiple(_ITEM_BYTES, tiles)
    depth = _depth(samples, fit, dims) if dot is not None and len(axes) == 2 else None
    if depth is not None:
        axes = (axes[0], depth, axes[1])
    alone = depth is not None and all(_products(sample.work) == sample.work.operations for sample in samples)
    first, access = samples[0], accesses[0]
    computed = first.programs * _trips(first.work, access) * access.elements
    moved = first.programs * sum(_moved(first.work).values())
    padded = min(1.0, math.prod(first.sizes[access.argument]) / computed)
    return Division(
        axes,
        streamed,
        tiles,
        resident,
        _traffic(samples, fit) or Fit(str(max(1.0, round(moved * padded / least, 2)))),
        _reductions(samples, axes),
        round(first.programs * first.work.operations / computed, 2),
        elements,
        dot,
        alone,
        any(a.kind == "store" and a.shape == access.shape and a.loops == access.loops for a in first.work.accesses),
        _moved_back(first.work, access),
        any(_beside(sample.work, one) for sample, one in zip(samples, accesses, strict=True)),
    )


def _main(samples: Sequence[Sample]) -> Access | None:
    """Return the access that moves most in all samples: in a matrix product, the largest that is stored."""
    work = samples[0].work
    moved: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        for a in sample.work.accesses:
            moved[a.argument, a.kind] += a.bytes * sample.work.trips_of(a.loops)
    able = [a for a in work.accesses if not work.dots or a.kind != "load"]
    return max(
        able,
        key=lambda a: (moved[a.argument, a.kind], a.bytes * work.trips_of(a.loops), len(a.loops)),
        default=None,
    )


def _trips(work: Work, access: Access) -> int:
    return max(1, work.trips_of(access.loops))


def _possible_trips(work: Work, access: Access) -> set[int]:
    """Return the trips in which a program makes an access, with and without a first or last trip beside its loop."""
    beside = _beside(work, access)
    own = work.trips_of(access.loops)
    return {_trips(work, access), own + work.trips_of(beside[0].loops) if beside and access.loops else own}


def _beside(work: Work, access: Access) -> list[Access]:
    """Return the same access in a first or last trip beside its loop."""
    outer = [a for a in work.accesses if access.loops and a.loops == access.loops[:-1]]
    return [a for a in outer if replace(a, loops=access.loops, masked=access.masked) == access]


def _moved_back(work: Work, access: Access) -> bool:
    """Return whether trips that would cross an edge start earlier: most bytes are then moved in whole tiles."""
    moved: Counter[bool] = Counter()
    for a in work.accesses:
        if a.shape == access.shape:
            moved[a.masked] += a.bytes * work.trips_of(a.loops)
    return moved[False] > moved[True]


def _same(work: Work, main: Access) -> Access | None:
    able = [a for a in work.accesses if (a.argument, a.kind) == (main.argument, main.kind)]
    return max(able, key=lambda a: (a.bytes * work.trips_of(a.loops), len(a.loops)), default=None)


def _extents(sample: Sample, access: Access) -> tuple[int, int]:
    """Return the number of rows of the accessed tensor, and their length."""
    sizes = sample.sizes[access.argument]
    return math.prod(sizes[:-1]), sizes[-1]


def _tile(access: Access) -> tuple[int, int]:
    """Return the rows of a tile, and their length."""
    columns = access.shape[-1] if access.shape else 1
    return access.elements // columns, columns


def _flat(sample: Sample, access: Access) -> _Numbers | None:
    total = math.prod(sample.sizes[access.argument])
    block = _trips(sample.work, access) * access.elements
    return [("elements", (total, block, access.elements))] if ceil_div(total, block) == sample.programs else None


def _rows(sample: Sample, access: Access) -> _Numbers | None:
    """Each program takes whole rows, and each row in trips of columns."""
    (m, n), (rows, columns) = _extents(sample, access), _tile(access)
    outer, rest = divmod(_trips(sample.work, access), ceil_div(n, columns))
    if rest or not outer or ceil_div(m, outer * rows) != sample.programs:
        return None
    return [("rows", (m, outer * rows, rows)), ("columns", (n, n, columns))]


def _blocks(sample: Sample, access: Access) -> _Numbers | None:
    """Each program takes one block of rows and columns."""
    (m, n), (rows, columns) = _extents(sample, access), _tile(access)
    block = rows * (1 if sample.work.dots else _trips(sample.work, access))
    if ceil_div(m, block) * ceil_div(n, columns) != sample.programs:
        return None
    return [("rows", (m, block, rows)), ("columns", (n, columns, columns))]


def _named_blocks(names: Sequence[str]) -> Iterator[Callable[[Sample, Access], _Numbers | None]]:
    """Yield forms in which a program takes a block of rows and columns whose sizes are parameters, in whole tiles or
    not, or one tile, or a whole row."""
    for rows, columns in itertools.product((*names, ""), (*names, "", _WHOLE)):
        yield partial(_named_block, rows, columns)


_WHOLE = "the whole row"


def _named_block(rows: str, columns: str, sample: Sample, access: Access) -> _Numbers | None:
    (m, n), (height, width) = _extents(sample, access), _tile(access)
    high = sample.integers[rows] if rows else height
    wide = n if columns == _WHOLE else sample.integers[columns] if columns else width
    trips = ceil_div(high, height) * ceil_div(wide, width)
    is_grid = ceil_div(m, high) * ceil_div(n, wide) == sample.programs
    if not is_grid or trips not in _possible_trips(sample.work, access):
        return None
    return [("rows", (m, high, height)), ("columns", (n, wide, width))]


def _persistent_rows(sample: Sample, access: Access) -> _Numbers | None:
    """A fixed number of programs take rows in turns; some of them take none in the last round."""
    (_, n), (rows, columns) = _extents(sample, access), _tile(access)
    outer, rest = divmod(_trips(sample.work, access), ceil_div(n, columns))
    if rest or not outer:
        return None
    block = outer * rows
    return [("programs", (sample.programs * block, block, rows)), ("columns", (n, n, columns))]


def _programs(sample: Sample, access: Access) -> _Numbers | None:
    block = _trips(sample.work, access) * access.elements
    return [("programs", (sample.programs * block, block, access.elements))]


def _axes(
    numbers: Sequence[_Numbers | None], fit: Callable[[Sequence[int]], Fit | None], dims: Sequence[str]
) -> tuple[AxisFit, ...] | None:
    """Return the axes as expressions; an axis whose size is a dimension has its name."""
    known = [axes for axes in numbers if axes is not None]
    if len(known) < len(numbers):
        return None
    found = []
    for number, (name, _) in enumerate(known[0]):
        size, block, step = (fit([axes[number][1][part] for axes in known]) for part in range(3))
        if size is None or block is None or step is None:
            return None
        found.append(AxisFit(size.text if size.text in dims else name, size, block, step))
    return tuple(found)


def _streamed(work: Work, access: Access) -> list[tuple[str, int]]:
    """Return the argument and bytes of each load in one trip of the loops of the main access, or of a product's."""
    loops = max((loops for _, loops in work.dots), key=len, default=access.loops)
    found = [(a.argument, a.bytes) for a in work.accesses if a.kind == "load" and a.loops == loops]
    return found or [(access.argument, access.bytes)]


def _sum_of(parts: Sequence[Sequence[int]], fit: Callable[[Sequence[int]], Fit | None]) -> Fit | None:
    """Return a sum of expressions, one for each part that every sample has; equal parts are counted."""
    if len({len(values) for values in parts}) != 1:
        return fit([sum(values) for values in parts])
    found: Counter[str] = Counter()
    names: frozenset[str] = frozenset()
    for column in zip(*parts, strict=True):
        if (one := fit(column)) is None:
            return None
        found[one.text] += 1
        names |= one.names
    return Fit(" + ".join(text if count == 1 else _times(count, text) for text, count in found.items()), names)


def _times(count: int, text: str) -> str:
    """Return a multiple of an expression: 3 * 4 * N as 12 * N."""
    factor, star, rest = text.partition(" * ")
    return f"{count * int(factor)}{star}{rest}" if factor.isdigit() else f"{count} * {text}"


def with_memory(division: Division, planned: Sequence[tuple[Mapping[str, int], int]]) -> Division:
    """Return the division with the memory beside the streamed tiles as a multiple of the tile.

    `planned` pairs a config's dims and parameters with the bytes that the compiler plans, or needs where they are too
    many. The least multiple counts: where memory is plentiful, the compiler reuses little of it.
    """
    shares = [
        max(0, on_chip - division.streamed.value(integers)) / division.tile.value(integers)
        for integers, on_chip in planned
    ]
    if division.alone or not shares:
        return division
    share = min(shares)
    in_place = share < _ITEM_BYTES and division.stores_tiles
    return replace(division, resident=_multiple(math.ceil(share), division.tile), in_place=in_place)


def _multiple(count: int, fit: Fit) -> Fit:
    if not count or not fit.names:
        return Fit(str(count and count * int(fit.text)))
    return Fit(f"{count} * {fit.text}", fit.names)


def _reductions(samples: Sequence[Sample], axes: Sequence[AxisFit]) -> Fit:
    """Return the reductions of tiles in one trip of the outermost loop: so many in each inner trip, and some beside.

    A loop of one trip is none in compiled code, so they are counted in whole programs.
    """
    inner = axes[1:] or axes
    counts = []
    for sample in samples:
        whole = sum(sample.work.trips_of(loops) for loops in sample.work.reductions)
        outer = axes[0].trips(sample.integers) if len(axes) > 1 else 1
        counts.append((whole // outer, math.prod(axis.trips(sample.integers) for axis in inner)))
    for each in range(max(whole // trips for whole, trips in counts) + 1):
        beside = {whole - each * trips for whole, trips in counts}
        if len(beside) == 1 and min(beside) >= 0:
            return _sum_of_trips(min(beside), each, inner)
    return Fit(str(counts[0][0]))


def _sum_of_trips(beside: int, each: int, axes: Sequence[AxisFit]) -> Fit:
    if not each:
        return Fit(str(beside))
    divided = [axis for axis in axes if axis.block.text != axis.step.text]
    parts = [str(each)] if each > 1 else []
    parts += [f"ceil_div({axis.block}, {axis.step})" for axis in divided]
    names = frozenset().union(*(fit.names for axis in divided for fit in (axis.block, axis.step)))
    return Fit(" * ".join(parts) + (f" + {beside}" if beside else ""), names)


_ITEM_BYTES = 4
"""Memory beside the streamed tiles, per element of a tile, where no plan tells: a result of 32 bits."""


def _depth(
    samples: Sequence[Sample], fit: Callable[[Sequence[int]], Fit | None], dims: Sequence[str]
) -> AxisFit | None:
    """Return the axis along which a product is summed in trips: a dimension, if it gives their number."""
    largest = [max(sample.work.dots, key=lambda dot: math.prod(dot[0])) for sample in samples]
    trips = [s.work.trips[loops[-1]] if loops else 1 for s, (_, loops) in zip(samples, largest, strict=True)]
    if 0 in trips:
        return None
    steps = [sizes[2] for sizes, _ in largest]
    step = fit(steps)
    if step is None:
        return None
    for dim in dims:
        whole = Fit(dim, frozenset((dim,)))
        if trips == [ceil_div(s.integers[dim], k) for s, k in zip(samples, steps, strict=True)]:
            return AxisFit(dim, whole, whole, step)
    size = fit([count * k for count, k in zip(trips, steps, strict=True)])
    return AxisFit("depth", size, size, step) if size is not None else None


def _products(work: Work) -> int:
    """Return the operations of the matrix products."""
    return sum(2 * math.prod(sizes) * work.trips_of(loops) for sizes, loops in work.dots)


_LARGE = 4
"""A tensor of which a program moves at least this part of what it moves of any tensor may be the base of others."""

_LITTLE = 64
"""A tensor of which a program moves this many times less than of the one that it moves most does not count."""


def _traffic(samples: Sequence[Sample], fit: Callable[[Sequence[int]], Fit | None]) -> Fit | None:
    """Return the bytes that all programs move, without tails, as a multiple of the least.

    Tensors that are moved as often as the base, or a fixed number of times as often, are one number. Of a tensor that
    is loaded again for each block of rows, a program moves as many times less as a block has rows.
    """
    moved = [_moved(sample.work) for sample in samples]
    base = min(
        (key for key in moved[0] if all(one.get(key, 0) * _LARGE > max(one.values()) for one in moved)),
        key=lambda key: moved[0][key],
        default=None,
    )
    if base is None or len({frozenset(one) for one in moved}) != 1:
        return None
    item = next(a.item_bytes for a in samples[0].work.accesses if (a.argument, a.kind) == base)
    elements = fit([math.prod(sample.sizes[base[0]]) for sample in samples])
    if elements is None:
        return None
    whole, names = 0.0, elements.names
    again: Counter[str] = Counter()
    for key in moved[0]:
        times = [one[base] / max(1, one[key]) for one in moved]
        if min(times) >= _LITTLE:
            continue
        if len(set(times)) == 1:
            whole += item / times[0]
        elif all(count.is_integer() for count in times) and (fewer := fit([int(count) for count in times])) is not None:
            again[_factor(fewer)] += item
            names |= fewer.names
        else:
            return None
    each = " + ".join([f"{whole:g}", *(f"{bytes_} / {rows}" for rows, bytes_ in again.items())])
    return Fit(f"max(1.0, {f'({each})' if again else each} * {elements} / SPEC.bytes(problem))", names)


def _moved(work: Work) -> dict[tuple[str, str], int]:
    """Return the bytes that a program moves by argument and direction, each tile whole."""
    found: Counter[tuple[str, str]] = Counter()
    for access in work.accesses:
        found[access.argument, access.kind] += access.bytes * work.trips_of(access.loops)
    return dict(found)


def _factor(fit: Fit) -> str:
    return f"({fit})" if "*" in fit.text else fit.text


def _dot(samples: Sequence[Sample], fit: Callable[[Sequence[int]], Fit | None]) -> tuple[Fit, Fit, Fit] | None:
    if not all(sample.work.dots for sample in samples):
        return None
    largest = [max((sizes for sizes, _ in sample.work.dots), key=math.prod) for sample in samples]
    m, n, k = (fit([dot[part] for dot in largest]) for part in range(3))
    return None if m is None or n is None or k is None else (m, n, k)
