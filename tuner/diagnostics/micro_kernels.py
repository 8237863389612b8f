"""Micro-kernels timed by calibration. Each is slow for one reason, so together they determine the model's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Parameter, Problem, Tiling, Value

__all__ = ["Probe", "probes"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One launch of one micro-kernel. Its amounts are the problem's dims; its operation and compile options are the
    config."""

    name: str
    spec: KernelSpec
    problem: Problem
    config: Mapping[str, Value]


def _spec(
    attribute: str,
    function: str,
    sizes: Sequence[str],
    buffers: Callable[[Mapping[str, int]], Mapping[str, Buffer]],
    choices: Sequence[Parameter] = (),
    matrix_dtype: Callable[[Problem], str] | None = None,
) -> KernelSpec:
    """Make the spec that this file binds to `attribute`. `sizes` names constexpr arguments, each a dimension."""
    named = f"tilewise.kernels.jit.micro_kernels:{function}"

    def launches(config: Config, problem: Problem) -> list[Launch]:
        return [Launch(named, (problem.dims["programs"],), {size: problem.dims[size] for size in sizes})]

    return KernelSpec(
        name=function,
        summary="a micro-kernel that calibration times",
        function=(named,),
        dims=("programs", *sizes),
        dtypes=("float32",),
        parameters=(*choices, Parameter("multibuffer", lambda problem, target: [True, False], role="option")),
        buffers=lambda problem: buffers(problem.dims),
        scalars=lambda problem: {},
        launches=launches,
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {},
        flops=lambda problem: 1,
        matrix_dtype=matrix_dtype,
        default=lambda problem, target: {"multibuffer": True},
        origin=f"{__file__}:{attribute}",
    )


OPERATIONS = ("scale", "add", "exp", "log", "sqrt", "divide", "cast", "select")

EMPTY = _spec(
    "EMPTY",
    "probe_empty_kernel",
    ("WIDTH",),
    lambda dims: {"out_ptr": Buffer((dims["programs"] * dims["WIDTH"],), "float32", role="out")},
)
LOAD = _spec(
    "LOAD",
    "probe_load_kernel",
    ("TILES", "REPEATS", "ROWS", "COLS", "PITCH"),
    lambda dims: {
        "x_ptr": Buffer((dims["programs"] * dims["TILES"] * dims["ROWS"] * dims["PITCH"],), "float32"),
        "out_ptr": Buffer((dims["programs"] * dims["ROWS"],), "float32", role="out"),
    },
)
STORE = _spec(
    "STORE",
    "probe_store_kernel",
    ("TILES", "REPEATS", "WIDTH"),
    lambda dims: {"out_ptr": Buffer((dims["programs"] * dims["TILES"] * dims["WIDTH"],), "float32", role="out")},
)
COPY = _spec(
    "COPY",
    "probe_copy_kernel",
    ("TILES", "WIDTH"),
    lambda dims: {
        "x_ptr": Buffer((dims["programs"] * dims["TILES"] * dims["WIDTH"],), "float32"),
        "out_ptr": Buffer((dims["programs"] * dims["TILES"] * dims["WIDTH"],), "float32", role="out"),
    },
)
CHAIN = _spec(
    "CHAIN",
    "probe_chain_kernel",
    ("TRIPS", "WIDTH"),
    lambda dims: {
        "x_ptr": Buffer((dims["WIDTH"],), "float32"),
        "out_ptr": Buffer((dims["WIDTH"],), "float32", role="out"),
    },
    (Parameter("OP", lambda problem, target: OPERATIONS),),
)
ATOMIC = _spec(
    "ATOMIC",
    "probe_atomic_kernel",
    ("WIDTH",),
    lambda dims: {
        "x_ptr": Buffer((dims["WIDTH"],), "float32"),
        "out_ptr": Buffer((1,), "float32", role="out", initial=0.0),
    },
)


def _tiles(dims: Mapping[str, int], operand: int, results: int) -> Mapping[str, Buffer]:
    """Return the buffers of products of tiles: the left operand's elements, one right operand, and result tiles."""
    return {
        "a_ptr": Buffer((operand,), "float16"),
        "b_ptr": Buffer((dims["K"] * dims["N"],), "float16"),
        "out_ptr": Buffer((dims["programs"] * results * dims["M"] * dims["N"],), "float32", role="out"),
    }


def _in_16_bits(problem: Problem) -> str:
    return "float16"


PRODUCT = _spec(
    "PRODUCT",
    "probe_product_kernel",
    ("TRIPS", "M", "N", "K"),
    lambda dims: _tiles(dims, dims["M"] * dims["K"], 1),
    (Parameter("EPILOGUE", lambda problem, target: [False, True]),),
    _in_16_bits,
)
OPERAND = _spec(
    "OPERAND",
    "probe_operand_kernel",
    ("TILES", "REPEATS", "M", "N", "K", "PITCH"),
    lambda dims: _tiles(dims, dims["programs"] * dims["TILES"] * dims["M"] * dims["PITCH"], 1),
    matrix_dtype=_in_16_bits,
)
RESULT = _spec(
    "RESULT",
    "probe_result_kernel",
    ("TILES", "M", "N", "K"),
    lambda dims: _tiles(dims, dims["M"] * dims["K"], dims["TILES"]),
    matrix_dtype=_in_16_bits,
)


