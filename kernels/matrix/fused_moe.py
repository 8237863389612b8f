"""A layer of experts: `out[m] = sum over t of weight[m, t] * (silu(x[m] @ g.T) * (x[m] @ u.T)) @ d.T`, where g, u and d
are the matrices of expert `topk_ids[m, t]`.

Sizes are those of vLLM's and SGLang's tables: M tokens of K elements, E experts of which each token has TOPK, and
matrices w13 [E, 2 N, K], first g and then u, and w2 [E, K, N]. Both projections are launched with one config, whose
parameters have vLLM's names, and share the pairs of tokens and experts, sorted into blocks of `BLOCK_SIZE_M`. The
config's time has everything in it from sorting to the sum over TOPK, which has a fixed order: there are no atomics.

The flag `quant` says how the matrices are stored: in the dtype of x; as float8_e4m3fn with a scale for each 128 x 128
elements (`fp8_w8a8_128x128`); or as int8 with a scale for each row (`int8_w8a8`). The inputs of both projections are
then quantised on the way, with a scale for each 128 elements of a row, or for each row.

On Ascend (`VARIANT=sorted`, see `jit/matrix/sorted_experts.py`), rows are sorted too, so that a cube core loads whole
tiles; int8 products are scaled by vector cores between the launches.

Tuning draws the experts of each token evenly or, with `skewed`, with chances as 1, 1/2, 1/3, ... Only the matrices of
experts that the routing is expected to hit count as moved.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewise.kernels.candidate_values import only_ascend, only_nvidia, powers_of_two
from tilewise.kernels.matrix.cube_tiles import cube_tile_holds, default_cube_tile, depths, sides
from tilewise.kernels.matrix.routing import SKEWED, chances, draw_experts, expected_tiles, experts_hit, row_tiles
from tilewise.kernels.matrix.tile_table import TABLE, table_buffers, tile_table
from tilewise.kernels.matrix.tiles import (
    EIGHT_BIT_FLOATS,
    buffered,
    draw_scales,
    operands_hold,
    scale_of_each,
    sums_hold,
    up_to,
)
from tilewise.kernels.spec import (
    ITEM_BYTES,
    Axis,
    Buffer,
    Config,
    Constraint,
    Dot,
    Flag,
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

__all__ = ["SPEC"]

_JIT = "tilewise.kernels.jit.matrix.fused_moe:moe_"
_COUNT, _SORT, _QUANTIZE, _UP, _ACTIVATE, _DOWN, _SUM = (
    f"{_JIT}{name}_kernel" for name in ("count", "sort", "quantize", "up", "activate", "down", "sum")
)

_SORTED = "tilewise.kernels.jit.matrix.sorted_experts:moe_"
_SLICE, _BASES, _PLACE, _SPREAD, _SORTED_UP, _GATE, _REQUANTIZE, _SORTED_DOWN, _COMBINE = (
    f"{_SORTED}{name}_kernel"
    for name in ("slice", "bases", "place", "spread", "sorted_up", "gate", "requantize", "sorted_down", "combine")
)

_FP8, _INT8 = "fp8_w8a8_128x128", "int8_w8a8"
_QUANT = Flag("quant", ("none", _FP8, _INT8))

_GROUP = 128
"""Elements that share a scale in `fp8_w8a8_128x128`, along each axis of a matrix."""

_NAMES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
_GROUPS = (1, 4, 16, 32, 64)

_STEP = 1024
"""Pairs that a program looks at at a time to sort them."""

_TILE_M, _TILE_N = 4, 256
"""The tile of the launches that multiply no matrices: many programs for a few rows, and loads of 16 bytes per thread.
A program that needs whole rows takes `_LONG_N` columns of one at a time."""

_LONG_N = 2048

_SLICES = 64
"""Slices into which the pairs are divided to find their places, at most."""

_STEP_PLACES = 16
"""Pairs whose places a program finds at a time: it compares each with 64 numbers, in memory of about 100 bytes each."""

_ROW_PROGRAMS = 240
"""Programs that share the rows of a launch on vector cores, at most: as many for each of 40 cores and of 48."""

_MOST_EXPERTS = 512
"""Experts on Ascend, which a program compares with tiles all at once."""

_ROUNDED = 5.0
"""Half units in the last place, at the RMS, that an output may be off because 16-bit numbers are stored on the way: the
results of both projections, and those of the activation. Each is off by 0.42 of a half unit on average, and four such
errors add up to 0.84. But their size follows that of a token's own numbers, and some tokens' are large: of up to 16
million outputs on an H200, drawn in seven ways, the worst was off by 6.1, with the 2 that `comparison.py` allows. A
column that is left out of 14336 costs the worst of them 11."""

_REQUANTISED = {"none": 0.0, _FP8: 0.25, _INT8: 0.13}
"""How far an output may be off, relative to the RMS, because the inputs of the second projection are quantised: where
the largest of a group rounds to another 16-bit number, the whole group has another scale, and each number another
rounding error. Those of 8-bit floats are up to 2^-4 of a number, 3.6% in the RMS; those of int8 up to half of 1/127 of
the largest, here about 8 times the RMS, which is 1.8%. The difference of two errors is 1.4 times as large, and the
largest of some hundred thousand outputs is five standard deviations off. On an H200, 16% and 5.4% were seen."""


def _sizes(problem: Problem) -> tuple[int, int, int, int, int]:
    m, e, n, k, topk = (problem.dims[name] for name in ("M", "E", "N", "K", "TOPK"))
    return m, e, n, k, topk


def _stored(problem: Problem) -> str:
    """Return the dtype of the matrices, in which products are multiplied."""
    return {_FP8: "float8_e4m3fn", _INT8: "int8"}.get(str(_QUANT.of(problem)), problem.dtype)


def _blocks(config: Config, problem: Problem) -> int:
    """Return the most blocks that the pairs of tokens and experts can have, whatever the routing."""
    m, e, _, _, topk = _sizes(problem)
    return row_tiles(m * topk, e, int(config["BLOCK_SIZE_M"]))


def _is_sorted(config: Config) -> bool:
    return config.get("VARIANT") == "sorted"


def _slices(problem: Problem) -> tuple[int, int]:
    """Return the number of slices of the pairs, and their size."""
    m, _, _, _, topk = _sizes(problem)
    size = ceil_div(m * topk, _SLICES * _STEP_PLACES) * _STEP_PLACES
    return ceil_div(m * topk, size), size


# Tensors ---------------------------------------------------------------------------------------------------------


def _draw_matrices(tensor: Any, generator: Any, *, size: float) -> None:
    """Draw normal numbers of this size, in 8 bits by way of float32."""
    import torch

    drawn = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device).normal_(generator=generator)
    drawn *= size
    tensor.copy_(drawn.round_().clamp_(-127, 127) if tensor.dtype is torch.int8 else drawn)


def _fill(tensors: Tensors, problem: Problem, generator: Any) -> None:
    """Write the experts of each token, and weights that add up to 1."""
    m, e, _, _, topk = _sizes(problem)
    ids, weights = tensors["topk_ids_ptr"], tensors["topk_weights_ptr"]
    ids.copy_(draw_experts(m, e, topk, generator, skewed=bool(SKEWED.of(problem))))
    weights.uniform_(0.1, 1.0, generator=generator)
    weights /= weights.sum(-1, keepdim=True)


def _matrices(name: str, rows: int, depth: int, problem: Problem) -> dict[str, Buffer]:
    """Return the experts' matrices [E, rows, depth] and their scales, so drawn that products are small: the activation
    multiplies two of them, and float16 has to hold that for inputs of a hundred too."""
    m, e, _, _, topk = _sizes(problem)
    hit = experts_hit(m, e, topk, skewed=bool(SKEWED.of(problem)))
    stored, size = _stored(problem), 0.25 * depth**-0.5
    drawn = {"float8_e4m3fn": 1.0, "int8": 32.0}.get(stored, size)

    def buffer(shape: tuple[int, ...], dtype: str, draw: Any) -> Buffer:
        whole = Buffer((e, *shape), dtype)
        return Buffer(whole.shape, dtype, draw=draw, moved_bytes=round(hit * whole.bytes / e))

    found = {f"{name}_ptr": buffer((rows, depth), stored, functools.partial(_draw_matrices, size=drawn))}
    shapes = {_FP8: (ceil_div(rows, _GROUP), ceil_div(depth, _GROUP)), _INT8: (rows,)}
    if shape := shapes.get(str(_QUANT.of(problem))):
        found[f"{name}_scale_ptr"] = buffer(shape, "float32", functools.partial(draw_scales, size=size / drawn))
    return found


def _tolerance(problem: Problem) -> float:
    rounded = _ROUNDED * (2.0**-8 if problem.dtype == "bfloat16" else 2.0**-11)
    return rounded + _REQUANTISED[str(_QUANT.of(problem))]


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, _, n, k, topk = _sizes(problem)
    return {
        "x_ptr": Buffer((m, k), problem.dtype),
        **_matrices("w13", 2 * n, k, problem),
        **_matrices("w2", k, n, problem),
        "topk_weights_ptr": Buffer((m, topk), "float32"),
        "topk_ids_ptr": Buffer((m, topk), "int32"),
        "out_ptr": Buffer((m, k), problem.dtype, role="out", terms=max(k, n), tolerance=_tolerance(problem)),
    }


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    m, e, n, k, topk = _sizes(problem)
    blocks, pairs, stored = _blocks(config, problem), m * topk, _stored(problem)
    if _is_sorted(config):
        return _sorted_scratch(blocks, problem)
    return {
        "counts_ptr": Buffer((e,), "int32", role="out"),
        "pairs_ptr": Buffer((blocks * int(config["BLOCK_SIZE_M"]),), "int32", role="out"),
        "experts_ptr": Buffer((blocks,), "int32", role="out"),
        "blocks_ptr": Buffer((1,), "int32", role="out"),
        "gate_up_ptr": Buffer((pairs, 2 * n), problem.dtype, role="out"),
        "activated_ptr": Buffer((pairs, n), stored, role="out"),
        "parts_ptr": Buffer((pairs, k), problem.dtype, role="out"),
        **_quantised("activated_scale_ptr", pairs, n, problem),
        **({} if stored == problem.dtype else {"small_x_ptr": Buffer((m, k), stored, role="out")}),
        **_quantised("x_scale_ptr", m, k, problem),
    }


def _sorted_scratch(blocks: int, problem: Problem) -> Mapping[str, Buffer]:
    """Return the buffers of the variant `sorted`; sums of int8 products are scaled after they were stored."""
    m, e, n, k, topk = _sizes(problem)
    pairs, stored, (slices, _) = m * topk, _stored(problem), _slices(problem)
    sums = "int32" if stored == "int8" else problem.dtype
    return {
        "counts_ptr": Buffer((slices, e), "int32", role="out"),
        "bases_ptr": Buffer((slices, e), "int32", role="out"),
        "offsets_ptr": Buffer((e + 1,), "int32", role="out"),
        "places_ptr": Buffer((pairs,), "int32", role="out"),
        **table_buffers(blocks),
        "sorted_ptr": Buffer((pairs, k), stored, role="out"),
        "gate_up_ptr": Buffer((pairs, 2 * n), sums, role="out"),
        "activated_ptr": Buffer((pairs, n), stored, role="out"),
        "parts_ptr": Buffer((pairs, k), sums, role="out"),
        **_quantised("activated_scale_ptr", pairs, n, problem),
        **({} if stored == problem.dtype else {"small_x_ptr": Buffer((m, k), stored, role="out")}),
        **_quantised("x_scale_ptr", m, k, problem),
    }


def _quantised(name: str, rows: int, depth: int, problem: Problem) -> dict[str, Buffer]:
    """Return the scales of a projection's input, if it has any."""
    shapes = {_FP8: (rows, ceil_div(depth, _GROUP)), _INT8: (rows,)}
    shape = shapes.get(str(_QUANT.of(problem)))
    return {name: Buffer(shape, "float32", role="out")} if shape else {}


