"""A table of the penalties of tilings that no kernel may have, drawn so that the prior's rules differ among them.

Tilings of kernels leave much of the prior aside: few have edges of all kinds, or a tile that just fits. If a change of
the table is meant, write it anew with `python tests/helpers/drawn_tilings.py`, in the tests' environment.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import bowl
from tables import FOLDER, TARGETS

from tilewise.kernels.spec import Axis, Buffer, Config, Dot, KernelSpec, Launch, Problem, Target, Tiling
from tilewise.tuner.prior.penalties import penalties

Case = tuple[KernelSpec, Problem, Config, Tiling, Target]

CASES = {"vectors": 400, "products": 400, "attention": 120, "resident products": 300}

_FILE = FOLDER / "tilings.json.gz"
_SIZES = (1, 7, 33, 40, 300, 1000, 1024, 4096, 12_345, 100_000)
_BLOCKS = (1, 4, 32, 256, 1024, 5000)
_STEPS = (1, 4, 16, 64, 256, 1024)
_BYTES = (256, 1024, 8192, 65536, 98304, 196608, 262144)
_ASCEND = (TARGETS[0], replace(TARGETS[0], name="Ascend910B1", cores=48), TARGETS[2], replace(TARGETS[0], name="new"))
_NVIDIA = (TARGETS[1], TARGETS[3], TARGETS[6], TARGETS[7])


def now(kind: str) -> list[dict[str, float]]:
    """Return the penalties of each case, to 9 digits."""
    return [
        {name: float(f"{factor:.9g}") for name, factor in penalties(spec, problem, config, target).items()}
        for spec, problem, config, _, target in drawn(kind)
    ]


def before(kind: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = _kept()[kind]
    return found


@cache
def _kept() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(gzip.decompress(_FILE.read_bytes()))
    return made


def drawn(kind: str) -> Iterator[Case]:
    random = Random(kind)
    for _ in range(CASES[kind]):
        yield _DRAW[kind](random)


def _vectors(random: Random) -> Case:
    axes = tuple(_axis(random, name) for name in "RMN"[: random.randint(1, 3)])
    tiling = Tiling(
        axes,
        streamed_bytes=random.choice(_BYTES),
        resident_bytes=random.choice((0, 4096, 32768, 98304)),
        traffic=random.choice((1.0, 1.2, 2.0, 3.0)),
        doubling_bytes=random.choice((None, 0, 1024, 98304)),
        reductions=random.randint(0, 3),
        operations=random.choice((0.0, 1.5, 4.0)),
        moved_back=random.random() < 0.3,
        first_apart=random.random() < 0.4,
        in_place=random.random() < 0.4,
    )
    elements = math.prod(axis.size for axis in axes)
    written = random.choice((elements, max(1, elements // axes[-1].size), max(1, elements // 10)))
    config: dict[str, Any] = {"num_warps": random.choice((1, 4, 8))} if random.random() < 0.8 else {}
    config |= random.choice(({}, {"multibuffer": True}, {"multibuffer": False}, {"multibuffer": False}))
    config |= random.choice(({}, {"EVICT_FIRST": True}, {"EVICT_FIRST": False}))
    target = random.choice(_ASCEND * 3 + _NVIDIA)
    flops, others = elements * random.choice((1, 3, 9)), random.choice(([], [], [1], [40, 100]))
    return _case(tiling, {"x": elements, "y": written}, flops, config, target, random.choice((2, 4)), others)


def _products(random: Random) -> Case:
    rows, deep, cols = (random.choice((16, 100, 512, 1000, 2048, 4096, 8192)) for _ in range(3))
    m, n, k = random.choice((8, 16, 64, 128, 256)), random.choice((16, 64, 128, 256)), random.choice((32, 64, 128, 512))
    item, splits = random.choice((2, 2, 4)), random.choice((1, 1, 4))
    row_bytes, described = random.choice((k, n)) * item, random.random() < 0.4
    dot = Dot(
        m,
        n,
        k,
        stages=random.choice((1, 2, 3, 4)),
        shared_bytes=random.choice((0, 1024, 65536)),
        splits=splits,
        group=random.choice((1, 4, 8)),
        programs=random.choice((0, 0, 20, 132)),
        row_bytes=row_bytes,
        operand_rows=random.choice((0, m + k, m + n)),
        described=described,
        specialised=described and random.random() < 0.5,
        chained=random.random() < 0.2,
        rescaled=random.random() < 0.2,
        alone=random.random() < 0.5,
        epilogue=random.choice((1.0, 8.0, 60.0)),
    )
    axes = Axis("M", rows, m, m), Axis("K", deep, max(k, deep // splits), k), Axis("N", cols, n, n)
    tiling = Tiling(axes, streamed_bytes=(m + n) * k * item, resident_bytes=m * n * 4, dot=dot)
    config: dict[str, Any] = {"num_warps": random.choice((4, 8))} if random.random() < 0.8 else {}
    config |= random.choice(({}, {"multibuffer": True}, {"multibuffer": False}))
    target = random.choice(_ASCEND + _NVIDIA + _NVIDIA[:3])
    sizes = {"a": (rows, deep), "b": (deep, cols), "c": (rows, cols)}
    return _case(tiling, sizes, 2 * rows * deep * cols, config, target, item, [])


def _resident(random: Random) -> Case:
    """Draw products of many small programs on NVIDIA, whose registers decide how many a multiprocessor holds."""
    m, n = random.choice(((64, 64), (64, 128), (128, 64), (128, 128), (32, 256), (96, 112), (80, 96)))
    described, splits, depth = random.random() < 0.5, random.choice((1, 1, 2)), random.choice((768, 4608))
    k = random.choice((16, 16, 48))  # with 48, scaling the sums takes as long as a product
    dot = Dot(
        m,
        n,
        k,
        stages=random.choice((1, 2)),
        splits=splits,
        group=random.choice((1, 4)),
        row_bytes=random.choice((32, 128)),
        described=described,
        specialised=described and random.random() < 0.6,
        chained=random.random() < 0.15,
        rescaled=random.random() < 0.5,
    )
    axes = Axis("M", 8192, m, m), Axis("K", depth, depth // splits, k), Axis("N", 8192, n, n)
    tiling = Tiling(axes, streamed_bytes=(m + n) * k * 2, resident_bytes=0, dot=dot)
    sizes = {"a": (8192, depth), "b": (depth, 8192), "c": (8192, 8192)}
    config = {"num_warps": random.choice((1, 2, 4, 8))}
    return _case(tiling, sizes, 2 * 8192 * 8192 * depth, config, random.choice(_NVIDIA), 2, [])


def _attention(random: Random) -> Case:
    queries, keys, head = random.choice((1, 64, 500, 4096)), random.choice((64, 500, 2048)), random.choice((64, 128))
    heads, m, n = random.choice((1, 8, 33, 64)), random.choice((16, 64, 128)), random.choice((32, 64, 128))
    dot = Dot(m, n, head, head=head, stages=random.choice((1, 2, 4)), splits=random.choice((1, 1, 2)))
    axes = Axis("H", heads, 1, 1), Axis("Q", queries, m, m), Axis("K", keys, keys, n)
    tiling = Tiling(axes, streamed_bytes=n * head * 4, resident_bytes=m * head * 4, dot=dot)
    sizes = {"q": (heads, queries, head), "k": (heads, keys, head), "y": (heads, queries, head)}
    flops = 4 * heads * queries * keys * head
    return _case(tiling, sizes, flops, {}, random.choice(_ASCEND), random.choice((2, 4)), [])


def _axis(random: Random, name: str) -> Axis:
    size = random.choice(_SIZES)
    block = random.choice((*_BLOCKS, size, size))
    return Axis(name, size, block, random.choice([step for step in _STEPS if step <= block] + [block]))


def _case(
    tiling: Tiling,
    sizes: dict[str, Any],
    flops: int,
    config: Config,
    target: Target,
    item_bytes: int,
    others: list[int],
) -> Case:
    """Return a case of a kernel whose last buffer is written, and which makes `others` launches beside the first."""
    dtype = {2: "float16", 4: "float32"}[item_bytes]
    shapes = {name: size if isinstance(size, tuple) else (size,) for name, size in sizes.items()}
    last = [*shapes][-1]
    buffers = {name: Buffer(shape, dtype, "out" if name == last else "in") for name, shape in shapes.items()}
    launches = [Launch(bowl.bowl, grid=(programs,)) for programs in (1, *others)]
    spec = replace(
        bowl.SPEC,
        tiling=lambda config, problem: tiling,
        buffers=lambda problem: buffers,
        flops=lambda problem: flops,
        **({"function": (bowl.bowl,), "grid": None, "launches": lambda config, problem: launches} if others else {}),
    )
    return spec, Problem("bowl", {"M": 1}, dtype), config, tiling, target


_DRAW = {"vectors": _vectors, "products": _products, "attention": _attention, "resident products": _resident}


def write() -> None:
    _FILE.write_bytes(gzip.compress(json.dumps({kind: now(kind) for kind in CASES}).encode(), mtime=0))


if __name__ == "__main__":
    write()
