"""A matrix product as a user would write it. Nothing in tilewise was designed on it, so it judges repeatability."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Config, Constraint, KernelSpec, Parameter, Problem, Tiling, ceil_div

__all__ = ["SPEC", "matrix_product_kernel"]


@triton.jit
def matrix_product_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """`out = a @ b`, row major, one tile of the output per program; `GROUP_M` rows of tiles share columns in L2."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    rows_in_group = tl.minimum(tiles_m - first, GROUP_M)
    tile_m = first + (program % (GROUP_M * tiles_n)) % rows_in_group
    tile_n = (program % (GROUP_M * tiles_n)) // rows_in_group
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), 0.0)
        b = tl.load(b_ptr + inner[:, None] * N + cols[None, :], (inner[:, None] < K) & (cols[None, :] < N), 0.0)
        total = tl.dot(a, b, total)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], total.to(out_ptr.dtype.element_ty), mask)


def _buffers(problem: Problem) -> dict[str, Buffer]:
    m, n, k = (problem.dims[name] for name in "MNK")
    return {
        "a_ptr": Buffer((m, k), problem.dtype),
        "b_ptr": Buffer((k, n), problem.dtype),
        "out_ptr": Buffer((m, n), problem.dtype, role="out"),
    }


def _grid(config: Config, problem: Problem) -> tuple[int, ...]:
    tiles = (ceil_div(problem.dims[name], int(config[f"BLOCK_{name}"])) for name in "MN")
    return (next(tiles) * next(tiles),)


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, n, k = (int(config[f"BLOCK_{name}"]) for name in "MNK")
    axes = (
        Axis("M", problem.dims["M"], m, m),
        Axis("K", problem.dims["K"], problem.dims["K"], k),
        Axis("N", problem.dims["N"], n, n),
    )
    read = problem.dims["K"] * (axes[2].programs * problem.dims["M"] + axes[0].programs * problem.dims["N"])
    least = sum(buffer.elements for buffer in _buffers(problem).values())
    traffic = (read + problem.dims["M"] * problem.dims["N"]) / least
    return Tiling(axes, streamed_bytes=(m + n) * k * problem.item_bytes, resident_bytes=4 * m * n, traffic=traffic)


def _fits(config: Config, problem: Problem, target: object) -> bool:
    """Keep the accumulator within 128 registers per thread, and at least two: the rest spills or starves."""
    elements = int(config["BLOCK_M"]) * int(config["BLOCK_N"])
    return 2 <= elements / (32 * int(config["num_warps"])) <= 128


SPEC = KernelSpec(
    name="matrix_product",
    summary="out = a @ b",
    function=matrix_product_kernel,
    dims=("M", "N", "K"),
    dtypes=("float16", "bfloat16"),
    parameters=(
        Parameter("BLOCK_M", lambda problem, target: [32, 64, 128, 256]),
        Parameter("BLOCK_N", lambda problem, target: [32, 64, 128, 256]),
        Parameter("BLOCK_K", lambda problem, target: [32, 64, 128]),
        Parameter("GROUP_M", lambda problem, target: [1, 8]),
        Parameter("num_warps", lambda problem, target: [4, 8] if target.family == "nvidia" else [], role="option"),
        Parameter(
            "num_stages", lambda problem, target: [2, 3, 4, 5] if target.family == "nvidia" else [], role="option"
        ),
    ),
    constraints=(Constraint("the accumulator has 2 to 128 elements per thread", _fits),),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    grid=_grid,
    tiling=_tiling,
    reference=lambda inputs: {"out_ptr": inputs["a_ptr"] @ inputs["b_ptr"]},
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    default=lambda problem, target: {
        "BLOCK_M": 128,
        "BLOCK_N": 128,
        "BLOCK_K": 64,
        "GROUP_M": 8,
        **({"num_warps": 8, "num_stages": 3} if target.family == "nvidia" else {}),
    },
)
