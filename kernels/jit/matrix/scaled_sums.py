"""Sums of 8-bit products with scales, which the products of experts and of scaled blocks share."""

import triton
import triton.language as tl

from tilewise.kernels.jit.gemm import part_of


@triton.jit
def scaled_sums(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    M,
    N,
    K,
    rows,
    col,
    GROUP: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the products of these rows of a [M, K] and the columns from `col` on of b, stored as N x K, in float32.

    Each GROUP elements of a row of a share a scale [M, K / GROUP], and each GROUP x GROUP elements of b one of
    [N / GROUP, K / GROUP]; BLOCK_K divides GROUP. With GROUP = 0 the products stay as they are. What rows
    from M and columns from N on give is not to be used.
    """
    cols = col + tl.arange(0, BLOCK_N)
    in_rows, in_cols = (rows < M)[:, None], (cols < N)[None, :]
    inner = tl.arange(0, BLOCK_K)
    start = inner
    if WIDE:
        rows, cols, start = rows.to(tl.int64), cols.to(tl.int64), start.to(tl.int64)
    a_at = a_ptr + rows[:, None] * K + start[None, :]
    b_at = b_ptr + cols[None, :] * K + start[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for trip in range(tl.cdiv(K, BLOCK_K)):
        left = K - trip * BLOCK_K
        a = part_of(a_at, in_rows, inner[None, :] < left, EVEN_M, EVEN_K)
        b = part_of(b_at, in_cols, inner[:, None] < left, EVEN_N, EVEN_K)
        if GROUP > 0:
            groups = tl.cdiv(K, GROUP)
            group = trip * BLOCK_K // GROUP
            total += tl.dot(a, b) * scales(
                a_scale_ptr, b_scale_ptr, M, N, rows, col, cols, group, groups, GROUP, EVEN_M, EVEN_N, BLOCK_N
            )
        else:
            total += tl.dot(a, b).to(tl.float32)
        a_at += BLOCK_K
        b_at += BLOCK_K
    return total


@triton.jit
def scales(
    a_scale_ptr,
    b_scale_ptr,
    M,
    N,
    rows,
    col,
    cols,
    group,
    groups,
    GROUP: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the scales of the products of a group of K: one per row if all columns share those of b."""
    if EVEN_M:
        of_a = tl.load(a_scale_ptr + rows * groups + group)
    else:
        of_a = tl.load(a_scale_ptr + rows * groups + group, mask=rows < M, other=0.0)
    if BLOCK_N <= GROUP:
        of_both = (of_a * tl.load(b_scale_ptr + col // GROUP * groups + group))[:, None]
    else:
        if not EVEN_N:
            cols = tl.minimum(cols, N - 1)
        of_both = of_a[:, None] * tl.load(b_scale_ptr + cols // GROUP * groups + group)[None, :]
    return of_both
