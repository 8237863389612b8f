"""A table of the divisions of work found for drawn kernels: how programs share rows, columns and depth, with loads of
other tensors, reductions, masks and trips beside their loops. In the last kernels no parameter is a program's rows.

If a change of the table is meant, write it anew with `python tests/helpers/drawn_divisions.py`, in the tests'
environment.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from tables import FOLDER

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.code import Access, Work
from tilewise.tuner.inference.division import Division, Sample, find_division, with_memory
from tilewise.tuner.inference.expressions import Fit

CASES = 100
_WITHOUT_ROWS = 40

_FILE = FOLDER / "divisions.json.gz"
_SHAPES = ((500, 4096, 768), (777, 3000, 500), (64, 1000, 4096), (1, 8192, 64), (2048, 96, 1000))
_NAMES = ("ROWS", "SUB", "COLUMNS", "DEPTH")


def now() -> list[list[str]]:
    """Return of each drawn kernel its division, as lines of text."""
    return [_lines(find_division(*case), case[0]) for case in drawn()]


@cache
def before() -> list[list[str]]:
    made: list[list[str]] = json.loads(gzip.decompress(_FILE.read_bytes()))
    return made


def drawn() -> Iterator[tuple[list[Sample], Sequence[str], Sequence[str], list[Fit], float]]:
    random = Random("divisions")
    for _ in range(CASES):
        options = _options(random)
        tiles = [_tile(random) for _ in range(4)]
        samples = [
            _sample(shape, tile, options)
            for shape in random.sample(_SHAPES, random.choice((1, 2, 3)))
            for tile in tiles
        ]
        dims, grid = random.choice(("MNK", "MNK", "MN")), [Fit(str(options["programs"]))]
        yield samples, tuple(dims), _NAMES, grid, random.choice((1.0, 5e5, 2e7))
    random = Random("divisions whose rows have no name")
    for _ in range(_WITHOUT_ROWS):
        options, times = _options(random), random.choice((1, 2, 4))
        tiles = [_tile(random) for _ in range(4)]
        named = [
            _sample(shape, {**tile, "ROWS": times * tile["SUB"]}, options)
            for shape in random.sample(_SHAPES, 2)
            for tile in tiles
        ]
        samples, grid = [_without_rows(sample) for sample in named], [Fit(str(options["programs"]))]
        yield samples, tuple("MNK"), _NAMES[1:], grid, 1.0


def _without_rows(sample: Sample) -> Sample:
    return replace(sample, integers={name: value for name, value in sample.integers.items() if name != "ROWS"})


def _options(random: Random) -> dict[str, Any]:
    """Draw what the configs of one kernel have in common."""
    return {
        "form": random.choice(("flat", "rows", "rows", "blocks", "persistent", "product", "product")),
        "programs": random.choice((32, 64)),
        "apart": random.random() < 0.3,
        "masked": random.choice((0, 0, 1, 2)),
        "weights": random.choice(((), (), ("columns",), ("rows",), ("columns", "rows"), ("tile",))),
        "stores": random.random() < 0.6,
        "reductions": random.choice(((), (), (1,), (2,), (1, 2, 2))),
        "beside": random.choice((0, 0, 1, 3)),
        "twice": random.random() < 0.2,
    }


def _tile(random: Random) -> dict[str, int]:
    sub = random.choice((1, 2, 8, 16))
    return {
        "ROWS": sub * random.choice((1, 2, 3)) + random.choice((0, 0, 0, 3)),
        "SUB": sub,
        "COLUMNS": random.choice((32, 64, 256, 512)),
        "DEPTH": random.choice((32, 64, 128)),
    }


def _sample(shape: tuple[int, int, int], tile: dict[str, int], options: dict[str, Any]) -> Sample:
    m, n, k = shape
    integers = {"M": m, "N": n, "K": k, **tile}
    rows, sub, columns, depth = (tile[name] for name in _NAMES)
    if options["form"] == "product":
        return _product(integers, options)
    outer, inner = ceil_div(rows, sub), ceil_div(n, columns)
    programs, sizes, tiled = ceil_div(m, rows), (m, n), (sub, columns)
    if options["form"] == "flat":
        outer, inner, sizes, tiled = rows, 1, (m * n,), (columns,)
        programs = ceil_div(m * n, rows * columns)
    elif options["form"] == "blocks":
        inner, programs = 1, ceil_div(m, rows) * ceil_div(n, columns)
    elif options["form"] == "persistent":
        programs = options["programs"]
        outer = ceil_div(m, programs * sub)
    apart = bool(options["apart"] and inner > 1)
    work = Work(trips={0: outer, 1: inner - apart, 2: depth})
    loops = tuple(loop for loop in (0, 1) if work.trips[loop] > 1)
    of_rows = tuple(loop for loop in loops if loop == 0)
    masked = [options["masked"] == 2, options["masked"] >= 1]
    work.accesses = [Access("x", "load", tiled, 4, loops, masked[0])]
    work.accesses += [Access("x", "load", tiled, 4, of_rows, masked[0])] * apart
    buffers = {"x": sizes}
    for name in options["weights"]:
        shapes = {"columns": (1, tiled[-1]), "rows": (tiled[0], 1), "tile": tiled}
        work.accesses.append(Access(name, "load", shapes[name], 2, of_rows if name == "rows" else loops, masked[1]))
        buffers[name] = {"columns": (1, sizes[-1]), "rows": (sizes[0], 1), "tile": sizes}[name]
    if options["stores"]:
        work.accesses.append(Access("y", "store", tiled, 2 if options["twice"] else 4, loops, masked[1]))
        buffers["y"] = sizes
    if options["twice"]:
        work.accesses.append(Access("x", "load", tiled, 4, loops))
    work.reductions = [loops[:count] for count in options["reductions"]]
    work.operations = (2 + options["beside"]) * outer * inner * tiled[0] * tiled[-1]
    return Sample(integers, (programs,), work, buffers)


def _product(integers: dict[str, int], options: dict[str, Any]) -> Sample:
    m, n, k = (integers[name] for name in "MNK")
    rows, columns, depth = 16 * integers["SUB"], integers["COLUMNS"], integers["DEPTH"]
    trips = ceil_div(k, depth)
    loops = (0,) if trips > 1 else ()
    work = Work(trips={0: trips} if trips > 1 else {})
    work.accesses = [
        Access("a", "load", (rows, depth), 2, loops, options["masked"] > 0),
        Access("b", "load", (depth, columns), 2, loops, options["masked"] > 0),
        Access("c", "store", (rows, columns), 4, ()),
    ]
    buffers: dict[str, tuple[int, ...]] = {"a": (m, k), "b": (k, n), "c": (m, n)}
    if options["weights"]:
        work.accesses.append(Access("bias", "load", (1, columns), 2, ()))
        buffers["bias"] = (1, n)
    work.dots = [((rows, columns, depth), loops)] + [((16, 16, depth), ())] * options["twice"]
    work.operations = sum(2 * a * b * c * work.trips_of(inside) for (a, b, c), inside in work.dots)
    work.operations += options["beside"] * rows * columns
    return Sample({**integers, "SUB": rows}, (ceil_div(m, rows) * ceil_div(n, columns),), work, buffers)


def _lines(found: Division | None, samples: Sequence[Sample]) -> list[str]:
    """Return a division, and what planned memory makes of it."""
    if found is None:
        return ["none"]
    axes = [f"{axis.name}: {axis.size} by {axis.block} by {axis.step}" for axis in found.axes]
    fits = {name: f"{fit} {sorted(fit.names)}" for name in _FITS for fit in [getattr(found, name)]}
    truths = [name for name in _TRUTHS if getattr(found, name)]
    memory = [
        with_memory(found, [(s.integers, found.streamed.value(s.integers) + extra * s.work.accesses[0].elements)])
        for s, extra in zip(samples, (3, 5.5, 0), strict=False)
    ]
    planned = [f"{each.resident} {each.in_place}" for each in memory]
    dot = "" if found.dot is None else " x ".join(map(str, found.dot))
    return [*axes, *map(": ".join, fits.items()), str(found.flops_an_element), dot, ", ".join(truths), *planned]


_FITS = ("streamed", "tile", "resident", "traffic", "reductions", "elements")
_TRUTHS = ("alone", "stores_tiles", "moved_back", "first_apart", "in_place")


def write() -> None:
    _FILE.write_bytes(gzip.compress(json.dumps(now()).encode(), mtime=0))


if __name__ == "__main__":
    write()
