"""Layer normalisation over the last axis, forward and backward.

Forward: `y = (x - mean) * rstd * w + b`. Backward, with `n = (x - mean) * rstd` and means over the row:
`dx = rstd * (dy * w - mean(dy * w) - n * mean(dy * w * n))`; over rows, `dw = sum(dy * n)` and `db = sum(dy)`.
NaN and infinity make their whole row NaN, as in torch. A problem with a dimension of size 0 is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import powers_of_two, row_blocks, row_sub_blocks
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

__all__ = ["BACKWARD", "EPS", "FORWARD"]

EPS = 1e-5
"""Added to the variance; torch's default."""

_DTYPES = ("float32", "float16", "bfloat16")
_JIT = "tilewise.kernels.jit.layer_norm:"
_ONE_LOAD, _LOOPED = (f"{_JIT}layer_norm_{name}_kernel" for name in ("one_load", "looped"))
_ATOMIC, _PARTS, _MERGE, _SUMS, _APPLY = (
    f"{_JIT}layer_norm_backward_{name}_kernel" for name in ("atomic", "parts", "merge", "sums", "apply")
)

_MULTIBUFFER = Parameter("multibuffer", lambda _, target: [True, False] if _ascend(target) else [], role="option")
_NUM_WARPS = Parameter("num_warps", lambda _, target: [] if _ascend(target) else [1, 2, 4, 8, 16, 32], role="option")


def _ascend(target: Target) -> bool:
    return target.family == "ascend"


def _m(problem: Problem) -> int:
    return problem.dims["M"]


def _n(problem: Problem) -> int:
    return problem.dims["N"]


def _tile(config: Config) -> tuple[int, int]:
    return int(config["SUB_BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_N"])


def _whole_row(problem: Problem, target: Target) -> int:
    """Return the block that covers a row: on Ascend its exact length, so that no select is needed."""
    return _n(problem) if _ascend(target) else powers_of_two(1, _n(problem))[-1]


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the column blocks shorter than a row, and the one that covers it."""
    whole = _whole_row(problem, target)
    blocks = [block for block in powers_of_two(512, 8192) if block < _n(problem)]
    return [*blocks, whole] if whole <= 65536 else blocks


def _sub_rows(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of rows per sub-tile; on Ascend two tiles of them, of whole rows or 256 columns, must fit."""
    most = target.on_chip_bytes // (2 * 4 * min(256, _n(problem)))
    return [rows for rows in row_sub_blocks(_m(problem), target) if not _ascend(target) or rows <= most]


def _tiles_fit(tiles: int) -> Constraint:
    """Require that `tiles` float32 tiles fit on chip on Ascend, or in registers on NVIDIA."""

    def holds(config: Config, problem: Problem, target: Target) -> bool:
        sub, cols = _tile(config)
        if _ascend(target):
            return tiles * sub * cols * 4 <= target.on_chip_bytes
        threads = 32 * int(config["num_warps"])
        return threads <= max(32, sub * cols) and tiles * sub * cols <= 128 * threads

    return Constraint(f"{tiles} float32 tiles fit on chip, with at least one element of each per thread", holds)


_SUB_FITS = Constraint(
    "SUB_BLOCK_SIZE_M <= BLOCK_SIZE_M", lambda c, p, t: int(c["SUB_BLOCK_SIZE_M"]) <= int(c["BLOCK_SIZE_M"])
)


def _axes(config: Config, problem: Problem) -> tuple[Axis, ...]:
    (sub, cols), n = _tile(config), _n(problem)
    return Axis("M", _m(problem), int(config["BLOCK_SIZE_M"]), sub), Axis("N", n, n, cols)


def _default_tile(problem: Problem, target: Target, blocks: Sequence[Value], fused: bool) -> dict[str, Value]:
    """Return four programs per core, of whole rows if `fused`, with tiles of about 4096 elements."""
    m, whole = _m(problem), _whole_row(problem, target)
    cols = whole if fused else 1024
    rows = next((int(block) for block in blocks if int(block) * 4 * target.cores >= m), int(blocks[-1]))
    subs = [int(sub) for sub in row_sub_blocks(m, target)]
    sub = max(sub for sub in subs if sub == 1 or (sub <= rows and sub * cols <= 4096))
    warps = min(16, powers_of_two(1, ceil_div(sub * cols, 256))[-1]) if sub * cols > 256 else 1
    option: dict[str, Value] = {"multibuffer": True} if _ascend(target) else {"num_warps": warps}
    return {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, **option}


