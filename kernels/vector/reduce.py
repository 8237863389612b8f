"""Sum, product and maximum: of everything, and of each row.

Both use the same Triton functions; a reduction of everything has one row. A row is cut into parts of BLOCK_SIZE_N
columns. A program takes one part of BLOCK_SIZE_M rows, in steps of SUB_BLOCK_SIZE_N: a part of one tile needs no loop,
and with few large parts a fixed number of programs loops. VARIANT says how the parts of a row are combined:

- `direct`: the row is one part, so its program stores the result;
- `atomic`: programs add to, or compare with, an output that starts from 0 or -inf. It exists for sums and maxima in
  float32 only: a product has no atomic, and 16 bits would need a float32 accumulator, its reset and a launch that
  converts, which is more than two stages take;
- `two_stage`: programs store partial results, and a second launch reduces those.

Arithmetic is in float32, except for maxima of float16, which are exact as they are. NaN and infinity propagate as in
torch. With `atomic` on Ascend the result of `max_*` for NaN depends on the hardware; the inputs of a verified run of
`max_rows` include a row with NaN and one of -inf. A problem with a dimension of size 0 is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    Tiling,
    Value,
    ceil_div,
)

__all__ = ["MAX_ALL", "MAX_ROWS", "PROD_ALL", "PROD_ROWS", "SUM_ALL", "SUM_ROWS"]

_JIT = "tilewise.kernels.jit.reduce:"
_REDUCE, _REDUCE_PARTS, _COMBINE = _JIT + "reduce_kernel", _JIT + "reduce_parts_kernel", _JIT + "combine_kernel"

_LEAST_TILE = 4096
"""Elements of the smallest tile worth a trip on Ascend, unless there are fewer in all."""

_LONG_ROW = 2**20
"""Columns from which rows may be cut however many rows there are."""

_ENOUGH_ROWS = 8
"""Programs per core from which whole rows keep the cores evenly busy, so that cutting them only costs."""

_MOST_PARTS = {"ascend": 8, "nvidia": 64}
"""Programs per core up to which parts with a loop make sense; twice as many for parts of one tile, and any number of
these in a single row."""

_MOST_CUT_ROWS = 8
"""Rows per program on NVIDIA if rows are cut; more would leave short pieces of many rows."""

_COMBINE_TILE = 4096
"""Elements of a tile of the second stage, which does little work and so is not tuned."""


@dataclass(frozen=True, slots=True)
class _Operator:
    """A reduction with its neutral element. `torch(x, keepdim)` reduces the last axis; `draw` makes inputs that expose
    mistakes."""

    name: str
    neutral: float
    torch: Callable[[Any, bool], Any]
    draw: Callable[[Any, Any], None] | None = None

    @property
    def has_atomic(self) -> bool:
        return self.name != "prod"

    def widens(self, problem: Problem) -> bool:
        """Return whether elements are converted to float32 on loading; a maximum of float16 does not need it."""
        return problem.dtype == "bfloat16" or (problem.dtype == "float16" and self.name != "max")


def _draw_for_products(x: Any, generator: Any) -> None:
    """Draw signed powers of two, such that any run of a row has a product from 1/2 to 2 in magnitude.

    Their products are exact in every dtype and in any order. About 256 per row are neither 1 nor -1: few enough that
    the product of any selection, such as the lanes of a loop, stays far from overflow.
    """
    import torch

    levels = torch.empty((*x.shape[:-1], x.shape[-1] + 1), dtype=torch.float32, device=x.device)
    levels.bernoulli_(min(0.5, 128 / x.shape[-1]), generator=generator)
    signs = torch.empty(x.shape, dtype=torch.float32, device=x.device).bernoulli_(0.5, generator=generator)
    x.copy_(levels.diff().exp2() * (2 * signs - 1))


def _draw_for_maxima(x: Any, generator: Any) -> None:
    """Draw normal numbers. Many rows end in their largest, where masks go wrong; one row is -inf, one has a NaN."""
    x.normal_(generator=generator)
    rows = x.view(-1, x.shape[-1])
    rows[::3, -1] = 8.0
    rows[1:2] = -math.inf
    rows[2:3, rows.shape[1] // 2] = math.nan


_SUM = _Operator("sum", 0.0, lambda x, keepdim: x.sum(-1, keepdim=keepdim))
_PROD = _Operator("prod", 1.0, lambda x, keepdim: x.prod(-1, keepdim=keepdim), _draw_for_products)
_MAX = _Operator("max", -math.inf, lambda x, keepdim: x.amax(-1, keepdim=keepdim), _draw_for_maxima)


# Sizes of a config --------------------------------------------------------------------------------------------------


def _rows(problem: Problem) -> int:
    return problem.dims.get("M", 1)


def _blocks(config: Config) -> tuple[int, int, int, int]:
    """Return BLOCK_SIZE_M, SUB_BLOCK_SIZE_M, BLOCK_SIZE_N and SUB_BLOCK_SIZE_N; without rows the first two are 1."""
    m, sub_m, n, sub_n = (f"{prefix}BLOCK_SIZE_{dim}" for dim in "MN" for prefix in ("", "SUB_"))
    return int(config.get(m, 1)), int(config.get(sub_m, 1)), int(config[n]), int(config[sub_n])


def _parts(config: Config, problem: Problem) -> int:
    return ceil_div(problem.dims["N"], int(config["BLOCK_SIZE_N"]))


def _row_programs(config: Config, problem: Problem) -> int:
    return ceil_div(_rows(problem), _blocks(config)[0])


# Domains ------------------------------------------------------------------------------------------------------------


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the rows per program: powers of two, and on Ascend also those that make one to eight whole waves."""
    m = _rows(problem)
    if target.family == "nvidia":
        return powers_of_two(1, min(m, 128))
    waves = {ceil_div(m, target.cores * count) for count in range(1, 9)}
    return sorted({size for size in waves.union(powers_of_two(1, 4 * max(waves))) if size <= min(m, 4 * max(waves))})