def probes(cores: int) -> Sequence[Probe]:
    """Return all probes for a part with this number of vector cores, and half as many cube cores.

    Some read their buffers many times, so emptying the cache beforehand makes no difference. One reads a buffer larger
    than any cache.
    """
    empty = [_empty(programs) for programs in (1, cores, 10 * cores, 50 * cores)]
    loads = [
        _load("load, one core", 1, rows=1, cols=8192, repeats=40),
        _load("load, half the cores", cores // 2, rows=1, cols=8192, repeats=40),
        _load("load, all cores", cores, rows=1, cols=8192, repeats=40),
        _load("load, short tiles", 1, rows=1, cols=512, repeats=80),
        _load("load, short tiles, all cores", cores, rows=1, cols=2048, repeats=80),
        _load("load, rows of 1 KB", 1, rows=32, cols=256, pitch=512, repeats=40),
        _load("load, rows of 256 B", 1, rows=64, cols=64, pitch=512, repeats=40),
        _load("load, rows of 128 B, all cores", cores, rows=128, cols=32, pitch=128, repeats=80),
        _load("load, rows off the blocks", cores, rows=32, cols=256, pitch=513, repeats=40),
        _load("load, one after the other", 1, rows=1, cols=1024, repeats=40, multibuffer=False),
        _load("load, short programs", 10 * cores, rows=1, cols=4096, tiles=1, repeats=4),
        _load("load, from global memory", cores, rows=1, cols=8192, tiles=400, repeats=1),
    ]
    stores = [_store("store, one core", 1), _store("store, all cores", cores), _copy("copy, global memory", cores)]
    chains = [_chain(op) for op in OPERATIONS]
    atomics = [_atomic(programs) for programs in (cores, 10 * cores)]
    return [*empty, *loads, *stores, *chains, *atomics, *_cube_probes(cores // 2)]


def _cube_probes(cores: int) -> Sequence[Probe]:
    """Return the probes of cube cores. The last one has vector cores beside them."""
    return [
        _product("product, one trip", 1, rows=16, cols=16, depth=16),
        _product("products, large tiles", 200, rows=128, cols=256, depth=128),
        _product("products, tall tiles", 200, rows=256, cols=16, depth=128),
        _product("products, wide tiles", 200, rows=16, cols=256, depth=128),
        _operand("operands, one core", 1, rows=256, depth=256),
        _operand("operands, all cores", cores, rows=128, depth=512),
        _operand("operands, rows of 64 B", 1, rows=256, depth=32, pitch=512),
        _operand("operands, far rows", 1, rows=32, depth=128, pitch=65536, tiles=1),
        _probe("results, one core", RESULT, {"programs": 1, "TILES": 100, "M": 128, "N": 256, "K": 16}),
        _product("product, squared", 1, rows=16, cols=16, depth=16, epilogue=True),
    ]


def _empty(programs: int) -> Probe:
    return _probe(f"empty, {programs} programs", EMPTY, {"programs": programs, "WIDTH": 8})


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
    sizes = {"TILES": tiles, "REPEATS": repeats, "ROWS": rows, "COLS": cols, "PITCH": pitch or cols}
    return _probe(name, LOAD, {"programs": programs, **sizes}, multibuffer=multibuffer)


def _store(name: str, programs: int) -> Probe:
    return _probe(name, STORE, {"programs": programs, "TILES": 8, "REPEATS": 40, "WIDTH": 8192})


def _copy(name: str, programs: int) -> Probe:
    """Copy more than any cache holds."""
    return _probe(name, COPY, {"programs": programs, "TILES": 200, "WIDTH": 8192})


def _chain(op: str) -> Probe:
    return _probe(op, CHAIN, {"programs": 1, "TRIPS": 200, "WIDTH": 8192}, OP=op)


def _atomic(programs: int) -> Probe:
    return _probe(f"atomic, {programs} programs", ATOMIC, {"programs": programs, "WIDTH": 64})


def _probe(
    name: str, spec: KernelSpec, dims: Mapping[str, int], *, multibuffer: bool = True, **choices: Value
) -> Probe:
    return Probe(name, spec, Problem(spec.name, dims, "float32"), {**choices, "multibuffer": multibuffer})


def _product(name: str, trips: int, *, rows: int, cols: int, depth: int, epilogue: bool = False) -> Probe:
    sizes = {"TRIPS": trips, "M": rows, "N": cols, "K": depth}
    return _probe(name, PRODUCT, {"programs": 1, **sizes}, EPILOGUE=epilogue)


def _operand(name: str, programs: int, *, rows: int, depth: int, pitch: int | None = None, tiles: int = 8) -> Probe:
    sizes = {"TILES": tiles, "REPEATS": 40, "M": rows, "N": 16, "K": depth, "PITCH": pitch or depth}
    return _probe(name, OPERAND, {"programs": programs, **sizes})
