"""RMS normalisation over the last axis, alone (`rms_norm`) and of a sum with a residual that is kept (`add_rms_norm`).

`one_load` reads a row once and needs all of it on chip. `looped` reads it twice, in blocks of columns, and takes rows
of any length. Everything is computed in float32 and rounded once: also the weight is applied before rounding. Outputs
must not share memory with inputs, since rows at the end may be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Launch, Problem, Tensors, Tiling, ceil_div
from tilewise.kernels.vector.row_tiles import DTYPES, looped_default, looped_parameters, padded, row_constraints

__all__ = ["ADD_RMS_NORM", "EPS", "RMS_NORM"]

EPS = 1e-6
"""Added to the mean square for tuning and verifying, as in most models; the kernels take any."""

_JIT = "tilewise.kernels.jit.rms_norm:"


def _buffers(add: bool) -> Callable[[Problem], Mapping[str, Buffer]]:
    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        shape = problem.dims["M"], problem.dims["N"]
        read, written = Buffer(shape, problem.dtype), Buffer(shape, problem.dtype, role="out")
        return {
            "x_ptr": read,
            **({"residual_ptr": read} if add else {}),
            "w_ptr": Buffer(shape[1:], problem.dtype),
            **({"sum_ptr": written} if add else {}),
            "out_ptr": written,
        }

    return buffers


def _launches(one_load: str, looped: str) -> Callable[[Config, Problem], Sequence[Launch]]:
    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        m, n, cols = problem.dims["M"], problem.dims["N"], int(config["BLOCK_SIZE_N"])
        grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
        fits = int(config["SUB_BLOCK_SIZE_M"]) <= m
        if config["VARIANT"] == "one_load":
            return [Launch(one_load, grid, {"FITS_M": fits, "FITS_N": cols == n})]
        return [Launch(looped, grid, {"FITS_M": fits, "EVEN_N": n % cols == 0})]

    return launches


def _tiling(add: bool) -> Callable[[Config, Problem], Tiling]:
    """Return the tiling, with on-chip memory as the Ascend compiler plans it.

    A result of float32 is computed in the tile of its input. Beside the tiles that are moved, the squares and half a
    tile for halving their sum are on chip, and w, widened if it has 16 bits. `looped` has buffers for both its loops.
    """

    def tiling(config: Config, problem: Problem) -> Tiling:
        block, rows, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"))
        m, n, item, looped = problem.dims["M"], problem.dims["N"], problem.item_bytes, config["VARIANT"] == "looped"
        width = padded(cols, item)
        tile, moved = rows * width, 2 + 2 * add  # `moved`: tensors of M * N elements
        return Tiling(
            axes=(Axis("M", m, block, rows), Axis("N", n, n, cols)),
            streamed_bytes=tile * (12 if add else item + 4),
            resident_bytes=tile * (6 + looped * item * (1 + add)) + width * (4 if item == 4 else 6),
            # w is read by each program, and by each step of `looped`, which reads x (and residual) twice
            traffic=1.5 + 1 / (rows * moved) if looped else 1 + 1 / (block * moved),
            doubling_bytes=tile * item * (1 + add),
            reductions=1,
            operations=looped * add,
            moved_back=rows <= m,
        )

    return tiling


def _normalised(x: object, w: object) -> object:
    import torch

    return torch.nn.functional.rms_norm(x, [x.shape[1]], w, EPS)  # type: ignore[attr-defined, arg-type]


def _rms_norm(inputs: Tensors) -> Tensors:
    return {"out_ptr": _normalised(inputs["x_ptr"], inputs["w_ptr"])}


def _add_rms_norm(inputs: Tensors) -> Tensors:
    total = inputs["x_ptr"] + inputs["residual_ptr"]
    return {"sum_ptr": total, "out_ptr": _normalised(total, inputs["w_ptr"])}


def _spec(name: str, summary: str, add: bool, reference: Callable[[Tensors], Tensors]) -> KernelSpec:
    functions = f"{_JIT}{name}_one_load_kernel", f"{_JIT}{name}_looped_kernel"
    return KernelSpec(
        name=name,
        summary=summary,
        function=functions,
        dims=("M", "N"),
        dtypes=DTYPES,
        parameters=looped_parameters(),
        constraints=row_constraints(_tiling(add), looped=True),
        buffers=_buffers(add),
        scalars=lambda problem: {**problem.dims, "eps": EPS},
        launches=_launches(*functions),
        tiling=_tiling(add),
        reference=reference,
        flops=lambda problem: (4 + add) * problem.dims["M"] * problem.dims["N"],
        default=looped_default(_tiling(add)),
    )


RMS_NORM = _spec("rms_norm", "out[m, n] = x[m, n] / sqrt(mean over k of x[m, k]^2 + eps) * w[n]", False, _rms_norm)

ADD_RMS_NORM = _spec(
    "add_rms_norm", "sum = x + residual, which is kept, and out = rms_norm of sum", True, _add_rms_norm
)
