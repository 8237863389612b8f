"""Element-wise operators: addition, ReLU with bias and scale, GELU in three forms, the element-wise part of LayerNorm.

All are memory-bound on a GPU. A problem with a dimension of size 0 is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    KernelSpec,
    Launch,
    Parameter,
    Problem,
    Target,
    Tensors,
    Tiling,
    Value,
    ceil_div,
)

__all__ = ["GELU_ERF", "GELU_RATIONAL", "GELU_TANH", "LAYER_NORM_APPLY", "RELU_BIAS_SCALE", "SCALE", "VECTOR_ADD"]

SCALE = 0.5
"""The factor for tuning and verifying `relu_bias_scale`; the kernel takes any."""

_JIT = "tilewise.kernels.jit.elementwise:"
_DTYPES = ("float32", "float16", "bfloat16")
_GRAIN = 64
"""On Ascend, blocks and sub-blocks of a flat tensor are multiples of this many elements: 256 bytes of float32, one
repeat of a vector instruction."""

_LEAST = 8
"""Grains of the smallest block and sub-block worth trying: a transfer of 2 KiB, which takes as long as its start."""


# Shared by flat tensors and tables -------------------------------------------------------------------------------

_WAVES = (1, 2, 3, 4, 6, 8)


def _splits(size: int, target: Target) -> list[int]:
    """Return the blocks that cut `size` into as many programs as there are cores, a fraction or a few times that."""
    counts = {target.cores * waves for waves in _WAVES} | {ceil_div(target.cores, part) for part in (2, 4, 5, 8, 10)}
    return sorted({ceil_div(size, count) for count in counts} | {size})


def _floor_power(size: int) -> int:
    return 1 << (size.bit_length() - 1)


def _trips(block: int, sub_block: int) -> int:
    return ceil_div(block, sub_block)


def _reach(config: Config, block: int, sub_block: int) -> int:
    """Return the elements of an axis that one program takes: whole sub-blocks unless they are contiguous."""
    return block if config["VARIANT"] == "blocks" else _trips(block, sub_block) * sub_block


def _on(family: str, values: Sequence[Value]) -> Callable[[Problem, Target], Sequence[Value]]:
    return lambda problem, target: values if target.family == family else []


_VARIANT = Parameter("VARIANT", lambda problem, target: ["blocks", "grid_stride"])
_OPTIONS = (
    Parameter("multibuffer", _on("ascend", [True, False]), role="option"),
    Parameter("num_warps", _on("nvidia", [1, 2, 4, 8, 16, 32]), role="option"),
    Parameter("NUM_STAGES", _on("nvidia", [1, 2, 4])),
)


def _work_tiles(problem: Problem, temporaries: int) -> int:
    """Return the bytes per element of temporaries, including the float32 copy of a 16-bit input."""
    return 4 * (temporaries + (problem.item_bytes < 4))


# Flat tensors ----------------------------------------------------------------------------------------------------


def _flat_block(problem: Problem, target: Target) -> Sequence[Value]:
    n = problem.dims["N"]
    if target.family == "ascend":
        units = ceil_div(n, _GRAIN)
        return [_GRAIN * block for block in _splits(units, target) if block >= min(units, _LEAST)]
    whole = powers_of_two(128, max(128, min(n, 65536)))
    persistent = {ceil_div(ceil_div(n, target.cores * waves), 8192) * 8192 for waves in (1, 2, 4, 8)}
    return sorted({*whole, *(block for block in persistent if block <= n)})


def _flat_sub_block(problem: Problem, target: Target) -> Sequence[Value]:
    n = problem.dims["N"]
    if target.family == "nvidia":
        return powers_of_two(128, max(128, min(n, 16384)))
    most = target.on_chip_bytes // (3 * 4 * _GRAIN)  # an addition needs at least three float32 tiles
    units = ceil_div(n, _GRAIN)
    parts = {ceil_div(block, part) for block in _splits(units, target) for part in (1, 2, 3, 4)}
    return [_GRAIN * u for u in sorted({*nice_numbers(min(units, most)), *parts}) if min(units, _LEAST) <= u <= most]


def _flat_tiling(inputs: int, temporaries: int) -> Callable[[Config, Problem], Tiling]:
    def tiling(config: Config, problem: Problem) -> Tiling:
        block, sub = int(config["BLOCK_SIZE"]), int(config["SUB_BLOCK_SIZE"])
        return Tiling(
            axes=(Axis("N", problem.dims["N"], _reach(config, block, sub), sub),),
            # Results are computed in float32 and narrowed in place; they are double-buffered like the inputs.
            streamed_bytes=sub * (inputs * problem.item_bytes + 4),
            resident_bytes=sub * _work_tiles(problem, temporaries),
            moved_back=sub <= problem.dims["N"],
        )

    return tiling


def _flat_launches(function: str, constants: Mapping[str, Value]) -> Callable[[Config, Problem], Sequence[Launch]]:
    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        n, block, sub = problem.dims["N"], int(config["BLOCK_SIZE"]), int(config["SUB_BLOCK_SIZE"])
        return [Launch(function, (ceil_div(n, _reach(config, block, sub)),), {"FITS": sub <= n, **constants})]

    return launches


def _flat_default(problem: Problem, target: Target) -> Config:
    n = problem.dims["N"]
    if target.family == "nvidia":
        size = min(1024, int(_flat_sub_block(problem, target)[-1]))
        return {
            "VARIANT": "blocks",
            "BLOCK_SIZE": size,
            "SUB_BLOCK_SIZE": size,
            "num_warps": max(1, size // 256),
            "NUM_STAGES": 1,
        }
    enough = _GRAIN * ceil_div(ceil_div(n, _GRAIN), 4 * target.cores)
    block = next(int(b) for b in _flat_block(problem, target) if int(b) >= enough)
    sub = max(int(s) for s in _flat_sub_block(problem, target) if int(s) <= min(block, 2048))
    return {"VARIANT": "blocks", "BLOCK_SIZE": block, "SUB_BLOCK_SIZE": sub, "multibuffer": True}


def _flat_holds(inputs: int, temporaries: int) -> Callable[[Config, Problem, Target], bool]:
    tiling = _flat_tiling(inputs, temporaries)

    def holds(config: Config, problem: Problem, target: Target) -> bool:
        tiles = tiling(config, problem)
        return target.family != "ascend" or tiles.streamed_bytes + tiles.resident_bytes <= target.on_chip_bytes

    return holds


def _flat_loops(config: Config, problem: Problem, target: Target) -> bool:
    block, sub = int(config["BLOCK_SIZE"]), int(config["SUB_BLOCK_SIZE"])
    return _loops_make_sense(config, target, _trips(block, sub), block % sub == 0)


def _loops_make_sense(config: Config, target: Target, trips: int, whole: bool) -> bool:
    """Return whether grid_stride and pipelined loads have a loop, and on NVIDIA a block is whole sub-blocks."""
    if config["VARIANT"] == "grid_stride" and trips == 1:
        return False
    if target.family == "ascend":
        return True
    return whole and (int(config["NUM_STAGES"]) == 1 or trips >= int(config["NUM_STAGES"]))


def _flat_registers(config: Config, problem: Problem, target: Target) -> bool:
    return _registers_hold(config, target, int(config["SUB_BLOCK_SIZE"]))


def _registers_hold(config: Config, target: Target, tile: int) -> bool:
    """Return whether a tile fits NVIDIA's registers: 4 to 64 elements per thread, or fewer for a single warp.

    A thread loads at most four float32 at once."""
    if target.family != "nvidia":
        return True
    threads = 32 * int(config["num_warps"])
    return 4 * threads <= tile <= 64 * threads or (threads == 32 and tile < 128)


def _stages_hold(config: Config, target: Target, loaded_bytes: int) -> bool:
    """Return whether pipelined loads fit half of NVIDIA's shared memory."""
    return target.family != "nvidia" or int(config["NUM_STAGES"]) * loaded_bytes <= target.on_chip_bytes // 2


