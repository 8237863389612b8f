"""Rotary position embedding in the order of GPT-NeoX: element n of a head is paired with element HALF + n.

The tables hold the cosine and the sine of each token's angles, `[M, HALF]` in the problem's dtype: rows gathered by
position beforehand. HALF is half of the head size, so that every size from 1 is a problem. A rotation is computed in
float32 and rounded once. The output must not share memory with the input, since tokens at the end may be computed
twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import powers_of_two
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
    warps_for,
    whole_row,
)

__all__ = ["SPEC"]

_KERNEL = "tilewise.kernels.jit.rotary:rotary_kernel"
_MOST_PAIRS = 1024
"""Pairs of the largest block: longer halves of heads are cut."""


def _head_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    h = problem.dims["H"]
    whole = min(whole_row(h, target), 64)
    return sorted({*(heads for heads in powers_of_two(1, 64) if heads <= min(h, 64)), whole})


def _pair_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    return [min(whole_row(problem.dims["HALF"], target), _MOST_PAIRS)]


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, h, half = (problem.dims[name] for name in ("M", "H", "HALF"))
    table = Buffer((m, half), problem.dtype)
    return {
        "x_ptr": Buffer((m, h, 2 * half), problem.dtype),
        "cos_ptr": table,
        "sin_ptr": table,
        "out_ptr": Buffer((m, h, 2 * half), problem.dtype, role="out"),
    }


def _blocks(config: Config) -> tuple[int, int, int, int]:
    names = "BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_H", "BLOCK_SIZE_N"
    block, sub, heads, pairs = (int(config[name]) for name in names)
    return block, sub, heads, pairs


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, h, half = (problem.dims[name] for name in ("M", "H", "HALF"))
    block, sub, heads, pairs = _blocks(config)
    fits = {"FITS_M": sub <= m, "FITS_H": heads <= h, "FITS_N": pairs <= half}
    return [Launch(_KERNEL, (ceil_div(m, block) * ceil_div(h, heads) * ceil_div(half, pairs),), fits)]


def _tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling, with on-chip memory as the Ascend compiler plans it: float32 is rotated in place, beside three
    tiles of products; 16-bit results have tiles of float32 of their own, narrowed in place."""
    m, h, half = (problem.dims[name] for name in ("M", "H", "HALF"))
    block, sub, heads, pairs = _blocks(config)
    item = problem.item_bytes
    table = sub * padded(pairs, item)
    tile = table * heads
    return Tiling(
        axes=(Axis("M", m, block, sub), Axis("H", h, heads, heads), Axis("HALF", half, pairs, pairs)),
        streamed_bytes=2 * tile * (4 if item == 4 else item + 4) + 2 * table * item,
        resident_bytes=tile * (12 if item == 4 else 8),
        traffic=(4 * h + 2 * ceil_div(h, heads)) / (4 * h + 2),  # each block of heads reads the tables
        moved_back=sub <= m,
    )


def _reference(inputs: Tensors) -> Tensors:
    import torch

    low, high = inputs["x_ptr"].chunk(2, 2)
    cos, sin = inputs["cos_ptr"][:, None, :], inputs["sin_ptr"][:, None, :]
    return {"out_ptr": torch.cat([low * cos - high * sin, high * cos + low * sin], 2)}


def _default(problem: Problem, target: Target) -> Config:
    pairs = int(_pair_blocks(problem, target)[0])
    blocks = [int(heads) for heads in _head_blocks(problem, target)]
    heads = max(heads for heads in blocks if heads == 1 or heads * pairs <= 2048)
    parts = ceil_div(problem.dims["H"], heads) * ceil_div(problem.dims["HALF"], pairs)
    tiles: dict[str, Value] = {
        **default_rows(problem, target, heads * pairs, parts),
        "BLOCK_SIZE_H": heads,
        "BLOCK_SIZE_N": pairs,
    }
    if target.family == "ascend":
        return {**tiles, "multibuffer": True}
    return {**tiles, "num_warps": warps_for(int(tiles["SUB_BLOCK_SIZE_M"]) * heads * pairs), "NUM_STAGES": 1}


SPEC = KernelSpec(
    name="rotary",
    summary="out[m, h] = x[m, h] with each pair (n, HALF + n) rotated by the angle of cos[m, n] and sin[m, n]",
    function=(_KERNEL,),
    dims=("M", "H", "HALF"),
    dtypes=DTYPES,
    parameters=(
        *SHARED_ROWS,
        Parameter("BLOCK_SIZE_H", _head_blocks),
        Parameter("BLOCK_SIZE_N", _pair_blocks),
        MULTIBUFFER,
        NUM_WARPS,
        NUM_STAGES,
    ),
    constraints=row_constraints(_tiling),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 6 * problem.dims["M"] * problem.dims["H"] * problem.dims["HALF"],
    default=_default,
)
