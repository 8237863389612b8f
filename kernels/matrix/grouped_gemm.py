"""Products of groups of rows, each with its own matrix: `out[m] = a[m] @ b[g]` for the rows m of group g.

`offsets` [G + 1] says where the rows of each group begin and end; a group may have none. A launch needs no sizes of
groups on the host: its programs, as many as there can be tiles or `PROGRAMS`, find the groups of their tiles.
`pointers` takes any size. `descriptors` loads tiles through tensor descriptors, which compute capability 9.0 does
without registers and address arithmetic; rows must be multiples of 16 bytes. `masked` is for Ascend's cube
cores, which do not look for groups: a launch on vector cores before writes a table of tiles.

Outputs have the dtype of their inputs; those of 8-bit floats are bfloat16, and those of int8 are int32. float32 and
int8 are for Ascend. `column_major` means that each matrix of b is stored as N x K; on NVIDIA, 8-bit products are fast
only then. Tuning draws groups of equal sizes or, with
`skewed`, of sizes as 1, 1/2, 1/3, ... in any order. Only the matrices of groups that have rows count as moved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.kernels.candidate_values import only_ascend, only_nvidia, powers_of_two
from tilewise.kernels.matrix.cube_tiles import CUBE_DTYPES, cube_tile_holds, default_cube_tile, depths, sides
from tilewise.kernels.matrix.routing import SKEWED, loads, row_tiles
from tilewise.kernels.matrix.tile_table import TABLE, table_buffers, tile_table
from tilewise.kernels.matrix.tiles import (
    EIGHT_BIT_FLOATS,
    EXACT_TERMS,
    EXACT_TOLERANCE,
    buffered,
    operands_hold,
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

_POINTERS = "tilewise.kernels.jit.matrix.grouped_gemm:grouped_gemm_pointers_kernel"
_DESCRIPTORS = "tilewise.kernels.jit.matrix.grouped_gemm:grouped_gemm_descriptors_kernel"
_MASKED = "tilewise.kernels.jit.matrix.grouped_gemm:grouped_gemm_masked_kernel"

_COLUMN_MAJOR = Flag("column_major", (False, True))

_MOST_GROUPS = 1024
"""A program adds up the tiles of all groups at once."""


def _sizes(problem: Problem) -> tuple[int, int, int, int]:
    return problem.dims["M"], problem.dims["N"], problem.dims["K"], problem.dims["G"]


def _loads(problem: Problem) -> tuple[int, ...]:
    return loads(problem.dims["M"], problem.dims["G"], skewed=bool(SKEWED.of(problem)))


def _tiles(config: Config, problem: Problem) -> int:
    """Return the most tiles that the rows can have, whatever their groups."""
    m, n, _, g = _sizes(problem)
    return row_tiles(m, g, int(config["BLOCK_M"])) * ceil_div(n, int(config["BLOCK_N"]))


def _has_float8(problem: Problem) -> bool:
    return problem.dtype.startswith("float8")


def _out_dtype(problem: Problem) -> str:
    return {"float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16", "int8": "int32"}.get(problem.dtype, problem.dtype)


def _fill(tensors: Tensors, problem: Problem, generator: Any) -> None:
    """Write the offsets of groups of the usual sizes, in any order."""
    import torch

    sizes = torch.tensor(_loads(problem), device=generator.device)
    order = torch.randperm(len(sizes), generator=generator, device=generator.device)
    offsets = tensors["offsets_ptr"]
    offsets[0] = 0
    offsets[1:] = sizes[order].cumsum(0)


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n, k, g = _sizes(problem)
    needed = sum(size > 0 for size in _loads(problem)) * k * n * problem.item_bytes
    strides = (k * n, 1, k) if _COLUMN_MAJOR.of(problem) else None
    return {
        "a_ptr": Buffer((m, k), problem.dtype),
        "b_ptr": Buffer((g, k, n), problem.dtype, strides=strides, moved_bytes=needed),
        "offsets_ptr": Buffer((g + 1,), "int32"),
        "out_ptr": Buffer(
            (m, n),
            _out_dtype(problem),
            role="out",
            terms=k,
            tolerance=EXACT_TOLERANCE if _has_float8(problem) else 0.0,
        ),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n, k, g = _sizes(problem)
    tiles = _tiles(config, problem)
    grid = (min(tiles, int(config.get("PROGRAMS", 0)) or tiles),)
    if config["VARIANT"] == "masked":
        table = tile_table(row_tiles(m, g, int(config["BLOCK_M"])), g, int(config["BLOCK_M"]))
        return [table, Launch(_MASKED, grid, {"INTEGER": problem.dtype == "int8"})]
    constants: dict[str, Value] = {
        "FP8": _has_float8(problem),
        "EXACT_TERMS": min(EXACT_TERMS, int(config["BLOCK_K"])),
        "WIDE": max(m * k, k * n, m * n) >= 2**31,
        "BLOCK_G": powers_of_two(1, g)[-1],
    }
    if config["VARIANT"] == "descriptors":
        return [Launch(_DESCRIPTORS, grid, constants, descriptors=True)]
    even = {f"EVEN_{name}": size % int(config[f"BLOCK_{name}"]) == 0 for name, size in (("N", n), ("K", k))}
    return [Launch(_POINTERS, grid, {**constants, **even, "ALIGNED": math.gcd(n, k, 16)})]


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    if config["VARIANT"] != "masked":
        return {}
    m, _, _, g = _sizes(problem)
    return table_buffers(row_tiles(m, g, int(config["BLOCK_M"])))


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, n, k, g = _sizes(problem)
    block_m, block_n, block_k = (int(config[f"BLOCK_{name}"]) for name in "MNK")
    tiles, item = row_tiles(m, g, block_m), problem.item_bytes
    rows = tiles * block_m
    read = item * k * (ceil_div(n, block_n) * m + ceil_div(rows, block_m) * n)
    row_bytes = item * (block_k if _COLUMN_MAJOR.of(problem) else block_n)
    return Tiling(
        axes=(
            Axis("rows", rows, block_m, block_m),
            Axis("K", k, ceil_div(k, block_k) * block_k, block_k),
            Axis("N", n, block_n, block_n),
        ),
        streamed_bytes=(block_m + block_n) * block_k * item,
        resident_bytes=4 * block_m * block_n,
        traffic=(read + ITEM_BYTES[_out_dtype(problem)] * m * n) / SPEC.bytes(problem),
        dot=Dot(
            block_m,
            block_n,
            block_k,
            stages=buffered(block_m, int(config.get("num_stages", 2))),
            group=min(int(config["GROUP_M"]), ceil_div(tiles, g)),  # only tiles of one group share columns
            programs=int(config.get("PROGRAMS", 0)),
            filled=sum(ceil_div(size, block_m) for size in _loads(problem)) / tiles,
            described=config["VARIANT"] == "descriptors",
            row_bytes=row_bytes,
            operand_rows=block_m + (block_n if _COLUMN_MAJOR.of(problem) else block_k),
            along_depth=bool(_COLUMN_MAJOR.of(problem)),
            alone=config["VARIANT"] == "masked",
        ),
    )


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    a, b, offsets = inputs["a_ptr"], inputs["b_ptr"], inputs["offsets_ptr"].tolist()
    if a.element_size() == 1:  # torch multiplies no 8-bit floats, and wraps sums of 8-bit integers
        wide = torch.int32 if a.dtype == torch.int8 else torch.bfloat16
        a, b = a.to(wide), b.to(wide)
    out = torch.empty(a.shape[0], b.shape[2], dtype=a.dtype, device=a.device)
    for group, (first, last) in enumerate(itertools.pairwise(offsets)):
        out[first:last] = a[first:last] @ b[group]
    return {"out_ptr": out}


# The space -------------------------------------------------------------------------------------------------------


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    """Return heights up to the largest group's, which most of the work is in where sizes differ."""
    largest = max(_loads(problem))
    if target.family == "ascend":
        return sides(largest)
    values = up_to(largest, 16, 256)
    return [value for value in values if value >= 64] if largest > 256 else values


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend":
        return sides(problem.dims["N"])
    values = up_to(problem.dims["N"], 16, 256)
    return [value for value in values if value >= 32] or values