def _flat(
    name: str,
    summary: str,
    function: str,
    reference: Callable[[Tensors], Any],
    *,
    inputs: Sequence[str],
    temporaries: int,
    flops: int,
    constants: Mapping[str, Value] | None = None,
) -> KernelSpec:
    """Make a spec over flat tensors of N elements. `temporaries`: float32 tiles on chip beside inputs and outputs, as
    the Ascend compiler plans them. `flops`: per element."""

    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        shape = (problem.dims["N"],)
        loaded = {argument: Buffer(shape, problem.dtype) for argument in inputs}
        return {**loaded, "out_ptr": Buffer(shape, problem.dtype, role="out")}

    def pipelined(config: Config, problem: Problem, target: Target) -> bool:
        return _stages_hold(config, target, int(config["SUB_BLOCK_SIZE"]) * problem.item_bytes * len(inputs))

    return KernelSpec(
        name=name,
        summary=summary,
        function=(_JIT + function,),
        dims=("N",),
        dtypes=_DTYPES,
        parameters=(
            _VARIANT,
            Parameter("BLOCK_SIZE", _flat_block),
            Parameter("SUB_BLOCK_SIZE", _flat_sub_block),
            *_OPTIONS,
        ),
        constraints=(
            Constraint(
                "SUB_BLOCK_SIZE <= BLOCK_SIZE", lambda c, p, t: int(c["SUB_BLOCK_SIZE"]) <= int(c["BLOCK_SIZE"])
            ),
            Constraint("grid_stride and NUM_STAGES need a loop, NVIDIA whole sub-blocks", _flat_loops),
            Constraint("the tiles fit on chip", _flat_holds(len(inputs), temporaries)),
            Constraint("4 to 64 elements of a tile a thread", _flat_registers),
            Constraint("pipelined loads fit half of shared memory", pipelined),
        ),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        launches=_flat_launches(_JIT + function, constants or {}),
        tiling=_flat_tiling(len(inputs), temporaries),
        reference=lambda tensors: {"out_ptr": reference(tensors)},
        flops=lambda problem: flops * problem.dims["N"],
        default=_flat_default,
    )


