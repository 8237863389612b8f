"""Micro-kernels that calibration times: each is slow for one reason, so that together they decide the model's figures.

They load triton, as kernels do; `calibrate` imports this on use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import triton
import triton.language as tl

from tilewise.kernels.spec import Buffer, KernelSpec, Launch, Parameter, Problem, Tiling, Value

__all__ = ["Probe", "probes"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One launch of one micro-kernel; `config` is all that its compile options are.

    `compiled` is the spec to compile for the model where that is another than the one to run (in tests).
    """

    name: str
    spec: KernelSpec
    problem: Problem
    config: Mapping[str, Value]
    compiled: KernelSpec | None = None


@triton.jit
def probe_empty_kernel(out_ptr, WIDTH: tl.constexpr):
    """One short store: what remains is launching and handing out programs."""
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out_ptr + at, tl.full([WIDTH], 1.0, tl.float32))


@triton.jit
def probe_load_kernel(
    x_ptr,
    out_ptr,
    TILES: tl.constexpr,
    REPEATS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PITCH: tl.constexpr,
):
    """Tiles of rows PITCH apart, read over and over into a sum that is faster than any load."""
    first = tl.program_id(0).to(tl.int64) * TILES * ROWS * PITCH
    at = tl.arange(0, ROWS)[:, None] * PITCH + tl.arange(0, COLS)[None, :]
    total = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for _ in range(REPEATS):
        for tile in range(TILES):
            total += tl.load(x_ptr + first + tile * ROWS * PITCH + at)
    out = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out, tl.sum(total, axis=1))


@triton.jit
def probe_store_kernel(out_ptr, TILES: tl.constexpr, REPEATS: tl.constexpr, WIDTH: tl.constexpr):
    """One tile, written to many places over and over."""
    first = tl.program_id(0) * TILES * WIDTH
    tile = tl.full([WIDTH], 1.0, tl.float32)
    for _ in range(REPEATS):
        for at in range(TILES):
            tl.store(out_ptr + first + at * WIDTH + tl.arange(0, WIDTH), tile)


@triton.jit
def probe_chain_kernel(x_ptr, out_ptr, OP: tl.constexpr, TRIPS: tl.constexpr, WIDTH: tl.constexpr):
    """One operation on a tile that stays on chip, again and again."""
    at = tl.arange(0, WIDTH)
    y = tl.load(x_ptr + at)
    x = y
    for _ in range(TRIPS):
        if OP == "add":
            x = x + y
        elif OP == "exp":
            x = tl.exp(x)
        elif OP == "log":
            x = tl.log(x)
        elif OP == "sqrt":
            x = tl.sqrt(x)
        elif OP == "divide":
            x = y / x
        elif OP == "cast":
            x = x.to(tl.float16).to(tl.float32) + y
        else:
            x = tl.where(x > y, y, x)
    tl.store(out_ptr + at, x)


@triton.jit
def probe_atomic_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    """Every program adds to the same address."""
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, WIDTH)), axis=0))


def probes(cores: int) -> Sequence[Probe]:
    """All of them, for a part of so many vector cores. Buffers of some are read many times over, so that emptying the
    cache beforehand makes no difference; one is larger than any cache."""
    empty = [_empty(programs) for programs in (1, cores, 10 * cores, 50 * cores)]
    loads = [
        _load("load, one core", 1, rows=1, cols=8192, repeats=40),
        _load("load, half the cores", cores // 2, rows=1, cols=8192, repeats=40),
        _load("load, all cores", cores, rows=1, cols=8192, repeats=40),
        _load("load, short tiles", 1, rows=1, cols=512, repeats=80),
        _load("load, short tiles, all cores", cores, rows=1, cols=2048, repeats=80),
        _load("load, rows of 1 KB", 1, rows=32, cols=256, pitch=512, repeats=40),
        _load("load, rows of 256 B", 1, rows=64, cols=64, pitch=512, repeats=40),
        _load("load, one after the other", 1, rows=1, cols=1024, repeats=40, multibuffer=False),
        _load("load, short programs", 10 * cores, rows=1, cols=4096, tiles=1, repeats=4),
        _load("load, from global memory", cores, rows=1, cols=8192, tiles=400, repeats=1),
    ]
    stores = [_store("store, one core", 1), _store("store, all cores", cores)]
    chains = [_chain(op) for op in ("add", "exp", "log", "sqrt", "divide", "cast", "select")]
    atomics = [_atomic(programs) for programs in (cores, 10 * cores)]
    return [*empty, *loads, *stores, *chains, *atomics]


def _empty(programs: int) -> Probe:
    out = {"out_ptr": Buffer((programs * 8,), "float32", role="out")}
    return _probe(f"empty, {programs} programs", "probe_empty_kernel", programs, out, {"WIDTH": 8})


def _load(
    name: str,
    programs: int,
    *,
    rows: int,
    cols: int,
    repeats: int,
    pitch: int | None = None,
    tiles: int = 8,
    multibuffer: bool = True,
) -> Probe:
    pitch = pitch or cols
    buffers = {
        "x_ptr": Buffer((programs * tiles * rows * pitch,), "float32"),
        "out_ptr": Buffer((programs * rows,), "float32", role="out"),
    }
    constants = {"TILES": tiles, "REPEATS": repeats, "ROWS": rows, "COLS": cols, "PITCH": pitch}
    return _probe(name, "probe_load_kernel", programs, buffers, constants, multibuffer=multibuffer)


def _store(name: str, programs: int) -> Probe:
    out = {"out_ptr": Buffer((programs * 8 * 8192,), "float32", role="out")}
    constants = {"TILES": 8, "REPEATS": 40, "WIDTH": 8192}
    return _probe(name, "probe_store_kernel", programs, out, constants)


def _chain(op: str) -> Probe:
    buffers = {"x_ptr": Buffer((8192,), "float32"), "out_ptr": Buffer((8192,), "float32", role="out")}
    return _probe(op, "probe_chain_kernel", 1, buffers, {"OP": op, "TRIPS": 200, "WIDTH": 8192})


def _atomic(programs: int) -> Probe:
    buffers = {"x_ptr": Buffer((64,), "float32"), "out_ptr": Buffer((1,), "float32", role="out", initial=0.0)}
    return _probe(f"atomic, {programs} programs", "probe_atomic_kernel", programs, buffers, {"WIDTH": 64})


def _probe(
    name: str,
    function: str,
    programs: int,
    buffers: Mapping[str, Buffer],
    constants: Mapping[str, Value],
    *,
    multibuffer: bool = True,
) -> Probe:
    named = f"{__name__}:{function}"
    spec = KernelSpec(
        name=function,
        summary=name,
        function=(named,),
        dims=("programs",),
        dtypes=("float32",),
        parameters=(Parameter("multibuffer", lambda problem, target: [multibuffer], role="option"),),
        buffers=lambda problem: buffers,
        scalars=lambda problem: {},
        launches=lambda config, problem: [Launch(named, (programs,), constants)],
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {},
        flops=lambda problem: 1,
        default=lambda problem, target: {"multibuffer": multibuffer},
    )
    return Probe(name, spec, Problem(function, {"programs": programs}, "float32"), {"multibuffer": multibuffer})