def _fits_whole(problem: Problem, target: Target, tiles: int) -> bool:
    """Return whether `tiles` float32 tiles of a whole row are expected to fit on chip."""
    limit = target.on_chip_bytes // (4 * tiles) if _ascend(target) else 16384
    return _whole_row(problem, target) <= limit


# Forward ---------------------------------------------------------------------------------------------------------


def _forward_buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n = _m(problem), _n(problem)
    return {
        "x_ptr": Buffer((m, n), problem.dtype),
        "w_ptr": Buffer((n,), problem.dtype),
        "b_ptr": Buffer((n,), problem.dtype),
        "y_ptr": Buffer((m, n), problem.dtype, role="out"),
        "mean_ptr": Buffer((m,), "float32", role="out", scale=1 / math.sqrt(n)),
        "rstd_ptr": Buffer((m,), "float32", role="out"),
    }


def _forward_launches(config: Config, problem: Problem) -> list[Launch]:
    grid = (ceil_div(_m(problem), int(config["BLOCK_SIZE_M"])),)
    even = _n(problem) % int(config["BLOCK_SIZE_N"]) == 0
    return [Launch(_LOOPED if config["VARIANT"] == "looped" else _ONE_LOAD, grid, {"EVEN_N": even})]


def _forward_tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling, with bytes as the Ascend compiler plans them.

    Beside the tile of x, `one_load` keeps the result, half a tile for halving a sum, w and b. `looped` keeps its two
    sums, w and b, and for a partial last block the select's mask and copies. Values per row take four blocks of 32
    bytes for each 8 rows.
    """
    (sub, cols), item, looped = _tile(config), problem.item_bytes, config["VARIANT"] == "looped"
    tile = sub * cols
    tail = looped and _n(problem) % cols != 0
    halves = (4 if looped else 3) + 3 * tail + 2 * (item < 4)
    return Tiling(
        axes=_axes(config, problem),
        streamed_bytes=tile * item,
        resident_bytes=halves * tile * 2 + 2 * cols * 4 + 128 * ceil_div(sub, 8),
        # looped: x twice, y, and w and b per sub-tile; one_load: x, y, and w and b per program; the least: x and y
        traffic=1.5 + 1 / sub if looped else 1 + 1 / int(config["BLOCK_SIZE_M"]),
        reductions=3,
        operations=1,  # the correction of the mean, or the second subtraction of the shift
    )


def _forward_reference(inputs: Tensors) -> Tensors:
    import torch

    x, w, b = (inputs[name] for name in ("x_ptr", "w_ptr", "b_ptr"))
    y, mean, rstd = torch.native_layer_norm(x, [x.shape[1]], w, b, EPS)
    return {"y_ptr": y, "mean_ptr": mean.flatten(), "rstd_ptr": rstd.flatten()}


def _forward_default(problem: Problem, target: Target) -> Config:
    fits = _fits_whole(problem, target, 4)
    return {
        "VARIANT": "one_load" if fits else "looped",
        **_default_tile(problem, target, row_blocks(_m(problem), target), fits),
    }


FORWARD = KernelSpec(
    name="layer_norm",
    summary="y = (x - mean) * rstd * w + b over the last axis; mean and rstd are kept",
    function=(_ONE_LOAD, _LOOPED),
    dims=("M", "N"),
    dtypes=_DTYPES,
    parameters=(
        Parameter("VARIANT", lambda problem, target: ["one_load", "looped"]),
        Parameter("BLOCK_SIZE_M", lambda problem, target: row_blocks(_m(problem), target)),
        Parameter("SUB_BLOCK_SIZE_M", _sub_rows),
        Parameter("BLOCK_SIZE_N", _block_n),
        _MULTIBUFFER,
        _NUM_WARPS,
    ),
    constraints=(
        Constraint(
            "one_load takes the whole row at once, looped does not",
            lambda c, p, t: (c["VARIANT"] == "one_load") == (int(c["BLOCK_SIZE_N"]) >= _n(p)),
        ),
        _SUB_FITS,
        _tiles_fit(2),
    ),
    buffers=_forward_buffers,
    scalars=lambda problem: {**problem.dims, "eps": EPS},
    launches=_forward_launches,
    tiling=_forward_tiling,
    reference=_forward_reference,
    flops=lambda problem: 8 * _m(problem) * _n(problem),
    default=_forward_default,
)


# Backward --------------------------------------------------------------------------------------------------------

_MERGE_TILE = {"STEP_M": 64, "STEP_N": 64}
"""The tile of the kernel that sums the parts, not tuned: the parts are small beside the problem."""


def _programs(config: Config, problem: Problem) -> int:
    return ceil_div(_m(problem), int(config["BLOCK_SIZE_M"]))


def _backward_buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n = _m(problem), _n(problem)
    return {
        "dy_ptr": Buffer((m, n), problem.dtype),
        "x_ptr": Buffer((m, n), problem.dtype),
        "w_ptr": Buffer((n,), problem.dtype),
        "mean_ptr": Buffer((m,), "float32"),
        "rstd_ptr": Buffer((m,), "float32"),
        "dx_ptr": Buffer((m, n), problem.dtype, role="out"),
        "dw_ptr": Buffer((n,), "float32", role="out", initial=0.0, scale=math.sqrt(m)),
        "db_ptr": Buffer((n,), "float32", role="out", initial=0.0, scale=math.sqrt(m)),
    }


def _backward_scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    match config["VARIANT"]:
        case "fused_atomic":
            return {}
        case "fused_parts":
            parts = Buffer((_programs(config, problem), _n(problem)), "float32")
            return {"dw_parts_ptr": parts, "db_parts_ptr": parts}
        case _:
            sums = Buffer((_m(problem),), "float32")
            return {"along_ptr": sums, "level_ptr": sums}


def _backward_launches(config: Config, problem: Problem) -> list[Launch]:
    programs, n = _programs(config, problem), _n(problem)
    match config["VARIANT"]:
        case "fused_atomic":
            return [Launch(_ATOMIC, (programs,))]
        case "fused_parts":
            merge = Launch(_MERGE, (ceil_div(n, _MERGE_TILE["STEP_N"]),), {"PARTS": programs, **_MERGE_TILE})
            return [Launch(_PARTS, (programs,)), merge]
        case _:
            return [Launch(_SUMS, (programs,)), _apply(config, problem)]


def _apply(config: Config, problem: Problem) -> Launch:
    """Return the second launch of `split`: columns are cut into blocks, and rows into parts, so that there are about
    as many programs as in the first launch."""
    step_n = int(config["STEP_N"])
    columns = ceil_div(_n(problem), step_n)
    rows = ceil_div(_m(problem), max(1, _programs(config, problem) // columns))
    parts = ceil_div(_m(problem), rows)
    return Launch(_APPLY, (columns * parts,), {"COLUMNS": columns, "ROWS": rows})


def _backward_tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling of the first launch, with the bytes of the launch that needs most, as the Ascend compiler
    plans them.

    Beside the tiles of dy and x, the fused kernels keep the sums for dw and db, one and a half tiles of temporaries
    and w. Of `split`, the first launch keeps two sums and a tile of temporaries, the second two sums, one and a half
    tiles of temporaries and w. The fused kernels' values per row (mean, rstd and two sums) take ten blocks of 32 bytes
    for each 8 rows.
    """
    (sub, cols), item = _tile(config), problem.item_bytes
    tile = sub * cols
    widened = 3 * (item < 4)
    if config["VARIANT"] != "split":
        parts = sum(buffer.bytes for buffer in _backward_scratch(config, problem).values())
        traffic = 1 + 2 * parts / (3 * _m(problem) * _n(problem) * item)
        needs = 2 * tile * item, (7 + widened) * tile * 2 + cols * 4 + 320 * ceil_div(sub, 8)
    else:
        traffic = 5 / 3  # dy and x twice and dx, instead of dy, x and dx
        step_n = int(config["STEP_N"])
        step = int(config["STEP_M"]) * step_n
        needs = max(
            (2 * tile * item, (6 + widened) * tile * 2 + cols * item),
            (2 * step * item, (7 + widened) * step * 2 + step_n * 4),
            key=sum,
        )
    return Tiling(
        _axes(config, problem), streamed_bytes=needs[0], resident_bytes=needs[1], traffic=traffic, reductions=2
    )