def _gelu(form: str, summary: str, reference: Callable[[Any], Any], *, temporaries: int, flops: int) -> KernelSpec:
    return _flat(
        f"gelu_{form}",
        summary,
        "gelu_kernel",
        lambda tensors: reference(tensors["x_ptr"]),
        inputs=("x_ptr",),
        temporaries=temporaries,
        flops=flops,
        constants={"FORM": form},
    )


def _gelu_tanh(x: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x, approximate="tanh")


def _gelu_erf(x: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x)


def _gelu_rational(x: Any) -> Any:
    """Return the kernel's own quotient: the reference is the kernel's formula, not the tanh that it approximates."""
    u = 0.7978845608028654 * (x + 0.044715 * x**3)
    t = u.square().clamp(max=16.0)
    tanh = (u * (945 + 105 * t + t * t) / (945 + 420 * t + 15 * t * t)).clamp(-1, 1)
    return 0.5 * x * (1 + tanh)


VECTOR_ADD = _flat(
    "vector_add",
    "out[n] = x[n] + y[n]",
    "vector_add_kernel",
    lambda tensors: tensors["x_ptr"] + tensors["y_ptr"],
    inputs=("x_ptr", "y_ptr"),
    temporaries=0,
    flops=1,
)

GELU_TANH = _gelu(
    "tanh",
    "out[n] = x[n] / 2 * (1 + tanh(sqrt(2 / pi) * (x[n] + 0.044715 * x[n]^3)))",
    _gelu_tanh,
    temporaries=0,
    flops=8,
)

GELU_RATIONAL = _gelu(
    "rational",
    "gelu_tanh with tanh as a quotient of polynomials, clamped to [-1, 1]: off by at most 0.0022",
    _gelu_rational,
    temporaries=3,
    flops=18,
)

GELU_ERF = _gelu(
    "erf", "out[n] = x[n] / 2 * (1 + erf(x[n] / sqrt(2))), the exact form", _gelu_erf, temporaries=3, flops=25
)


# Tables: rows of N columns ---------------------------------------------------------------------------------------