def _constants(problem: Problem) -> Mapping[str, Value | None]:
    quant = _QUANT.of(problem)
    scaled = ("x_scale_ptr", "w13_scale_ptr", "activated_scale_ptr", "w2_scale_ptr", "small_x_ptr")
    missing = dict.fromkeys(scaled) if quant == "none" else {}
    return {**missing, "QUANT": quant, "GROUP": _GROUP if quant == _FP8 else 0}


def _sorted_launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, e, n, k, topk = _sizes(problem)
    slices, size = _slices(problem)
    small, blocks = _QUANT.of(problem) == _INT8, _blocks(config, problem)
    each = {"SLICE": size, "STEP": _STEP_PLACES}

    def by_row(function: str, rows: int, cols: int) -> Launch:
        taken = ceil_div(rows, _ROW_PROGRAMS)
        tile = min(_LONG_N, max(16, powers_of_two(1, cols)[-1]))
        return Launch(function, (ceil_div(rows, taken),), {"ROWS": taken, "TILE": tile})

    def projection(function: str, cols: int) -> Launch:
        tiles = blocks * ceil_div(cols, int(config["BLOCK_SIZE_N"]))
        return Launch(function, (min(tiles, int(config["PROGRAMS"]) or tiles),), {"INTEGER": small})

    spread = by_row(_SPREAD, m, k)
    return [
        Launch(_SLICE, (slices,), each),
        Launch(_BASES, (slices,), {"SLICES": slices, "BLOCK_E": powers_of_two(1, e)[-1]}),
        Launch(_PLACE, (slices,), each),
        tile_table(blocks, e, int(config["BLOCK_SIZE_M"])),
        *([Launch(_QUANTIZE, (m, 1), {"TILE_M": 1, "TILE_N": _LONG_N})] if small else []),
        replace(spread, constants={**spread.constants, "SMALL": small}),
        projection(_SORTED_UP, 2 * n),
        by_row(_REQUANTIZE if small else _GATE, m * topk, n),
        projection(_SORTED_DOWN, k),
        by_row(_COMBINE, m, k),
    ]


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    if _is_sorted(config):
        return _sorted_launches(config, problem)
    m, e, n, k, topk = _sizes(problem)
    pairs = m * topk
    each = {"STEP": _STEP, "BLOCK_E": powers_of_two(1, e)[-1]}
    tile = {"TILE_M": _TILE_M, "TILE_N": _TILE_N}
    prepared = {"TILE_M": 1, "TILE_N": _LONG_N} if _QUANT.of(problem) == _INT8 else tile

    def rows_of(function: str, rows: int, cols: int, sides: Mapping[str, int]) -> Launch:
        whole = sides["TILE_M"] == 1
        return Launch(function, (ceil_div(rows, sides["TILE_M"]), 1 if whole else ceil_div(cols, _TILE_N)), sides)

    return [
        Launch(_COUNT, (e,), each),
        Launch(_SORT, (e,), each),
        *([] if _QUANT.of(problem) == "none" else [rows_of(_QUANTIZE, m, k, prepared)]),
        _projection(_UP, m, 2 * n, k, config, problem),
        rows_of(_ACTIVATE, pairs, n, prepared),
        _projection(_DOWN, pairs, k, n, config, problem),
        rows_of(_SUM, m, k, tile),
    ]


