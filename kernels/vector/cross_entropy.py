"""Cross entropy of logits against one target class per row, forward.

`one_load` holds a row in one tile. `looped` takes it in parts, for rows of any length, with a maximum and a sum for
each column of the tile. Both read every logit once, and the target's once more. A row with a negative target (torch's
`ignore_index` is -100) has the loss 0. A target of N or more is out of bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Launch, Problem, Tensors, Tiling, ceil_div
from tilewise.kernels.vector.row_tiles import DTYPES, looped_default, looped_parameters, padded, row_constraints

__all__ = ["IGNORED", "SPEC"]

IGNORED = -100
"""The target of a row without a class: torch's default `ignore_index`."""

_ONE_LOAD, _LOOPED = (f"tilewise.kernels.jit.softmax:cross_entropy_{name}_kernel" for name in ("one_load", "looped"))


def _draw_targets(classes: int, tensor: Any, generator: Any) -> None:
    """Draw targets of all classes, often the last or the first, and some ignored ones."""
    tensor.random_(0, classes, generator=generator)
    tensor[1::5] = classes - 1
    tensor[2::5] = 0
    tensor[3::7] = IGNORED


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n = problem.dims["M"], problem.dims["N"]
    return {
        "x_ptr": Buffer((m, n), problem.dtype),
        "target_ptr": Buffer((m,), "int64", draw=functools.partial(_draw_targets, n)),
        "loss_ptr": Buffer((m,), "float32", role="out"),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n, cols = problem.dims["M"], problem.dims["N"], int(config["BLOCK_SIZE_N"])
    grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
    fits = int(config["SUB_BLOCK_SIZE_M"]) <= m
    if config["VARIANT"] == "one_load":
        return [Launch(_ONE_LOAD, grid, {"FITS_M": fits, "FITS_N": cols == n})]
    # on NVIDIA, where exponentials are what the kernel waits for, a group is what a thread loads at once: 16 bytes
    group = 16 // problem.item_bytes if "num_warps" in config else 1
    return [Launch(_LOOPED, grid, {"FITS_M": fits, "EVEN_N": n % cols == 0, "GROUP": group})]


def _tiling(config: Config, problem: Problem) -> Tiling:
    rows, cols, item = int(config["SUB_BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_N"]), problem.item_bytes
    m, n, looped = problem.dims["M"], problem.dims["N"], config["VARIANT"] == "looped"
    tile = rows * padded(cols, item)
    return Tiling(
        axes=(Axis("M", m, int(config["BLOCK_SIZE_M"]), rows), Axis("N", n, n, cols)),
        streamed_bytes=tile * item,
        resident_bytes=tile * ((24 if looped else 2) + 4 * (item < 4)),
        reductions=2,
        operations=3 * looped,  # the old sum is scaled by a second exponential
        moved_back=rows <= m,
    )


def _reference(inputs: Tensors) -> Tensors:
    import torch

    x, target = inputs["x_ptr"], inputs["target_ptr"]
    return {"loss_ptr": torch.nn.functional.cross_entropy(x, target, ignore_index=IGNORED, reduction="none")}


SPEC = KernelSpec(
    name="cross_entropy",
    summary="loss[m] = log(sum over n of exp(x[m, n])) - x[m, target[m]], or 0 for a negative target",
    function=(_ONE_LOAD, _LOOPED),
    dims=("M", "N"),
    dtypes=DTYPES,
    parameters=looped_parameters(),
    constraints=row_constraints(_tiling, looped=True),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 4 * problem.dims["M"] * problem.dims["N"],
    default=looped_default(_tiling),
)
