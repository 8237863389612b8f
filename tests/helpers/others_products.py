# ruff: noqa: N803
"""Products as other projects write them, which the compiler turns into code of its own kinds; loaded by path."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Buffer, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit
def resident_kernel(a_ptr, b_ptr, bias_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add up three products of tiles that stay on chip."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols, depth = tl.arange(0, BLOCK_N), tl.arange(0, 64)
    a = tl.load(a_ptr + rows[:, None] * 64 + depth[None, :], mask=(rows < M)[:, None], other=0.0)
    b = tl.load(b_ptr + depth[:, None] * N + cols[None, :], mask=(cols < N)[None, :], other=0.0)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(3):
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def biased_kernel(a_ptr, b_ptr, bias_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add a number per column to each product; the compiler starts the cube core's sums from it."""
    rows, depth = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, 64)
    a = tl.load(a_ptr + rows[:, None] * 64 + depth[None, :], mask=(rows < M)[:, None], other=0.0)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        b = tl.load(b_ptr + depth[:, None] * N + cols[None, :], mask=(cols < N)[None, :], other=0.0)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        total += tl.dot(a, b)
        total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]
        tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def clamped_kernel(a_ptr, b_ptr, bias_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Read column 0 in place of those beyond the end; the compiler loads each column that is chosen alone."""
    rows, depth = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, 64)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    chosen = tl.where(cols < N, cols, 0)
    a = tl.load(a_ptr + rows[:, None] * 64 + depth[None, :], mask=(rows < M)[:, None], other=0.0)
    b = tl.load(b_ptr + depth[:, None] * N + chosen[None, :])
    total = tl.dot(a, b)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows < M)[:, None] & (cols < N)[None, :])


def _spec(name, function, reference, *, tiled=False):
    def buffers(problem):
        m, n = problem.dims["M"], problem.dims["N"]
        return {
            "a_ptr": Buffer((m, 64), "float16"),
            "b_ptr": Buffer((64, n), "float16"),
            "bias_ptr": Buffer((n,), "float32"),
            "out_ptr": Buffer((m, n), "float32", role="out", terms=192),
        }

    def grid(config, problem):
        across = ceil_div(problem.dims["N"], config["BLOCK_N"]) if tiled else 1
        return (ceil_div(problem.dims["M"], config["BLOCK_M"]), across)

    return KernelSpec(
        name=name,
        summary="a product of others",
        function=function,
        dims=("M", "N"),
        dtypes=("float16",),
        parameters=tuple(Parameter(f"BLOCK_{axis}", lambda problem, target: [16, 32, 64, 128]) for axis in "MN"),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        grid=grid,
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {"out_ptr": reference(inputs["a_ptr"] @ inputs["b_ptr"], inputs["bias_ptr"])},
        flops=lambda problem: 128 * problem.dims["M"] * problem.dims["N"],
        matrix_dtype=lambda problem: "float16",
        default=lambda problem, target: {"BLOCK_M": 32, "BLOCK_N": 64},
    )


RESIDENT = _spec("resident", resident_kernel, lambda product, bias: 3 * product)
BIASED = _spec("biased", biased_kernel, lambda product, bias: product + bias)
CLAMPED = _spec("clamped", clamped_kernel, lambda product, bias: product, tiled=True)