def _projection(function: str, rows: int, cols: int, depth: int, config: Config, problem: Problem) -> Launch:
    """Return the launch of a projection of `rows` different rows."""
    block_n, block_k = int(config["BLOCK_SIZE_N"]), int(config["BLOCK_SIZE_K"])
    constants = {
        "EVEN_COLS": cols % block_n == 0,
        "EVEN_DEPTH": depth % block_k == 0,
        "WIDE": max(rows, cols) * depth >= 2**31,
    }
    return Launch(function, (_blocks(config, problem) * ceil_div(cols, block_n),), constants)


def _tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling of the first projection, half as deep again: for the second, which has half its operations."""
    m, experts, n, k, topk = _sizes(problem)
    block_m, block_n, block_k = (int(config[f"BLOCK_SIZE_{name}"]) for name in "MNK")
    blocks, item, pairs = _blocks(config, problem), ITEM_BYTES[_stored(problem)], m * topk
    depth = k + ceil_div(k, 2)
    tiles = blocks * (ceil_div(2 * n, block_n) * k + ceil_div(k, block_n) * n)
    between = 2 * problem.item_bytes * pairs * (3 * n + k)
    return Tiling(
        axes=(
            Axis("rows", blocks * block_m, block_m, block_m),
            Axis("depth", depth, ceil_div(depth, block_k) * block_k, block_k, along="K"),
            Axis("columns", 2 * n, block_n, block_n, along="N"),
        ),
        streamed_bytes=(block_m + block_n) * block_k * item,
        resident_bytes=4 * block_m * block_n,
        traffic=max(1.0, (tiles * (block_m + block_n) * item + between) / SPEC.bytes(problem)),
        dot=Dot(
            block_m,
            block_n,
            block_k,
            stages=buffered(block_m, int(config.get("num_stages", 2))),
            group=min(int(config["GROUP_SIZE_M"]), ceil_div(blocks, experts)),  # one expert's blocks share columns
            programs=int(config.get("PROGRAMS", 0)),
            filled=expected_tiles(m, experts, topk, block_m, skewed=bool(SKEWED.of(problem))) / blocks,
            row_bytes=block_k * item,
            operand_rows=block_m + block_n,
            along_depth=True,
            alone=_is_sorted(config),
        ),
    )


# The reference ---------------------------------------------------------------------------------------------------


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    x, n = _quantised_rows(inputs["x_ptr"], problem), problem.dims["N"]
    out = torch.zeros_like(x)
    for expert in inputs["topk_ids_ptr"].unique().tolist():
        tokens, place = (inputs["topk_ids_ptr"] == expert).nonzero(as_tuple=True)
        gate_up = _rounded(x[tokens] @ _matrix("w13", expert, inputs, problem).T, problem)
        activated = _rounded(torch.nn.functional.silu(gate_up[:, :n]) * gate_up[:, n:], problem)
        part = _quantised_rows(activated, problem) @ _matrix("w2", expert, inputs, problem).T
        weights = inputs["topk_weights_ptr"][tokens, place]
        out.index_add_(0, tokens, (part * weights[:, None]).to(out.dtype))
    return {"out_ptr": out}


def _matrix(name: str, expert: int, inputs: Tensors, problem: Problem) -> Any:
    """Return an expert's matrix with its scales, in the dtype of x."""
    matrix = inputs[f"{name}_ptr"][expert].to(inputs["x_ptr"].dtype)
    if _QUANT.of(problem) == "none":
        return matrix
    scale = inputs[f"{name}_scale_ptr"][expert].to(matrix.dtype)
    if _QUANT.of(problem) == _INT8:
        return matrix * scale[:, None]
    return matrix * scale_of_each(scale, matrix.shape, _GROUP)