def _sub_block_m(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the rows per tile: powers of two, and on Ascend also even shares of a core's rows."""
    m = _rows(problem)
    if target.family == "nvidia":
        return powers_of_two(1, min(m, 128))
    shares = {ceil_div(ceil_div(m, target.cores), trips) for trips in range(1, 9)}
    return sorted({size for size in shares.union(powers_of_two(1, 512)) if size <= min(m, 512)})


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the columns per part: all, and if rows are few or very long, others that make a useful number of
    programs."""
    n = problem.dims["N"]
    whole = n if target.family == "ascend" else powers_of_two(8, n)[-1]
    if _rows(problem) >= 2 * _ENOUGH_ROWS * target.cores and n <= _LONG_ROW:
        return [whole]
    if target.family == "nvidia":
        return powers_of_two(min(1024, whole), whole)
    counts = {2, 3, 4, 6, 8, 12, 16, target.cores // 4, target.cores // 2}
    counts |= {target.cores * waves for waves in (1, 2, 3, 4, 8)}
    even = {_aligned(ceil_div(n, count)) for count in counts}
    tiles = powers_of_two(_LEAST_TILE, 16384) if _rows(problem) == 1 else []
    return sorted({size for size in even.union(tiles) if size < n} | {whole})


def _sub_block_n(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the columns per tile: powers of two, and on Ascend also even shares of a row; for a single row also many
    more sizes and the parts themselves."""
    n = problem.dims["N"]
    if target.family == "nvidia":
        return powers_of_two(min(64, powers_of_two(8, n)[-1]), min(n, 32768))
    least, most = min(256, _aligned(n)), min(target.on_chip_bytes // 6, _aligned(n))
    sizes = {least, *powers_of_two(256, most), *(_aligned(ceil_div(n, trips)) for trips in range(1, 9))}
    if _rows(problem) == 1:
        sizes |= {_aligned(size) for size in nice_numbers(most) if size >= _LEAST_TILE // 4}
        sizes |= {_aligned(int(part)) for part in _block_n(problem, target)}
    return sorted(size for size in sizes if least <= size <= most)


def _aligned(columns: int) -> int:
    """Round up to whole vectors of 256 bytes of float32, or up to 32 columns to whole blocks of 32 bytes."""
    return 64 * ceil_div(columns, 64) if columns > 32 else 8 * ceil_div(columns, 8)


def _variants(operator: _Operator) -> Callable[[Problem, Target], Sequence[Value]]:
    def variants(problem: Problem, target: Target) -> Sequence[Value]:
        if len(_block_n(problem, target)) == 1:
            return ["direct"]
        return ["direct", *(["atomic"] if operator.has_atomic and problem.dtype == "float32" else []), "two_stage"]

    return variants


# Constraints --------------------------------------------------------------------------------------------------------


def _sub_tiles_suit(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the sub-tile is at most the block; on NVIDIA equal, since other programs hide latency there."""
    rows, sub, _, _ = _blocks(config)
    return sub == rows if target.family == "nvidia" else sub <= rows


def _variant_suits(config: Config, problem: Problem, target: Target) -> bool:
    return (config["VARIANT"] == "direct") == (_parts(config, problem) == 1)


def _atomics_are_whole(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether atomics on tiles of one row never cross the last row on Ascend: triton-ascend 3.2.0 drops the mask
    of an atomic on a tile of one element, so that a row beyond the last would be written."""
    rows, sub, _, _ = _blocks(config)
    alone = target.family == "ascend" and config["VARIANT"] == "atomic" and sub == 1
    return not alone or _rows(problem) % rows == 0


def _parts_are_wanted(config: Config, problem: Problem, target: Target) -> bool:
    parts, rows = _parts(config, problem), _row_programs(config, problem)
    if parts == 1:
        return True
    if rows >= _ENOUGH_ROWS * target.cores and problem.dims["N"] <= _LONG_ROW:
        return False
    rows_a_program, _, block, sub = _blocks(config)
    if target.family == "nvidia" and rows_a_program > _MOST_CUT_ROWS:
        return False
    most = _MOST_PARTS[target.family] * target.cores
    return rows * parts <= most or (block <= sub and (_rows(problem) == 1 or rows * parts <= 2 * most))


def _tile_suits(operator: _Operator) -> Callable[[Config, Problem, Target], bool]:
    def suits(config: Config, problem: Problem, target: Target) -> bool:
        _, sub_m, _, sub_n = _blocks(config)
        if target.family == "nvidia":
            threads = 32 * int(config["num_warps"])
            return threads <= max(32, sub_m * sub_n) <= 128 * threads
        return _tile_bytes(operator, config, problem) <= target.on_chip_bytes

    return suits


def _tile_bytes(operator: _Operator, config: Config, problem: Problem) -> int:
    """Return the least bytes on chip on Ascend: the loaded tile, the accumulator of a loop, and a widened tile."""
    _, sub_m, block_n, sub_n = _blocks(config)
    looped, widened = block_n > sub_n, operator.widens(problem)
    collecting = 4 if widened else problem.item_bytes
    return sub_m * sub_n * (problem.item_bytes + collecting * looped + 4 * widened)


def _tile_is_no_crumb(config: Config, problem: Problem, target: Target) -> bool:
    rows, sub_m, block_n, sub_n = _blocks(config)
    within = sub_n <= _aligned(block_n)
    return within and (target.family == "nvidia" or sub_m * sub_n >= min(_LEAST_TILE, rows * block_n // 2))


# Launches -----------------------------------------------------------------------------------------------------------


def _launches(operator: _Operator) -> Callable[[Config, Problem], Sequence[Launch]]:
    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        rows, sub_rows, _, _ = _blocks(config)
        parts = _parts(config, problem)
        shared: dict[str, Value] = {"OP": operator.name, "NEUTRAL": operator.neutral, "PARTS": parts}
        sizes = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub_rows}
        grid = (_row_programs(config, problem) * parts,)
        if config["VARIANT"] != "two_stage":
            return [Launch(_REDUCE, grid, shared | sizes)]
        cols = min(_COMBINE_TILE, powers_of_two(8, parts)[-1])
        tile = {"ROWS": min(_COMBINE_TILE // cols, powers_of_two(1, _rows(problem))[-1]), "COLS": cols}
        combining = (ceil_div(_rows(problem), tile["ROWS"]),)
        return [Launch(_REDUCE_PARTS, grid, shared | sizes), Launch(_COMBINE, combining, shared | tile)]

    return launches


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    if config["VARIANT"] != "two_stage":
        return {}
    return {"partial_ptr": Buffer((_rows(problem), _parts(config, problem)), "float32")}


def _buffers(operator: _Operator) -> Callable[[Problem], Mapping[str, Buffer]]:
    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        accumulates = operator.has_atomic and problem.dtype == "float32"
        initial = operator.neutral if accumulates else None
        scale = math.sqrt(problem.dims["N"]) if operator.name == "sum" else 0.0
        return {
            "x_ptr": Buffer(tuple(problem.dims.values()), problem.dtype, draw=operator.draw),
            "out_ptr": Buffer((_rows(problem),), problem.dtype, role="out", initial=initial, scale=scale),
        }

    return buffers


def _reduction_bytes(operator: _Operator, rows: int, cols: int, item_bytes: int) -> int:
    """Return the bytes that Ascend's reduction of a tile needs beside it. They reuse the tiles of a loop, which are
    free by then, or the 16-bit tile that was widened."""
    if operator.name == "prod":
        return 4 * rows * (72 if cols > 64 else 2 * cols + 8)
    return rows * cols * item_bytes // 2 if cols > 64 and (operator.name == "sum" or rows > 1) else 0


def _tiling(operator: _Operator) -> Callable[[Config, Problem], Tiling]:
    def tiling(config: Config, problem: Problem) -> Tiling:
        rows, sub_m, block_n, sub_n = _blocks(config)
        columns = Axis("N", problem.dims["N"], block_n, sub_n)
        axes = (Axis("M", problem.dims["M"], rows, sub_m), columns) if "M" in problem.dims else (columns,)
        looped, widened, item_bytes = block_n > sub_n, operator.widens(problem), problem.item_bytes
        # Bytes as planned when memory is tight; otherwise the compiler lets fewer buffers share space. The first tile
        # of a row is loaded outside the loop, into the accumulator. If there are sub-tiles, the accumulator is
        # double-buffered as well.
        streamed = sub_m * sub_n * item_bytes * (2 if looped and not widened and rows > sub_m else 1)
        results = 32 * ceil_div(sub_m, 8)
        reducing = 0 if widened else _reduction_bytes(operator, sub_m, sub_n, item_bytes)
        beside = 0 if looped else results + reducing
        return Tiling(
            axes,
            streamed,
            _tile_bytes(operator, config, problem) - streamed + beside,
            reductions=1,
            first_apart=looped and not widened,
        )

    return tiling


def _default(problem: Problem, target: Target) -> Config:
    """Return tiles of about 4096 elements, on Ascend 8192, with rows cut only if they are too few for the cores."""
    ascend = target.family == "ascend"
    tile = 8192 if ascend else 4096
    blocks, parts, subs = (
        [int(size) for size in domain(problem, target)] for domain in (_block_m, _block_n, _sub_block_n)
    )
    enough = max(32, ceil_div(_rows(problem), target.max_programs)) if ascend else ceil_div(tile, subs[-1])
    rows = next((block for block in blocks if block >= enough), blocks[-1])
    programs = ceil_div(_rows(problem), rows)
    wanted = target.cores if ascend else 4 * target.cores
    useful = (n for n in parts if n >= _LEAST_TILE and programs * ceil_div(problem.dims["N"], n) <= wanted)
    block_n = next(useful, parts[-1])
    sub_n = max(n for n in subs if n <= min(4096, _aligned(block_n)))
    fitting = [m for m in map(int, _sub_block_m(problem, target)) if m <= rows and m * sub_n <= tile]
    sub_m = max(fitting) if ascend else rows
    config: dict[str, Value] = {
        "VARIANT": "direct" if block_n >= problem.dims["N"] else "two_stage",
        "BLOCK_SIZE_N": block_n,
        "SUB_BLOCK_SIZE_N": sub_n,
    }
    if "M" in problem.dims:
        config |= {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub_m}
    if ascend:
        return {**config, "multibuffer": True}
    return {**config, "num_warps": min(4, max(1, sub_m * sub_n // 32)), "EVICT_FIRST": False}


def _spec(
    operator: _Operator, name: str, dims: tuple[str, ...], summary: str, parameters: tuple[Parameter, ...]
) -> KernelSpec:
    keepdim = dims == ("N",)
    return KernelSpec(
        name=name,
        summary=summary,
        function=(_REDUCE, _REDUCE_PARTS, _COMBINE),
        dims=dims,
        dtypes=("float32", "float16", "bfloat16"),
        parameters=(
            Parameter("VARIANT", _variants(operator)),
            *parameters,
            Parameter("BLOCK_SIZE_N", _block_n),
            Parameter("SUB_BLOCK_SIZE_N", _sub_block_n),
            Parameter(
                "multibuffer", lambda _, target: [True, False] if target.family == "ascend" else [], role="option"
            ),
            Parameter(
                "num_warps", lambda _, target: [1, 2, 4, 8, 16, 32] if target.family == "nvidia" else [], role="option"
            ),
            Parameter("EVICT_FIRST", lambda _, target: [False, True] if target.family == "nvidia" else []),
        ),
        constraints=(
            Constraint("direct for whole rows, atomic or two_stage for parts of them", _variant_suits),
            Constraint("on Ascend atomics of single rows only where no row block is cut short", _atomics_are_whole),
            Constraint("parts only where rows are too few to keep the cores busy", _parts_are_wanted),
            Constraint("SUB_BLOCK_SIZE_M <= BLOCK_SIZE_M, on NVIDIA equal", _sub_tiles_suit),
            Constraint("a tile and its accumulator fit on chip", _tile_suits(operator)),
            Constraint("a tile is no larger than the block, nor far smaller than is worth a trip", _tile_is_no_crumb),
        ),
        buffers=_buffers(operator),
        scalars=lambda problem: {"M": 1, **problem.dims},
        launches=_launches(operator),
        scratch=_scratch,
        tiling=_tiling(operator),
        reference=lambda inputs: {"out_ptr": operator.torch(inputs["x_ptr"], keepdim)},
        flops=lambda problem: math.prod(problem.dims.values()),
        default=_default,
    )


def _of_all(operator: _Operator, what: str) -> KernelSpec:
    return _spec(operator, f"{operator.name}_all", ("N",), f"out = {what} of all x[n]", ())


def _of_rows(operator: _Operator, what: str) -> KernelSpec:
    rows = (Parameter("BLOCK_SIZE_M", _block_m), Parameter("SUB_BLOCK_SIZE_M", _sub_block_m))
    return _spec(operator, f"{operator.name}_rows", ("M", "N"), f"out[m] = {what} over n of x[m, n]", rows)


SUM_ALL, SUM_ROWS = _of_all(_SUM, "sum"), _of_rows(_SUM, "sum")
PROD_ALL, PROD_ROWS = _of_all(_PROD, "product"), _of_rows(_PROD, "product")
MAX_ALL, MAX_ROWS = _of_all(_MAX, "maximum"), _of_rows(_MAX, "maximum")
