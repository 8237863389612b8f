import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Constraint, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, N, BLOCK_SIZE: tl.constexpr, SUB_BLOCK_SIZE: tl.constexpr):
    first = tl.program_id(0) * BLOCK_SIZE
    for start in range(0, BLOCK_SIZE, SUB_BLOCK_SIZE):
        at = first + start + tl.arange(0, SUB_BLOCK_SIZE)
        inside = at < N
        x = tl.load(x_ptr + at, mask=inside)
        y = tl.load(y_ptr + at, mask=inside)
        tl.store(out_ptr + at, 2 * x + y, mask=inside)


def tiling(config, problem):
    step_bytes = config["SUB_BLOCK_SIZE"] * problem.item_bytes
    axis = Axis("N", problem.dims["N"], config["BLOCK_SIZE"], config["SUB_BLOCK_SIZE"])
    return Tiling((axis,), streamed_bytes=2 * step_bytes, resident_bytes=step_bytes)


SPEC = KernelSpec(
    name="scaled_add",
    summary="out = 2 * x + y",
    function=scaled_add_kernel,
    dims=("N",),
    dtypes=("float32", "float16"),
    parameters=(
        Parameter("BLOCK_SIZE", lambda problem, target: [2**k for k in range(10, 17)]),
        Parameter("SUB_BLOCK_SIZE", lambda problem, target: [2**k for k in range(8, 15)]),
    ),
    constraints=(Constraint("sub-blocks fill the block", lambda c, p, t: c["BLOCK_SIZE"] >= c["SUB_BLOCK_SIZE"]),),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["N"],), problem.dtype),
        "y_ptr": Buffer((problem.dims["N"],), problem.dtype),
        "out_ptr": Buffer((problem.dims["N"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (ceil_div(problem.dims["N"], config["BLOCK_SIZE"]),),
    tiling=tiling,
    reference=lambda inputs: {"out_ptr": 2 * inputs["x_ptr"] + inputs["y_ptr"]},
    flops=lambda problem: 2 * problem.dims["N"],
    default=lambda problem, target: {"BLOCK_SIZE": 1024, "SUB_BLOCK_SIZE": 1024},
)