def _rounded(x: Any, problem: Problem) -> Any:
    """Return x as it is stored before it is quantised: a step of the quantisation depends on every bit. Without
    quantisation the reference is exact."""
    import torch

    return x if _QUANT.of(problem) == "none" else x.to(getattr(torch, problem.dtype)).to(x.dtype)


def _quantised_rows(x: Any, problem: Problem) -> Any:
    """Return the numbers that the quantised x stands for."""
    import torch

    quant = _QUANT.of(problem)
    if quant == "none":
        return x
    group, largest = (_GROUP, 448.0) if quant == _FP8 else (x.shape[1], 127.0)
    grouped = torch.nn.functional.pad(x, (0, -x.shape[1] % group)).reshape(x.shape[0], -1, group)
    scale = grouped.abs().amax(-1, keepdim=True).clamp(min=1e-30) / largest
    steps = (grouped / scale).to(torch.float8_e4m3fn).to(x.dtype) if quant == _FP8 else (grouped / scale).round()
    return (steps * scale).flatten(1)[:, : x.shape[1]]


# The space -------------------------------------------------------------------------------------------------------


def _rows(problem: Problem, chance: float) -> int:
    """Return the rows of an expert that a token chooses with this chance."""
    return max(1, round(problem.dims["M"] * chance))


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    """Return heights up to that of the most frequent expert's rows, and vLLM's own."""
    m, e, _, _, topk = _sizes(problem)
    if target.family == "ascend":
        return sides(m)
    rows = _rows(problem, max(chances(e, topk, skewed=bool(SKEWED.of(problem)))))
    return up_to(max(rows, _untuned(problem)["BLOCK_SIZE_M"]), 16, 256)


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend":
        return sides(max(2 * problem.dims["N"], problem.dims["K"]))
    return up_to(max(2 * problem.dims["N"], problem.dims["K"]), 32, 256)


