"""Products of 8-bit floats with a scale per block; see `tilewise.kernels.matrix.block_fp8_gemm` for the spec."""

import triton
import triton.language as tl

from tilewise.kernels.jit.gemm import _tile_of
from tilewise.kernels.jit.matrix.scaled_sums import scaled_sums


@triton.jit
def block_fp8_gemm_kernel(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    SCALED: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute one tile per program. SCALED: elements that share a scale. WIDE: a matrix has 2^31 elements or more."""
    tile_m, tile_n = _tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows, col = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N
    total = scaled_sums(
        a_ptr,
        b_ptr,
        a_scale_ptr,
        b_scale_ptr,
        M,
        N,
        K,
        rows,
        col,
        SCALED,
        EVEN_M,
        EVEN_N,
        EVEN_K,
        WIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    cols = col + tl.arange(0, BLOCK_N)
    out_rows = rows.to(tl.int64) if WIDE else rows
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(out_ptr + out_rows[:, None] * N + cols[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)
