"""Sums of 8-bit products with scales, which the products of experts and of scaled blocks share."""

import triton
import triton.language as tl


@triton.jit
def scaled_sums(
    a_ptr,
    b_ptr,
    a_scale_ptr,
    b_scale_ptr,
    N,
    K,
    rows,
    col,
    GROUP: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return the products of these rows of a [.., K] and the columns from `col` on of b, stored as N x K, in float32.

    Each GROUP elements of a row of a share a scale [.., K / GROUP], and each GROUP x GROUP elements of b one of
    [N / GROUP, K / GROUP]; BLOCK_K divides GROUP. With GROUP = 0 the products stay as they are. All rows exist.
    """
    # columns outside read the last one: loads need no mask for them, and their sums are not stored
    cols = col + tl.arange(0, BLOCK_N)
    if not EVEN_N:
        cols = tl.minimum(cols, N - 1)
    inner = tl.arange(0, BLOCK_K)
    start = inner
    if WIDE:
        rows, cols, start = rows.to(tl.int64), cols.to(tl.int64), start.to(tl.int64)
    a_at = a_ptr + rows[:, None] * K + start[None, :]
    b_at = b_ptr + cols[None, :] * K + start[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for trip in range(tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a, b = tl.load(a_at), tl.load(b_at)
        else:
            left = K - trip * BLOCK_K
            a = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
            b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        if GROUP > 0:
            groups = tl.cdiv(K, GROUP)
            group = trip * BLOCK_K // GROUP
            total += tl.dot(a, b) * scales(a_scale_ptr, b_scale_ptr, rows, col, cols, group, groups, GROUP, BLOCK_N)
        else:
            total += tl.dot(a, b).to(tl.float32)
        a_at += BLOCK_K
        b_at += BLOCK_K
    return total


@triton.jit
def scales(a_scale_ptr, b_scale_ptr, rows, col, cols, group, groups, GROUP: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the scales of the products of a group of K: one per row if all columns share those of b."""
    of_a = tl.load(a_scale_ptr + rows * groups + group)
    if BLOCK_N <= GROUP:
        of_both = (of_a * tl.load(b_scale_ptr + col // GROUP * groups + group))[:, None]
    else:
        of_both = of_a[:, None] * tl.load(b_scale_ptr + cols // GROUP * groups + group)[None, :]
    return of_both
