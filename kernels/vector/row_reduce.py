"""Element-wise work fused with a sum over the last axis: the headline operator.

NaN and infinity propagate as in torch. A problem with a dimension of size 0 is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import powers_of_two, row_blocks, row_sub_blocks
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    KernelSpec,
    Parameter,
    Problem,
    Target,
    Tensors,
    Tiling,
    Value,
    ceil_div,
)

__all__ = ["SPEC"]


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    return powers_of_two(64, min(problem.dims["N"], 16384))


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n = problem.dims["M"], problem.dims["N"]
    return {
        "x_ptr": Buffer((m, n), problem.dtype),
        "w_ptr": Buffer((n,), problem.dtype),
        "out_ptr": Buffer((m,), problem.dtype, role="out"),
    }


def _tiling(config: Config, problem: Problem) -> Tiling:
    rows, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    m, n = problem.dims["M"], problem.dims["N"]
    tile = sub * cols
    # float32 tiles that stay on chip: the accumulator, the ones of 1 / (1 + e), the accumulator's initial zeros if
    # there are several sub-tiles, and the float32 copy of a 16-bit input.
    tiles = 2 + (sub < rows) + (problem.item_bytes < 4)
    return Tiling(
        axes=(Axis("M", m, rows, sub), Axis("N", n, n, cols)),
        streamed_bytes=(tile + cols) * problem.item_bytes,
        resident_bytes=tiles * tile * 4,
        reductions=1,
        operations=2,  # the sign of the exponent, and a division, which takes as long as two additions
    )


def _reference(inputs: Tensors) -> Tensors:
    return {"out_ptr": (2 * inputs["x_ptr"] + inputs["w_ptr"]).sigmoid().sum(1)}


def _default(problem: Problem, target: Target) -> Config:
    blocks = row_blocks(problem.dims["M"], target)
    cols = min(512, powers_of_two(64, problem.dims["N"])[-1])
    if target.family == "nvidia":
        rows = min(4, blocks[-1])
        warps = min(4, rows * cols // 32)  # at least one element per thread
        options = {"num_warps": warps, "num_stages": 3, "EVICT_FIRST": False}
        return {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols, **options}
    enough = max(32, ceil_div(problem.dims["M"], target.max_programs))
    rows = next((block for block in blocks if block >= enough), blocks[-1])
    return {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": min(8, rows), "BLOCK_SIZE_N": cols, "multibuffer": True}


def _sub_tiles_suit(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the sub-tile is at most the block; on NVIDIA equal, since other programs hide latency there."""
    rows, sub = int(config["BLOCK_SIZE_M"]), int(config["SUB_BLOCK_SIZE_M"])
    return sub == rows if target.family == "nvidia" else sub <= rows


def _tiles_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the least, the accumulator and one operand, fits Ascend's unified buffer."""
    tile_bytes = int(config["SUB_BLOCK_SIZE_M"]) * int(config["BLOCK_SIZE_N"]) * 4
    return target.family != "ascend" or 2 * tile_bytes <= target.on_chip_bytes


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a tile fits NVIDIA's registers: 1 to 128 elements per thread."""
    threads = 32 * int(config.get("num_warps", 4))
    tile = int(config["SUB_BLOCK_SIZE_M"]) * int(config["BLOCK_SIZE_N"])
    return target.family != "nvidia" or threads <= tile <= 128 * threads


SPEC = KernelSpec(
    name="row_reduce",
    summary="out[m] = sum over n of sigmoid(2 * x[m, n] + w[n])",
    function="tilewise.kernels.jit.row_reduce:row_reduce_kernel",
    dims=("M", "N"),
    dtypes=("float32", "float16", "bfloat16"),
    parameters=(
        Parameter("BLOCK_SIZE_M", lambda problem, target: row_blocks(problem.dims["M"], target)),
        Parameter("SUB_BLOCK_SIZE_M", lambda problem, target: row_sub_blocks(problem.dims["M"], target)),
        Parameter("BLOCK_SIZE_N", _block_n),
        Parameter("multibuffer", lambda _, target: [True, False] if target.family == "ascend" else [], role="option"),
        Parameter(
            "num_warps", lambda _, target: [1, 2, 4, 8, 16, 32] if target.family == "nvidia" else [], role="option"
        ),
        Parameter("num_stages", lambda _, target: [1, 2, 3, 4] if target.family == "nvidia" else [], role="option"),
        Parameter("EVICT_FIRST", lambda _, target: [False, True] if target.family == "nvidia" else []),
    ),
    constraints=(
        Constraint("SUB_BLOCK_SIZE_M <= BLOCK_SIZE_M, on NVIDIA equal", _sub_tiles_suit),
        Constraint("two float32 tiles fit on chip", _tiles_hold),
        Constraint("1 to 128 elements of a tile per thread", _registers_hold),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (ceil_div(problem.dims["M"], int(config["BLOCK_SIZE_M"])),),
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 6 * problem.dims["M"] * problem.dims["N"],
    default=_default,
)