def _block_k(problem: Problem, target: Target) -> Sequence[Value]:
    """Return blocks of 64 to 256 bytes of a row."""
    if target.family == "ascend":
        return depths(problem.dims["K"], problem.item_bytes)
    least = 64 if problem.dims["K"] >= 64 else 32
    return up_to(problem.dims["K"], least // problem.item_bytes, 256 // problem.item_bytes)


def _variants(problem: Problem, target: Target) -> Sequence[Value]:
    """Return both ways to load tiles where the device has descriptors, and rows are multiples of 16 bytes."""
    if target.family == "ascend":
        return ["masked"]
    _, n, k, _ = _sizes(problem)
    rows = [k] if _COLUMN_MAJOR.of(problem) else [k, n]
    capable = target.family == "nvidia" and (target.capability == 0 or target.capability >= 90)
    whole = all(row * problem.item_bytes % 16 == 0 for row in rows)
    return ["pointers", "descriptors"] if capable and whole else ["pointers"]


def _programs(problem: Problem, target: Target) -> Sequence[Value]:
    """Return how many programs share the tiles, 0 for one each."""
    return [0, target.matrix_cores]


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    if target.family != "nvidia":
        return True
    return sums_hold(int(config["BLOCK_M"]), int(config["BLOCK_N"]), int(config["num_warps"]))


def _operands_hold(config: Config, problem: Problem, target: Target) -> bool:
    tiling = _tiling(config, problem)
    return cube_tile_holds(tiling) if config["VARIANT"] == "masked" else operands_hold(tiling, target)


def _group_holds(config: Config, problem: Problem, target: Target) -> bool:
    m, _, _, g = _sizes(problem)
    return config["GROUP_M"] == 1 or int(config["GROUP_M"]) <= row_tiles(m, g, int(config["BLOCK_M"]))


def _default(problem: Problem, target: Target) -> Config:
    """Return tiles that hold an average group, at most 128 rows of it, and 128 columns."""
    if target.family == "ascend":
        return _cube_default(problem, target)
    m, _, _, g = _sizes(problem)
    average = up_to(ceil_div(m, g), 16, 128)[-1]
    rows = min((int(value) for value in _block_m(problem, target)), key=lambda value: (abs(value - average), value))
    cols = max(int(value) for value in _block_n(problem, target) if int(value) <= 128)
    config: dict[str, Value] = {
        "VARIANT": _variants(problem, target)[-1],
        "BLOCK_M": rows,
        "BLOCK_N": cols,
        "BLOCK_K": min(128 // problem.item_bytes, int(max(_block_k(problem, target)))),
        "GROUP_M": 8 if row_tiles(m, g, rows) >= 8 else 1,
    }
    if target.family == "nvidia":
        config |= {"PROGRAMS": 0, "num_warps": 8 if rows * cols > 64 * 128 else 4, "num_stages": 3}
    return config


def _cube_default(problem: Problem, target: Target) -> Config:
    """Return tiles for groups of the average size."""
    m, n, k, g = _sizes(problem)
    rows = min(ceil_div(m, g), max(_loads(problem)))
    tile = default_cube_tile(rows, n, k, problem.item_bytes, target, products=g)
    config: dict[str, Value] = {"VARIANT": "masked", **tile, "GROUP_M": 1, "PROGRAMS": 0, "multibuffer": True}
    return {**config, "PROGRAMS": target.matrix_cores if _tiles(config, problem) > target.matrix_cores else 0}


SPEC = KernelSpec(
    name="grouped_gemm",
    summary="out[m, n] = sum over k of a[m, k] * b[g, k, n] for the rows m from offsets[g] to offsets[g + 1]",
    function=(_POINTERS, _DESCRIPTORS, TABLE, _MASKED),
    dims=("M", "N", "K", "G"),
    dtypes=("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32", "int8"),
    flags=(_COLUMN_MAJOR, SKEWED),
    parameters=(
        Parameter("VARIANT", _variants),
        Parameter("BLOCK_M", _block_m),
        Parameter("BLOCK_N", _block_n),
        Parameter("BLOCK_K", _block_k),
        Parameter("GROUP_M", lambda problem, target: [1, 4, 8, 16]),
        Parameter("PROGRAMS", _programs),
        Parameter("num_warps", only_nvidia(4, 8), role="option"),
        Parameter("num_stages", only_nvidia(2, 3, 4, 5), role="option"),
        Parameter("multibuffer", only_ascend(True, False), role="option"),
    ),
    constraints=(
        Constraint(
            EIGHT_BIT_FLOATS,
            lambda config, problem, target: not _has_float8(problem) or target.has_float8,
        ),
        Constraint(
            CUBE_DTYPES,
            lambda config, problem, target: problem.dtype not in ("float32", "int8") or target.family == "ascend",
        ),
        Constraint(f"at most {_MOST_GROUPS} groups", lambda config, problem, target: problem.dims["G"] <= _MOST_GROUPS),
        Constraint("2 to 128 sums of a tile per thread", _registers_hold),
        Constraint("GROUP_M is at most the number of rows of tiles", _group_holds),
        Constraint(
            "PROGRAMS is less than the number of tiles",
            lambda config, problem, target: int(config.get("PROGRAMS", 0)) < _tiles(config, problem),
        ),
        Constraint("the operands in flight fit in shared memory, or in L1 with the sums in L0C", _operands_hold),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    constants=lambda problem: {"COLUMN_MAJOR": _COLUMN_MAJOR.of(problem)},
    launches=_launches,
    scratch=_scratch,
    tiling=_tiling,
    fill=_fill,
    reference=_reference,
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=lambda problem: problem.dtype,
    default=_default,
)
