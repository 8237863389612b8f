"""Gating of a mixture of experts: the TOPK largest of a softmax over E experts, and the experts' numbers.

The weights are divided by their sum, unless the flag `renormalise` is false. A row of logits must fit on chip, as some
thousand experts do. Weights are in order, the largest first; of equal logits the expert with the smaller number comes
first. TOPK is at most E, and logits are finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two, row_blocks
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
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
from tilewise.kernels.vector.row_tiles import (
    DTYPES,
    MULTIBUFFER,
    NUM_STAGES,
    NUM_WARPS,
    padded,
    row_constraints,
    warps_for,
    whole_row,
)

__all__ = ["SPEC"]

_KERNEL = "tilewise.kernels.jit.topk_gating:topk_gating_kernel"
_RENORMALISE = Flag("renormalise", (True, False))


def _row_block(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "ascend":
        return row_blocks(m, target)
    persistent = {ceil_div(m, target.cores * waves) for waves in (1, 2, 4, 8, 16)}
    return sorted({*_sub_block(problem, target), *persistent})


def _sub_block(problem: Problem, target: Target) -> Sequence[Value]:
    m, width = problem.dims["M"], whole_row(problem.dims["E"], target)
    if target.family == "nvidia":
        most = max(1, min(m, 1024, 16384 // width))
        return [rows for rows in powers_of_two(1, most) if rows <= most]
    return nice_numbers(max(1, min(m, target.on_chip_bytes // (4 * 4 * width))))


def _expert_block(problem: Problem, target: Target) -> Sequence[Value]:
    return [whole_row(problem.dims["E"], target)]


def _chosen(problem: Problem) -> int:
    """Return the block that holds the TOPK chosen experts: a power of two on every target."""
    return powers_of_two(1, problem.dims["TOPK"])[-1]


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, e, k = (problem.dims[name] for name in ("M", "E", "TOPK"))
    return {
        "x_ptr": Buffer((m, e), problem.dtype),
        "weight_ptr": Buffer((m, k), "float32", role="out"),
        "id_ptr": Buffer((m, k), "int32", role="out"),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, e = problem.dims["M"], problem.dims["E"]
    fits = {"FITS_M": int(config["SUB_BLOCK_SIZE_M"]) <= m, "FITS_E": int(config["BLOCK_SIZE_E"]) == e}
    grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
    return [Launch(_KERNEL, grid, {**fits, "RENORMALISE": _RENORMALISE.of(problem), "BLOCK_SIZE_K": _chosen(problem)})]


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, e, k = (problem.dims[name] for name in ("M", "E", "TOPK"))
    block, rows, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_E"))
    tile = rows * padded(cols, problem.item_bytes)
    return Tiling(
        axes=(Axis("M", m, block, rows), Axis("E", e, e, cols)),
        streamed_bytes=tile * problem.item_bytes,
        resident_bytes=4 * tile * 3 + 16 * rows * padded(_chosen(problem), 4),
        reductions=1 + 2 * k,
        operations=3 * k,
        moved_back=rows <= m,
    )


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    logits = inputs["x_ptr"]
    chosen, ids = (t[:, : problem.dims["TOPK"]] for t in logits.sort(dim=1, descending=True, stable=True))
    whole = chosen if _RENORMALISE.of(problem) else logits
    weights = (chosen - whole.logsumexp(1, keepdim=True)).exp()
    return {"weight_ptr": weights, "id_ptr": ids.to(torch.int32)}


def _default(problem: Problem, target: Target) -> Config:
    width = whole_row(problem.dims["E"], target)
    if target.family == "nvidia":
        rows = max(int(r) for r in _sub_block(problem, target) if r == 1 or int(r) * width <= 1024)
        tiles = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_E": width}
        return {**tiles, "num_warps": warps_for(rows * width), "NUM_STAGES": 1}
    enough = ceil_div(problem.dims["M"], 4 * target.cores)
    block = next(int(rows) for rows in _row_block(problem, target) if int(rows) >= enough)
    sub = max(int(rows) for rows in _sub_block(problem, target) if rows == 1 or int(rows) * width <= 1024)
    return {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": min(sub, block), "BLOCK_SIZE_E": width, "multibuffer": True}


SPEC = KernelSpec(
    name="topk_gating",
    summary="the TOPK largest of softmax(x[m]) over E experts, largest first, over their sum, and the experts' numbers",
    function=(_KERNEL,),
    dims=("M", "E", "TOPK"),
    dtypes=DTYPES,
    flags=(_RENORMALISE,),
    parameters=(
        Parameter("BLOCK_SIZE_M", _row_block),
        Parameter("SUB_BLOCK_SIZE_M", _sub_block),
        Parameter("BLOCK_SIZE_E", _expert_block),
        MULTIBUFFER,
        NUM_WARPS,
        NUM_STAGES,
    ),
    constraints=(Constraint("TOPK <= E", lambda c, p, t: p.dims["TOPK"] <= p.dims["E"]), *row_constraints(_tiling)),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: (4 + 3 * problem.dims["TOPK"]) * problem.dims["M"] * problem.dims["E"],
    default=_default,
)
