"""Parameters, constraints and defaults that kernels over the rows of a matrix [M, N] share.

A program takes `BLOCK_SIZE_M` rows, `SUB_BLOCK_SIZE_M` at a time, in blocks of `BLOCK_SIZE_N` columns. Nothing here is
part of what a source hash covers: buffers, launches and references stand in the file of their kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two, row_blocks
from tilewise.kernels.spec import Config, Constraint, Parameter, Problem, Target, Tiling, Value, ceil_div

__all__ = [
    "DTYPES",
    "MULTIBUFFER",
    "NUM_STAGES",
    "NUM_WARPS",
    "ROWS",
    "SHARED_ROWS",
    "default_rows",
    "looped_default",
    "looped_parameters",
    "padded",
    "row_constraints",
    "row_parts",
    "warps_for",
    "whole_row",
]

DTYPES = ("float32", "float16", "bfloat16")

_NARROWEST = 512
"""Columns of the smallest part of a row that is worth a step."""

_WIDEST = 32768
"""Columns of the largest block of NVIDIA: 32 float32 for each of 1024 threads."""


def _on(family: str, values: Sequence[Value]) -> Callable[[Problem, Target], Sequence[Value]]:
    return lambda problem, target: values if target.family == family else []


MULTIBUFFER = Parameter("multibuffer", _on("ascend", [True, False]), role="option")
NUM_WARPS = Parameter("num_warps", _on("nvidia", [1, 2, 4, 8, 16, 32]), role="option")
NUM_STAGES = Parameter("NUM_STAGES", _on("nvidia", [1, 2, 4]))


# Candidate values ------------------------------------------------------------------------------------------------


def whole_row(n: int, target: Target) -> int:
    """Return the block that holds a row: the row's length, on NVIDIA the next power of two."""
    return n if target.family == "ascend" else powers_of_two(1, n)[-1]


def padded(columns: int, item_bytes: int) -> int:
    """Return the columns of a row on chip on Ascend, where each row of a tile begins at a multiple of 32 bytes."""
    return ceil_div(columns * item_bytes, 32) * 32 // item_bytes


def _row_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "ascend":
        return row_blocks(m, target)
    persistent = {ceil_div(m, target.cores * waves) for waves in (1, 2, 4, 8, 16)}
    return sorted({*_sub_blocks(problem, target), *persistent})


