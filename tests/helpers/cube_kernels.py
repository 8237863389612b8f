# ruff: noqa: N803
"""Matrix products for a cube core, right or with one mistake; loaded by path."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Dot, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit
def product_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    BATCH,
    M,
    N,
    K,
    TRANSPOSED_A: tl.constexpr,
    WITHOUT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply batches of matrices: one tile of one batch per program. WITHOUT names what is left out."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    batch, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    rows = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    a_at, b_at = a_ptr + batch * M * K, b_ptr + batch * K * N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        held = (inner < K) if WITHOUT != "tail" else (inner < K + BLOCK_K)
        if TRANSPOSED_A:
            a = tl.load(a_at + inner[:, None] * M + rows[None, :], mask=held[:, None] & (rows < M)[None, :], other=0.0)
            a = tl.trans(a)
        else:
            a = tl.load(a_at + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & held[None, :], other=0.0)
        if WITHOUT == "orientation":
            b = tl.load(b_at + cols[:, None] * K + inner[None, :], mask=(cols < N)[:, None] & held[None, :], other=0.0)
            b = tl.trans(b)
        else:
            b = tl.load(b_at + inner[:, None] * N + cols[None, :], mask=held[:, None] & (cols < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    out_at = out_ptr + batch * M * N + rows[:, None] * N + cols[None, :]
    tl.store(out_at, total.to(out_ptr.dtype.element_ty), mask=mask)


def _spec(name, *, transposed_a=False, without="nothing"):
    def sizes(problem):
        return (problem.dims[dim] for dim in ("BATCH", "M", "N", "K"))

    def buffers(problem):
        batch, m, n, k = sizes(problem)
        a = (batch, k, m) if transposed_a else (batch, m, k)
        return {
            "a_ptr": Buffer(a, problem.dtype),
            "b_ptr": Buffer((batch, k, n), problem.dtype),
            "out_ptr": Buffer((batch, m, n), problem.dtype, role="out", terms=k),
        }

    def tiling(config, problem):
        batch, m, n, k = sizes(problem)
        block_m, block_n, block_k = (config[f"BLOCK_{axis}"] for axis in "MNK")
        return Tiling(
            (Axis("M", batch * m, block_m, block_m), Axis("K", k, k, block_k), Axis("N", n, block_n, block_n)),
            (block_m + block_n) * block_k * problem.item_bytes,
            4 * block_m * block_n,
            dot=Dot(block_m, block_n, block_k),
        )

    def grid(config, problem):
        batch, m, n, _ = sizes(problem)
        return (batch * ceil_div(m, config["BLOCK_M"]) * ceil_div(n, config["BLOCK_N"]),)

    def reference(inputs):
        a = inputs["a_ptr"].transpose(1, 2) if transposed_a else inputs["a_ptr"]
        return {"out_ptr": a @ inputs["b_ptr"]}

    return KernelSpec(
        name=name,
        summary="out[b] = a[b] @ b[b]",
        function=product_kernel,
        dims=("BATCH", "M", "N", "K"),
        dtypes=("float16", "bfloat16", "float32"),
        parameters=tuple(Parameter(f"BLOCK_{axis}", lambda problem, target: [16, 32, 64, 128]) for axis in "MNK"),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        constants=lambda problem: {"TRANSPOSED_A": transposed_a, "WITHOUT": without},
        grid=grid,
        tiling=tiling,
        reference=reference,
        flops=lambda problem: 2 * problem.dims["BATCH"] * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
        matrix_dtype=lambda problem: problem.dtype,
        default=lambda problem, target: {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
    )


BATCHED = _spec("batched")
TRANSPOSED_A = _spec("transposed_a", transposed_a=True)
WITHOUT_TAIL = _spec("without_tail", without="tail")
WITHOUT_ORIENTATION = _spec("without_orientation", without="orientation")