def _block_k(problem: Problem, target: Target) -> Sequence[Value]:
    """Return blocks of 64 to 512 bytes of a row, of which a scale has all elements."""
    item = ITEM_BYTES[_stored(problem)]
    if target.family == "ascend":
        return depths(max(problem.dims["N"], problem.dims["K"]), item)
    most = _GROUP if _QUANT.of(problem) == _FP8 else 256
    return up_to(max(problem.dims["N"], problem.dims["K"]), 64 // item, most)


def _programs(problem: Problem, target: Target) -> Sequence[Value]:
    """Return how many programs share the tiles of a projection on Ascend, 0 for one each."""
    return [0, target.matrix_cores] if target.family == "ascend" else []


def _programs_hold(config: Config, problem: Problem, target: Target) -> bool:
    tiles = _blocks(config, problem) * ceil_div(2 * problem.dims["N"], int(config["BLOCK_SIZE_N"]))
    return int(config.get("PROGRAMS", 0)) < tiles


def _experts_hold(config: Config, problem: Problem, target: Target) -> bool:
    return not _is_sorted(config) or problem.dims["E"] <= _MOST_EXPERTS


def _operands_hold(config: Config, problem: Problem, target: Target) -> bool:
    tiling = _tiling(config, problem)
    return cube_tile_holds(tiling) if _is_sorted(config) else operands_hold(tiling, target)


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    if target.family != "nvidia":
        return True
    return sums_hold(int(config["BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_N"]), int(config["num_warps"]))


def _untuned(problem: Problem) -> dict[str, int]:
    """Return what vLLM 0.33 launches where it finds no table (its `get_default_config`, on NVIDIA)."""
    m, e, *_ = _sizes(problem)
    if _QUANT.of(problem) == _FP8:
        stages = 4 if m <= 4 else 3
        sides = (16 if m <= 64 else 64, 64 if m <= 8 else 128, 128, 1 if m <= 16 else 32)
        return dict(zip(_NAMES, (*sides, 4, stages), strict=True))
    rows = next((rows for rows, most in ((16, 32), (32, 96), (64, 512)) if m <= most), 128)
    cols, depth = (64, 128) if m <= 64 else (128, 64)
    group = 16 if m // e > 128 else 1
    return dict(zip(_NAMES, (rows, cols, depth, group, 4 if m <= 128 else 8, 4 if m <= 32 else 3), strict=True))


def _default(problem: Problem, target: Target) -> Config:
    """Return vLLM's own config, or the nearest in the space that is no larger; on Ascend a tile for average experts."""
    if target.family == "ascend":
        return _sorted_default(problem, target)
    wanted = _untuned(problem)
    offered = {
        "BLOCK_SIZE_M": _block_m(problem, target),
        "BLOCK_SIZE_N": _block_n(problem, target),
        "BLOCK_SIZE_K": _block_k(problem, target),
    }
    sides = {name: max(int(v) for v in values if int(v) <= wanted[name]) for name, values in offered.items()}
    config: dict[str, Value] = {**sides}
    config["GROUP_SIZE_M"] = max(
        group for group in _GROUPS if group <= min(wanted["GROUP_SIZE_M"], _blocks(config, problem))
    )
    if target.family == "nvidia":
        least = sides["BLOCK_SIZE_M"] * sides["BLOCK_SIZE_N"] < 2 * 32 * wanted["num_warps"]
        config |= {"num_warps": 4 if least else wanted["num_warps"], "num_stages": wanted["num_stages"]}
    return config


def _sorted_default(problem: Problem, target: Target) -> Config:
    m, e, n, k, topk = _sizes(problem)
    hit = max(1, min(e, round(experts_hit(m, e, topk, skewed=bool(SKEWED.of(problem))))))
    item, cols = ITEM_BYTES[_stored(problem)], max(2 * n, k)
    tile = default_cube_tile(min(m, ceil_div(m * topk, hit)), cols, max(n, k), item, target, products=hit)
    config: dict[str, Value] = {"VARIANT": "sorted"}
    config |= {f"BLOCK_SIZE_{axis}": tile[f"BLOCK_{axis}"] for axis in "MNK"}
    many = _blocks(config, problem) * ceil_div(2 * n, int(tile["BLOCK_N"])) > target.matrix_cores
    return {**config, "GROUP_SIZE_M": 1, "PROGRAMS": target.matrix_cores if many else 0, "multibuffer": True}


SPEC = KernelSpec(
    name="fused_moe",
    summary="out[m] = sum over t of weight[m, t] * (silu(x[m] @ g.T) * (x[m] @ u.T)) @ d.T, of the experts of token m",
    function=(
        *(_COUNT, _SORT, _QUANTIZE, _UP, _ACTIVATE, _DOWN, _SUM),
        *(_SLICE, _BASES, _PLACE, TABLE, _SPREAD, _SORTED_UP, _GATE, _REQUANTIZE, _SORTED_DOWN, _COMBINE),
    ),
    dims=("M", "E", "N", "K", "TOPK"),
    dtypes=("bfloat16", "float16"),
    flags=(_QUANT, SKEWED),
    parameters=(
        Parameter("VARIANT", only_ascend("sorted")),
        Parameter("BLOCK_SIZE_M", _block_m),
        Parameter("BLOCK_SIZE_N", _block_n),
        Parameter("BLOCK_SIZE_K", _block_k),
        Parameter("GROUP_SIZE_M", lambda problem, target: list(_GROUPS)),
        Parameter("PROGRAMS", _programs),
        Parameter("num_warps", only_nvidia(4, 8), role="option"),
        Parameter("num_stages", only_nvidia(2, 3, 4, 5), role="option"),
        Parameter("multibuffer", only_ascend(True, False), role="option"),
    ),
    constraints=(
        Constraint(EIGHT_BIT_FLOATS, lambda config, problem, target: _QUANT.of(problem) != _FP8 or target.has_float8),
        Constraint("TOPK is at most E", lambda config, problem, target: problem.dims["TOPK"] <= problem.dims["E"]),
        Constraint("2 to 128 sums of a tile per thread", _registers_hold),
        Constraint(
            "GROUP_SIZE_M is at most the number of blocks",
            lambda config, problem, target: int(config["GROUP_SIZE_M"]) <= _blocks(config, problem),
        ),
        Constraint("PROGRAMS is less than the number of tiles", _programs_hold),
        Constraint(f"at most {_MOST_EXPERTS} experts on Ascend", _experts_hold),
        Constraint("the operands in flight fit in shared memory, or in L1 with the sums in L0C", _operands_hold),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    constants=_constants,
    launches=_launches,
    scratch=_scratch,
    tiling=_tiling,
    fill=_fill,
    reference=_reference,
    flops=lambda problem: 6 * problem.dims["M"] * problem.dims["TOPK"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=_stored,
    default=_default,
)
