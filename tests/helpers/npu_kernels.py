"""A kernel for the stand-in NPU, which decides the effect of `FAULT`."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Problem, Tiling, ceil_div

DEVICE_FAULT, HANG, WRONG = 1, 2, 3

PROBLEM = Problem("halves", {"N": 100_000}, "float32")


@triton.jit
def halves_kernel(x_ptr, out_ptr, N, SIZE: tl.constexpr, FAULT: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + at, mask=at < N)
    tl.store(out_ptr + at, x * 0.5, mask=at < N)


HALVES = KernelSpec(
    name="halves",
    summary="half of each element",
    function=halves_kernel,
    dims=("N",),
    dtypes=("float32",),
    parameters=(
        Parameter("SIZE", lambda problem, target: [4096, 8192, 16384]),
        Parameter("FAULT", lambda problem, target: [0]),
        Parameter("multibuffer", lambda problem, target: [True, False], role="option"),
    ),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["N"],), problem.dtype),
        "out_ptr": Buffer((problem.dims["N"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (ceil_div(problem.dims["N"], config["SIZE"]),),
    tiling=lambda config, problem: Tiling((Axis("N", problem.dims["N"], config["SIZE"], config["SIZE"]),), 0, 0),
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"] / 2},
    flops=lambda problem: problem.dims["N"],
    default=lambda problem, target: {"SIZE": 4096, "FAULT": 0, "multibuffer": True},
)