def _backward_reference(inputs: Tensors) -> Tensors:
    import torch

    dy, x, w, mean, rstd = (inputs[name] for name in ("dy_ptr", "x_ptr", "w_ptr", "mean_ptr", "rstd_ptr"))
    mean, rstd = mean[:, None], rstd[:, None]
    dx, dw, db = torch.ops.aten.native_layer_norm_backward(dy, x, [x.shape[1]], mean, rstd, w, w, [True] * 3)
    return {"dx_ptr": dx, "dw_ptr": dw, "db_ptr": db}


_STEPS_M = (4, 8, 16)
_STEPS_N = (256, 512, 1024)
"""Tiles of the second launch of `split`: more columns make longer transfers, more rows fewer atomic additions."""


def _backward_rows(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of rows per program, for 1/4 to 8 programs per core on Ascend and 1 to 8 on NVIDIA.

    They need not be powers of two on NVIDIA either, since the kernels loop over sub-tiles.
    """
    shares = (8, 4, 3, 2, 1) + ((1 / 2, 1 / 4) if _ascend(target) else ())
    return sorted({ceil_div(_m(problem), max(1, int(target.cores * share))) for share in shares})


def _backward_sub_rows(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the rows per sub-tile: powers of two, and on Ascend the rows of a program themselves (no tail)."""
    subs = set(_sub_rows(problem, target))
    exact = {*_backward_rows(problem, target), 3, 6, 12} if _ascend(target) else set()
    return sorted(subs & {*powers_of_two(1, 1024), *exact})


def _steps(steps: Sequence[int], size: int) -> Sequence[int]:
    """Return the first step, and those shorter than four times `size`."""
    return [step for step in steps if step == steps[0] or step < 4 * size]


def _steps_suit(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the second launch's tile fits and is not too small; without `split` it must be the first."""
    rows, cols = int(config["STEP_M"]), int(config["STEP_N"])
    if config["VARIANT"] != "split":
        return (rows, cols) == (_STEPS_M[0], _STEPS_N[0])
    if _ascend(target):
        return 6 * rows * cols * 4 <= target.on_chip_bytes and rows * cols >= min(1024, _m(problem) * _n(problem) // 4)
    return 32 * int(config["num_warps"]) <= rows * cols <= 32 * 32 * int(config["num_warps"])


def _backward_default(problem: Problem, target: Target) -> Config:
    """Return a fused config if a row fits, else `split` with the largest valid tile of the second launch."""
    fits = _fits_whole(problem, target, 8)
    tile = _default_tile(problem, target, _backward_rows(problem, target), fits)
    steps = itertools.product(_steps(_STEPS_M, _m(problem)), _steps(_STEPS_N, _n(problem)))
    choices = [{"STEP_M": rows, "STEP_N": cols} for rows, cols in steps if rows * cols <= 4096]
    variant = "fused_atomic" if fits else "split"
    configs: list[dict[str, Value]] = [{"VARIANT": variant, **tile, **choice} for choice in reversed(choices)]
    return next(config for config in configs if _steps_suit(config, problem, target))


BACKWARD = KernelSpec(
    name="layer_norm_backward",
    summary="dx, dw and db of layer_norm from dy, x, w, mean and rstd",
    function=(_ATOMIC, _PARTS, _MERGE, _SUMS, _APPLY),
    dims=("M", "N"),
    dtypes=_DTYPES,
    parameters=(
        Parameter("VARIANT", lambda problem, target: ["fused_atomic", "fused_parts", "split"]),
        Parameter("BLOCK_SIZE_M", _backward_rows),
        Parameter("SUB_BLOCK_SIZE_M", _backward_sub_rows),
        Parameter("BLOCK_SIZE_N", _block_n),
        Parameter("STEP_M", lambda problem, target: _steps(_STEPS_M, _m(problem))),
        Parameter("STEP_N", lambda problem, target: _steps(_STEPS_N, _n(problem))),
        _MULTIBUFFER,
        _NUM_WARPS,
    ),
    constraints=(
        Constraint(
            "the fused variants take whole rows",
            lambda c, p, t: c["VARIANT"] == "split" or int(c["BLOCK_SIZE_N"]) >= _n(p),
        ),
        Constraint(
            "at most 8 programs per core, each of which adds to dw and db",
            lambda c, p, t: _programs(c, p) <= 8 * t.cores,
        ),
        _SUB_FITS,
        _tiles_fit(4),
        Constraint("the tile of the second launch suits; it is fixed for variants without one", _steps_suit),
    ),
    buffers=_backward_buffers,
    scratch=_backward_scratch,
    scalars=lambda problem: problem.dims,
    launches=_backward_launches,
    tiling=_backward_tiling,
    reference=_backward_reference,
    flops=lambda problem: 14 * _m(problem) * _n(problem),
    default=_backward_default,
)
