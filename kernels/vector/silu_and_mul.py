"""The gated activation of a feed-forward layer: silu of the first half of the columns, times the second half.

A problem of M rows and N columns of output has an input of 2 N columns. The work is element-wise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
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
    SHARED_ROWS,
    default_rows,
    padded,
    row_constraints,
    row_parts,
    warps_for,
)

__all__ = ["SPEC"]

_KERNEL = "tilewise.kernels.jit.elementwise:silu_and_mul_kernel"


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n = problem.dims["M"], problem.dims["N"]
    return {"x_ptr": Buffer((m, 2 * n), problem.dtype), "out_ptr": Buffer((m, n), problem.dtype, role="out")}


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n = problem.dims["M"], problem.dims["N"]
    block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    return [Launch(_KERNEL, (ceil_div(m, block) * ceil_div(n, cols),), {"FITS_M": sub <= m, "FITS_N": cols <= n})]


def _tiling(config: Config, problem: Problem) -> Tiling:
    block, sub, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
    item = problem.item_bytes
    tile = sub * padded(cols, item)
    return Tiling(
        axes=(Axis("M", problem.dims["M"], block, sub), Axis("N", problem.dims["N"], cols, cols)),
        streamed_bytes=tile * (2 * item + 4),
        resident_bytes=4 * tile * (1 + (item < 4)),
        moved_back=sub <= problem.dims["M"],
    )


def _reference(inputs: Tensors) -> Tensors:
    import torch

    gate, factor = inputs["x_ptr"].chunk(2, 1)
    return {"out_ptr": torch.nn.functional.silu(gate) * factor}


def _default(problem: Problem, target: Target) -> Config:
    columns = [int(cols) for cols in row_parts(problem, target)]
    few = min(8192, ceil_div(problem.dims["N"], 64 * target.cores)) if target.family == "ascend" else 1
    cols = max(c for c in columns if c == columns[0] or c <= max(1024, few))
    parts = ceil_div(problem.dims["N"], cols)
    tiles: dict[str, Value] = {**default_rows(problem, target, cols, parts), "BLOCK_SIZE_N": cols}
    if target.family == "ascend":
        return {**tiles, "multibuffer": True}
    return {**tiles, "num_warps": warps_for(int(tiles["SUB_BLOCK_SIZE_M"]) * cols), "NUM_STAGES": 1}


SPEC = KernelSpec(
    name="silu_and_mul",
    summary="out[m, n] = silu(x[m, n]) * x[m, N + n], with silu(x) = x / (1 + exp(-x))",
    function=(_KERNEL,),
    dims=("M", "N"),
    dtypes=DTYPES,
    parameters=(*SHARED_ROWS, Parameter("BLOCK_SIZE_N", row_parts), MULTIBUFFER, NUM_WARPS, NUM_STAGES),
    constraints=row_constraints(_tiling),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 6 * problem.dims["M"] * problem.dims["N"],
    default=_default,
)
