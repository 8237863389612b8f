# ruff: noqa: N803
"""Kernels that read beyond a tensor, that add up along a row, and that read single numbers; loaded by path."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Launch, Parameter, Tiling, ceil_div


@triton.jit
def differences_kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    """Subtract the row before, and nothing from the first."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * N + tl.arange(0, N)[None, :]
    mask = (rows < M)[:, None]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    before = tl.load(x_ptr + at - N, mask=mask & (rows > 0)[:, None], other=0.0)
    tl.store(out_ptr + at, x - before, mask=mask)


@triton.jit
def differences_without_mask_kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * N + tl.arange(0, N)[None, :]
    mask = (rows < M)[:, None]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    before = tl.load(x_ptr + at - N, mask=mask, other=0.0)
    tl.store(out_ptr + at, x - before, mask=mask)


@triton.jit
def running_sums_kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * N + tl.arange(0, N)[None, :]
    mask = (rows < M)[:, None]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.cumsum(x, axis=1), mask=mask)


@triton.jit
def scaled_by_first_kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    """Divide each row by one more than its first element's magnitude, in place."""
    for start in range(ROWS):
        row = tl.program_id(0) * ROWS + start
        if row < M:
            first = tl.load(out_ptr + row * N).to(tl.float32)
            cols = tl.arange(0, N)
            x = tl.load(out_ptr + row * N + cols).to(tl.float32)
            tl.store(out_ptr + row * N + cols, x / (1.0 + tl.abs(first)))


def _differences(x, *, first):
    before = x.roll(1, 0)
    before[0] = first
    return x - before


def _spec(name, function, reference, *, in_place=False):
    def buffers(problem):
        shape = (problem.dims["M"], problem.dims["N"])
        role = "inout" if in_place else "out"
        return {"x_ptr": Buffer(shape, problem.dtype), "out_ptr": Buffer(shape, problem.dtype, role=role)}

    def tiling(config, problem):
        return Tiling((Axis("M", problem.dims["M"], config["ROWS"], config["ROWS"]),), 4, 4)

    return KernelSpec(
        name=name,
        summary="rows",
        function=(function,),
        dims=("M", "N"),
        dtypes=("float32", "float16", "bfloat16"),
        parameters=(Parameter("ROWS", lambda problem, target: [4, 8]),),
        buffers=buffers,
        scalars=lambda problem: {"M": problem.dims["M"]},
        launches=lambda config, problem: [
            Launch(function, (ceil_div(problem.dims["M"], config["ROWS"]),), {"N": problem.dims["N"]})
        ],
        tiling=tiling,
        reference=reference,
        flops=lambda problem: problem.dims["M"] * problem.dims["N"],
        default=lambda problem, target: {"ROWS": 8},
    )


DIFFERENCES = _spec("differences", differences_kernel, lambda i: {"out_ptr": _differences(i["x_ptr"], first=0.0)})
DIFFERENCES_WITHOUT_MASK = _spec(
    "differences_without_mask",
    differences_without_mask_kernel,
    lambda i: {"out_ptr": _differences(i["x_ptr"], first=0.0)},
)
RUNNING_SUMS = _spec("running_sums", running_sums_kernel, lambda i: {"out_ptr": i["x_ptr"].cumsum(1)})
SCALED_BY_FIRST = _spec(
    "scaled_by_first",
    scaled_by_first_kernel,
    lambda i: {"out_ptr": i["out_ptr"] / (1.0 + i["out_ptr"][:, :1].abs())},
    in_place=True,
)
