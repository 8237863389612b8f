"""Element-wise work fused with a sum over rows; see `tilewise.kernels.vector.row_reduce` for the spec."""

import triton
import triton.language as tl


@triton.jit
def row_reduce_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    EVICT_FIRST: tl.constexpr = False,
):
    """Compute `out[m] = sum_n sigmoid(2 * x[m, n] + w[n])` for the BLOCK_SIZE_M rows of one program.

    The sum over columns is delayed: a [SUB_BLOCK_SIZE_M, BLOCK_SIZE_N] tile accumulates over the column loop and is
    reduced once. Elements outside the matrix are loaded as -inf, whose sigmoid is 0, so that the loop needs no select:
    on Ascend a select costs instructions and on-chip memory that double buffering needs. EVICT_FIRST makes an NVIDIA
    cache evict the inputs first.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_M  # 64 bits: M * N may exceed 2^31 elements
    end = tl.minimum(first + BLOCK_SIZE_M, M)
    policy: tl.constexpr = "evict_first" if EVICT_FIRST else ""
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = first + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        total = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            mask = (rows < end)[:, None] & (cols < N)[None, :]
            at = x_ptr + rows[:, None] * N + cols[None, :]
            x = tl.load(at, mask=mask, other=float("-inf"), eviction_policy=policy).to(tl.float32)
            w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            total += tl.sigmoid(2.0 * x + w[None, :])
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)