def _sub_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    m, n = problem.dims["M"], problem.dims.get("N", 1)
    least = min(_NARROWEST, whole_row(n, target))
    if target.family == "nvidia":
        most = max(1, min(m, 256, 16384 // least))
        return [rows for rows in powers_of_two(1, most) if rows <= most]
    return nice_numbers(min(m, target.on_chip_bytes // (3 * 4 * least)))


def row_parts(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the blocks of columns: parts of a row, and the whole row where it may fit on chip."""
    n = problem.dims["N"]
    whole, most = whole_row(n, target), _WIDEST if target.family == "nvidia" else target.on_chip_bytes // (3 * 4)
    parts = [cols for cols in powers_of_two(_NARROWEST, 16384) if cols < n]
    return [*parts, whole] if whole <= most else parts


def _shared_row_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    few = {ceil_div(m, count) for count in (1, 2, 4, 8)} if target.family == "ascend" else set()
    return sorted({*_row_blocks(problem, target), *few})


_SUB_ROWS = Parameter("SUB_BLOCK_SIZE_M", _sub_blocks)
ROWS = (Parameter("BLOCK_SIZE_M", _row_blocks), _SUB_ROWS)
SHARED_ROWS = (Parameter("BLOCK_SIZE_M", _shared_row_blocks), _SUB_ROWS)
"""Rows of a kernel that cuts other axes into programs too: as few as there are rows may be enough programs then."""


def looped_parameters() -> tuple[Parameter, ...]:
    """Return the parameters of a kernel whose rows are one load (`one_load`), or read twice in parts (`looped`)."""
    variant = Parameter("VARIANT", lambda problem, target: ["one_load", "looped"])
    return (variant, *ROWS, Parameter("BLOCK_SIZE_N", row_parts), MULTIBUFFER, NUM_WARPS, NUM_STAGES)


# Constraints -----------------------------------------------------------------------------------------------------


def _variant_holds(config: Config, problem: Problem, target: Target) -> bool:
    return (config["VARIANT"] == "one_load") == (int(config["BLOCK_SIZE_N"]) >= problem.dims["N"])


_VARIANT = Constraint("one_load where the block holds a row, else looped", _variant_holds)


def row_constraints(
    tiling: Callable[[Config, Problem], Tiling], *, looped: bool = False, most: int = 64
) -> tuple[Constraint, ...]:
    """Return the constraints of a kernel with this tiling, whose first axis is the rows: on NVIDIA, a thread has at
    most `most` elements of a tile."""

    def on_chip(config: Config, problem: Problem, target: Target) -> bool:
        tiles = tiling(config, problem)
        return target.family != "ascend" or tiles.streamed_bytes + tiles.resident_bytes <= target.on_chip_bytes

    def waves(config: Config, problem: Problem, target: Target) -> bool:
        axes = tiling(config, problem).axes
        others = math.prod(axis.programs for axis in axes[1:])
        return target.family != "ascend" or axes[0].programs * others <= max(16 * target.cores, others)

    def registers(config: Config, problem: Problem, target: Target) -> bool:
        if target.family != "nvidia":
            return True
        threads, tile = 32 * int(config["num_warps"]), math.prod(axis.step for axis in tiling(config, problem).axes)
        return threads <= tile <= most * threads or (threads == 32 and tile < 32)

    def stages(config: Config, problem: Problem, target: Target) -> bool:
        wanted = int(config.get("NUM_STAGES", 1))
        if wanted == 1:
            return True
        tiles = tiling(config, problem)
        trips = tiles.axes[-1].trips if config.get("VARIANT") == "looped" else tiles.axes[0].trips
        return trips >= wanted and wanted * tiles.streamed_bytes <= target.on_chip_bytes // 2

    return (
        *([_VARIANT] if looped else []),
        Constraint(
            "SUB_BLOCK_SIZE_M <= BLOCK_SIZE_M", lambda c, p, t: int(c["SUB_BLOCK_SIZE_M"]) <= int(c["BLOCK_SIZE_M"])
        ),
        Constraint("at most 16 programs a core on Ascend", waves),
        Constraint("the tiles fit on chip", on_chip),
        Constraint(f"1 to {most} elements of a tile a thread", registers),
        Constraint("NUM_STAGES needs as many trips, and half of shared memory", stages),
    )


# Defaults --------------------------------------------------------------------------------------------------------


def warps_for(elements: int) -> int:
    """Return the warps with about 8 elements of a tile for each thread."""
    return max(warps for warps in (1, 2, 4, 8, 16, 32) if warps == 1 or 256 * warps <= elements)


def default_rows(problem: Problem, target: Target, elements: int, parts: int = 1) -> dict[str, Value]:
    """Return the rows of a default whose step has `elements` per row, for rows cut into `parts` programs: on NVIDIA
    tiles of about 1024 elements, one a program; on Ascend about four programs per core, one row at a time."""
    if target.family == "nvidia":
        rows = max(int(r) for r in _sub_blocks(problem, target) if r == 1 or int(r) * elements <= 1024)
        return {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows}
    m = problem.dims["M"]
    blocks = [int(block) for block in (_row_blocks if parts == 1 else _shared_row_blocks)(problem, target)]
    enough = min(m, ceil_div(m * parts, 4 * target.cores))
    return {"BLOCK_SIZE_M": next(rows for rows in blocks if rows >= enough), "SUB_BLOCK_SIZE_M": 1}


def looped_default(tiling: Callable[[Config, Problem], Tiling]) -> Callable[[Problem, Target], Config]:
    """Return a default of one load of the whole row if it fits, else of parts of 4096 columns."""

    def default(problem: Problem, target: Target) -> Config:
        columns = [int(cols) for cols in row_parts(problem, target)]
        for cols in (columns[-1], *(cols for cols in reversed(columns) if cols <= 4096)):
            variant = "one_load" if cols >= problem.dims["N"] else "looped"
            tiles = {"VARIANT": variant, **default_rows(problem, target, cols), "BLOCK_SIZE_N": cols}
            if target.family == "nvidia":
                if variant == "looped" and cols > 4096:
                    continue
                warps = warps_for(int(tiles["SUB_BLOCK_SIZE_M"]) * cols)
                return {**tiles, "num_warps": warps, "NUM_STAGES": 1}
            needed = tiling(config := {**tiles, "multibuffer": True}, problem)
            if needed.streamed_bytes + needed.resident_bytes <= target.on_chip_bytes:
                break
        return config

    return default