def _width(n: int, problem: Problem, target: Target) -> int:
    """Round the columns up to the part's alignment."""
    unit = max(1, target.align_bytes // problem.item_bytes)
    return ceil_div(n, unit) * unit


def _table_columns(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the column blocks; on Ascend the row in 1, 2, 4, 5, 8, 10, 16, ... equal parts, so that parts times rows
    make whole waves of programs."""
    n = problem.dims["N"]
    if target.family == "nvidia":
        low = min(_floor_power(n), 128)
        return powers_of_two(low, min(n, 4096))
    most = target.on_chip_bytes // (4 * problem.item_bytes)
    parts = sorted({count << shift for count in (1, 5) for shift in range(n.bit_length())})
    widths = {min(n, _width(ceil_div(n, part), problem, target)) for part in parts}
    return sorted(width for width in widths if min(n, 512) <= width <= most)


def _table_rows(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "ascend":
        return sorted({*_splits(m, target), *(ceil_div(m, count) for count in (1, 2, 4, 8))})
    persistent = {ceil_div(ceil_div(m, ceil_div(target.cores * waves, 2)), 16) * 16 for waves in (1, 2, 4, 8, 16)}
    return sorted({*_tile_rows(problem, target), *(block for block in persistent if block <= m)})


def _table_sub_rows(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "nvidia":
        return _tile_rows(problem, target)
    narrowest = int(_table_columns(problem, target)[0])
    return nice_numbers(min(m, target.on_chip_bytes // (2 * 4 * narrowest)))


def _tile_rows(problem: Problem, target: Target) -> list[int]:
    """Return NVIDIA's rows per tile: up to 64, or more of rows so narrow that 64 make a small tile."""
    widest = int(_table_columns(problem, target)[-1])
    return powers_of_two(1, min(_floor_power(problem.dims["M"]), max(64, _floor_power(8192 // widest))))


def _table_tiling(column_operands: int, row_operands: int) -> Callable[[Config, Problem], Tiling]:
    def tiling(config: Config, problem: Problem) -> Tiling:
        block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
        padded = ceil_div(cols * problem.item_bytes, 32) * 32 // problem.item_bytes
        narrow = problem.item_bytes < 4
        # A float32 tile is computed in place; a 16-bit one in a copy beside it.
        return Tiling(
            axes=(
                Axis("M", problem.dims["M"], _reach(config, block, sub), sub),
                Axis("N", problem.dims["N"], cols, cols),
            ),
            streamed_bytes=sub * (padded * (4 + 2 * narrow) + 4 * row_operands),
            resident_bytes=padded * column_operands * (4 + 2 * narrow) + 32 * sub * row_operands,
            moved_back=sub <= problem.dims["M"],
            in_place=not narrow,
        )

    return tiling


def _table_launches(function: str) -> Callable[[Config, Problem], Sequence[Launch]]:
    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        m, n = problem.dims["M"], problem.dims["N"]
        block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
        reach = _reach(config, block, sub)
        return [Launch(function, (ceil_div(m, reach) * ceil_div(n, cols),), {"FITS_M": sub <= m, "FITS_N": cols <= n})]

    return launches


def _table_default(problem: Problem, target: Target) -> Config:
    m, n = problem.dims["M"], problem.dims["N"]
    widths = [int(width) for width in _table_columns(problem, target)]
    least = next(width for width in widths if ceil_div(n, width) <= target.max_programs or width == widths[-1])
    cols = max(width for width in widths if width <= max(1024, least))
    if target.family == "nvidia":
        rows = min(_floor_power(m), _floor_power(max(1, 1024 // cols)))
        warps = max(w for w in (1, 2, 4) if w == 1 or 256 * w <= rows * cols)
        tiles = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols}
        return {"VARIANT": "blocks", **tiles, "num_warps": warps, "NUM_STAGES": 1}
    enough = ceil_div(m * ceil_div(n, cols), 4 * target.cores)
    rows = next(int(r) for r in _table_rows(problem, target) if int(r) >= min(m, enough))
    most = min(rows, max(1, 4096 // _width(cols, problem, target)))
    sub = max(int(s) for s in _table_sub_rows(problem, target) if int(s) <= most)
    tiles = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols}
    return {"VARIANT": "blocks", **tiles, "multibuffer": True}


def _table_loops(config: Config, problem: Problem, target: Target) -> bool:
    block, sub = int(config["BLOCK_SIZE_M"]), int(config["SUB_BLOCK_SIZE_M"])
    return _loops_make_sense(config, target, _trips(block, sub), block % sub == 0)


def _table_registers(config: Config, problem: Problem, target: Target) -> bool:
    return _registers_hold(config, target, int(config["SUB_BLOCK_SIZE_M"]) * int(config["BLOCK_SIZE_N"]))


def _table_stages(config: Config, problem: Problem, target: Target) -> bool:
    tile = int(config["SUB_BLOCK_SIZE_M"]) * int(config["BLOCK_SIZE_N"]) * problem.item_bytes
    return _stages_hold(config, target, tile)


def _table_grain(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether on Ascend tiles are large and waves few: small tiles always lose to larger ones, and more than
    eight waves of programs to fewer."""
    if target.family != "ascend":
        return True
    block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    programs = ceil_div(problem.dims["M"], block) * ceil_div(problem.dims["N"], cols)
    width = _width(cols, problem, target)
    coarse = sub * width >= min(1024, block * width // 2)
    return coarse and programs <= max(8 * target.cores, ceil_div(problem.dims["N"], cols))


def _table(
    name: str,
    summary: str,
    function: str,
    reference: Callable[[Tensors], Any],
    *,
    columns: Sequence[str],
    rows: Sequence[str] = (),
    flops: int,
    scalars: Mapping[str, float] | None = None,
) -> KernelSpec:
    """Make a spec over x[M, N], with operands of one value per column (in the problem's dtype) or per row (float32).
    `flops`: per element."""

    tiling = _table_tiling(len(columns), len(rows))

    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        m, n = problem.dims["M"], problem.dims["N"]
        return {
            "x_ptr": Buffer((m, n), problem.dtype),
            **{argument: Buffer((m,), "float32") for argument in rows},
            **{argument: Buffer((n,), problem.dtype) for argument in columns},
            "out_ptr": Buffer((m, n), problem.dtype, role="out"),
        }

    def holds(config: Config, problem: Problem, target: Target) -> bool:
        tiles = tiling(config, problem)
        return target.family != "ascend" or tiles.streamed_bytes + tiles.resident_bytes <= target.on_chip_bytes

    return KernelSpec(
        name=name,
        summary=summary,
        function=(_JIT + function,),
        dims=("M", "N"),
        dtypes=_DTYPES,
        parameters=(
            _VARIANT,
            Parameter("BLOCK_SIZE_M", _table_rows),
            Parameter("SUB_BLOCK_SIZE_M", _table_sub_rows),
            Parameter("BLOCK_SIZE_N", _table_columns),
            *_OPTIONS,
        ),
        constraints=(
            Constraint(
                "SUB_BLOCK_SIZE_M <= BLOCK_SIZE_M", lambda c, p, t: int(c["SUB_BLOCK_SIZE_M"]) <= int(c["BLOCK_SIZE_M"])
            ),
            Constraint("grid_stride and NUM_STAGES need a loop, NVIDIA whole sub-blocks", _table_loops),
            Constraint("tiles of 1024 elements or more, at most 8 programs a core", _table_grain),
            Constraint("the tiles fit on chip", holds),
            Constraint("4 to 64 elements of a tile a thread", _table_registers),
            Constraint("pipelined loads fit half of shared memory", _table_stages),
        ),
        buffers=buffers,
        scalars=lambda problem: {**problem.dims, **(scalars or {})},
        launches=_table_launches(_JIT + function),
        tiling=tiling,
        reference=lambda tensors: {"out_ptr": reference(tensors)},
        flops=lambda problem: flops * problem.dims["M"] * problem.dims["N"],
        default=_table_default,
    )


def _relu_bias_scale(tensors: Tensors) -> Any:
    return (tensors["x_ptr"] + tensors["bias_ptr"]).relu() * SCALE


def _layer_norm_apply(tensors: Tensors) -> Any:
    x, mean, rstd = tensors["x_ptr"], tensors["mean_ptr"][:, None], tensors["rstd_ptr"][:, None]
    return ((x - mean) * rstd * tensors["weight_ptr"] + tensors["bias_ptr"]).to(x.dtype)


RELU_BIAS_SCALE = _table(
    "relu_bias_scale",
    "out[m, n] = relu(x[m, n] + bias[n]) * scale",
    "relu_bias_scale_kernel",
    _relu_bias_scale,
    columns=("bias_ptr",),
    flops=3,
    scalars={"scale": SCALE},
)

LAYER_NORM_APPLY = _table(
    "layer_norm_apply",
    "out[m, n] = (x[m, n] - mean[m]) * rstd[m] * weight[n] + bias[n]",
    "layer_norm_apply_kernel",
    _layer_norm_apply,
    columns=("weight_ptr", "bias_ptr"),
    rows=("mean_ptr", "rstd_ptr"),
    flops=4,
)
