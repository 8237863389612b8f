# ruff: noqa: N803
"""A matrix product as Triton's tutorial writes it, with a spec: tune it, then ask the linter what its offsets cost.

    tilewise tune examples/tutorial_matmul.py:MATMUL -s M=512,N=512,K=512 --dtype float16 --device model:Ascend910B4
    tilewise lint examples/tutorial_matmul.py:MATMUL -s M=512,N=512,K=512 --dtype float16

The tutorial wraps the rows of a and the columns of b (`% M`, `% N`), so that no load needs a mask along them. On Ascend
that hides from the compiler that neighbours lie side by side: rows are copied one by one, and elements one by one.
"""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Dot, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Compute one tile of c per program, in groups of GROUP_SIZE_M rows of tiles."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N)
    in_group = GROUP_SIZE_M * tiles_n
    first = tl.program_id(0) // in_group * GROUP_SIZE_M
    height = min(tiles_m - first, GROUP_SIZE_M)
    tile_m = first + tl.program_id(0) % in_group % height
    tile_n = tl.program_id(0) % in_group // height

    rows = (tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    cols = (tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    inner = tl.arange(0, BLOCK_SIZE_K)
    a_at = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_at = b_ptr + inner[:, None] * stride_bk + cols[None, :] * stride_bn
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for trip in range(tl.cdiv(K, BLOCK_SIZE_K)):
        left = K - trip * BLOCK_SIZE_K
        a = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
        b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_at += BLOCK_SIZE_K * stride_ak
        b_at += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = tl.where(total >= 0, total, 0.01 * total)
    out = total.to(c_ptr.dtype.element_ty)

    rows = tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    cols = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + stride_cm * rows[:, None] + stride_cn * cols[None, :], out, mask=mask)


def _sizes(problem):
    return tuple(problem.dims[name] for name in "MNK")


def _blocks(config):
    return tuple(config[f"BLOCK_SIZE_{name}"] for name in "MNK")


def _buffers(problem):
    m, n, k = _sizes(problem)
    out = Buffer((m, n), problem.dtype, role="out", terms=k)
    return {"a_ptr": Buffer((m, k), problem.dtype), "b_ptr": Buffer((k, n), problem.dtype), "c_ptr": out}


def _scalars(problem):
    _, n, k = _sizes(problem)
    strides = {"stride_am": k, "stride_ak": 1, "stride_bk": n, "stride_bn": 1, "stride_cm": n, "stride_cn": 1}
    return {**problem.dims, **strides}


def _tiling(config, problem):
    (m, n, k), (block_m, block_n, block_k) = _sizes(problem), _blocks(config)
    axes = (Axis("M", m, block_m, block_m), Axis("K", k, k, block_k), Axis("N", n, block_n, block_n))
    streamed = (block_m + block_n) * block_k * problem.item_bytes
    dot = Dot(block_m, block_n, block_k, group=config["GROUP_SIZE_M"])
    return Tiling(axes, streamed, 4 * block_m * block_n, dot=dot)


def _programs(config, problem):
    (m, n, _), (block_m, block_n, _) = _sizes(problem), _blocks(config)
    return (ceil_div(m, block_m) * ceil_div(n, block_n),)


MATMUL = KernelSpec(
    name="tutorial_matmul",
    summary="c = a @ b, by Triton's tutorial",
    function=matmul_kernel,
    dims=("M", "N", "K"),
    dtypes=("float16",),
    parameters=(
        *(Parameter(f"BLOCK_SIZE_{name}", lambda problem, target: [32, 64, 128]) for name in "MNK"),
        Parameter("GROUP_SIZE_M", lambda problem, target: [1, 8]),
    ),
    buffers=_buffers,
    scalars=_scalars,
    constants=lambda problem: {"ACTIVATION": "none"},
    grid=_programs,
    tiling=_tiling,
    reference=lambda inputs: {"c_ptr": inputs["a_ptr"] @ inputs["b_ptr"]},
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=lambda problem: problem.dtype,
    default=lambda problem, target: {**{f"BLOCK_SIZE_{name}": 64 for name in "MNK"}, "GROUP_SIZE_M": 8},
)
