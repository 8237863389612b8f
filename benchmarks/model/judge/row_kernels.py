"""Kernels of published timings that reduce rows, written from their descriptions, to compare the model with."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "cumsum_kernel",
    "instance_norm_kernel",
    "l1_norm_kernel",
    "layer_norm_kernel",
    "masked_cumsum_kernel",
    "rms_norm_kernel",
    "softmax_kernel",
    "sum_fused_kernel",
    "sum_middle_kernel",
]


@triton.jit
def sum_fused_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    M,
    N,
    BLOCK_SIZE_M: tl.constexpr,
    SUB_BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
):
    """Sum sigmoids of rows: `where` selects what is added, and sub-tiles may reach into the next program's rows."""
    for start in range(0, BLOCK_SIZE_M, SUB_BLOCK_SIZE_M):
        rows = tl.program_id(0) * BLOCK_SIZE_M + start + tl.arange(0, SUB_BLOCK_SIZE_M)
        total = tl.zeros([SUB_BLOCK_SIZE_M, BLOCK_SIZE_N], dtype=tl.float32)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            mask = (rows < M)[:, None] & (cols < N)[None, :]
            x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
            w = tl.load(w_ptr + cols, mask=cols < N, other=0.0)
            total += tl.where(mask, tl.sigmoid(2.0 * x + w[None, :]), 0.0)
        tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < M)


@triton.jit
def sum_middle_kernel(
    x_ptr,
    out_ptr,
    B: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    NUM_CORES: tl.constexpr,
):
    """Sum over the middle axis: a tile of sums over row steps, reduced once."""
    across = tl.cdiv(N, BLOCK_SIZE_N)
    for block in range(tl.program_id(0), B * across, NUM_CORES):
        cols = block % across * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
        total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for step in range(tl.cdiv(M, BLOCK_SIZE_M)):
            rows = step * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
            mask = (rows < M)[:, None] & (cols < N)[None, :]
            at = block // across * M * N + rows[:, None] * N + cols[None, :]
            total += tl.load(x_ptr + at, mask=mask, other=0.0)
        tl.store(out_ptr + block // across * N + cols, tl.sum(total, axis=0), mask=cols < N)


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, B, N, TILE_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Running sums of whole rows, one row a step."""
    cols = tl.arange(0, TILE_SIZE)
    for row in range(tl.program_id(0), B, NUM_CORES):
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
        tl.store(out_ptr + row * N + cols, tl.cumsum(x, axis=0), mask=cols < N)


@triton.jit
def masked_cumsum_kernel(x_ptr, mask_ptr, out_ptr, B, N, TILE_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Running sums of the elements whose mask is set, one row a step."""
    cols = tl.arange(0, TILE_SIZE)
    for row in range(tl.program_id(0), B, NUM_CORES):
        x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
        taken = tl.load(mask_ptr + row * N + cols, mask=cols < N, other=0)
        tl.store(out_ptr + row * N + cols, tl.cumsum(x * taken.to(tl.float32), axis=0), mask=cols < N)


@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, B: tl.constexpr, N: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, NUM_CORES: tl.constexpr
):
    """Softmax of rows in three passes: maximum, sum, quotient."""
    each = tl.cdiv(B, NUM_CORES)
    first = tl.program_id(0) * each
    for row in range(first, tl.minimum(first + each, B)):
        most = -float("inf")
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf"))
            most = tl.maximum(most, tl.max(x, axis=0))
        total = 0.0
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            total += tl.sum(tl.exp(tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0) - most), axis=0)
        for left in range(0, N, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
            tl.store(out_ptr + row * N + cols, tl.exp(x - most) / total, mask=cols < N)


@triton.jit
def l1_norm_kernel(
    x_ptr, out_ptr, B: tl.constexpr, D: tl.constexpr, BLOCK_SIZE_D: tl.constexpr, NUM_CORES: tl.constexpr
):
    """Divide each row by the sum of its absolute values, in two passes."""
    each = tl.cdiv(B, NUM_CORES)
    for step in range(each):
        row = tl.program_id(0) * each + step
        if row < B:
            total = 0.0
            for left in range(0, D, BLOCK_SIZE_D):
                at = row * D + left + tl.arange(0, BLOCK_SIZE_D)
                total += tl.sum(tl.abs(tl.load(x_ptr + at, mask=at < row * D + D, other=0.0)), axis=0)
            for left in range(0, D, BLOCK_SIZE_D):
                at = row * D + left + tl.arange(0, BLOCK_SIZE_D)
                x = tl.load(x_ptr + at, mask=at < row * D + D, other=0.0)
                tl.store(out_ptr + at, x / total, mask=at < row * D + D)


@triton.jit
def instance_norm_kernel(x_ptr, out_ptr, C, H, W, eps, TILE_H: tl.constexpr, TILE_W: tl.constexpr):
    """Normalise each channel of each image, in two passes over tiles."""
    base = (tl.program_id(0) * C + tl.program_id(1)) * H * W
    total = 0.0
    squares = 0.0
    for top in range(0, H, TILE_H):
        for left in range(0, W, TILE_W):
            rows, cols = top + tl.arange(0, TILE_H), left + tl.arange(0, TILE_W)
            mask = (rows < H)[:, None] & (cols < W)[None, :]
            x = tl.load(x_ptr + base + rows[:, None] * W + cols[None, :], mask=mask, other=0.0)
            total += tl.sum(x)
            squares += tl.sum(x * x)
    mean = total / (H * W)
    deviation = tl.sqrt(squares / (H * W) - mean * mean + eps)
    for top in range(0, H, TILE_H):
        for left in range(0, W, TILE_W):
            rows, cols = top + tl.arange(0, TILE_H), left + tl.arange(0, TILE_W)
            mask = (rows < H)[:, None] & (cols < W)[None, :]
            at = base + rows[:, None] * W + cols[None, :]
            tl.store(out_ptr + at, (tl.load(x_ptr + at, mask=mask, other=0.0) - mean) / deviation, mask=mask)


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, M, N: tl.constexpr, eps, BLOCK_SIZE_M: tl.constexpr):
    """Normalise whole rows in one pass without a mask."""
    cols = tl.arange(0, N)
    for block in range(tl.program_id(0), tl.cdiv(M, BLOCK_SIZE_M), tl.num_programs(0)):
        at = (block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))[:, None] * N + cols[None, :]
        x = tl.load(x_ptr + at)
        centred = x - (tl.sum(x, axis=1) / N)[:, None]
        inverse = tl.rsqrt(tl.sum(centred * centred, axis=1) / N + eps)
        w, b = tl.load(w_ptr + cols), tl.load(b_ptr + cols)
        tl.store(out_ptr + at, centred * inverse[:, None] * w[None, :] + b[None, :])


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, out_ptr, M, N: tl.constexpr, eps, BLOCK_SIZE_M: tl.constexpr):
    """Scale whole rows to unit root mean square, with masks."""
    cols = tl.arange(0, N)
    for block in range(tl.program_id(0), tl.cdiv(M, BLOCK_SIZE_M), tl.num_programs(0)):
        rows = block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        at = rows[:, None] * N + cols[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols, mask=cols < N, other=0.0)
        inverse = tl.where(rows < M, tl.rsqrt(tl.sum(x * x, axis=1) / N + eps), 0.0)
        tl.store(out_ptr + at, x * inverse[:, None] * w[None, :], mask=mask)
