"""Kernels of the first look that normalise, reduce or scan, written from what the published ones load and compute."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "argmin_middle_kernel",
    "average_1d_kernel",
    "average_2d_kernel",
    "group_norm_kernel",
    "l2_norm_kernel",
    "log_softmax_kernel",
    "matrix_vector_kernel",
    "max_middle_kernel",
    "min_middle_kernel",
    "product_middle_kernel",
    "reverse_cumsum_kernel",
    "rms_channels_kernel",
    "whole_norm_kernel",
]


@triton.jit
def log_softmax_kernel(x_ptr, out_ptr, N, BLOCK_SIZE: tl.constexpr):
    """One row per program, in three passes: maximum, sum of exponentials, difference."""
    row = tl.program_id(0) * N
    most = -float("inf")
    for left in range(0, N, BLOCK_SIZE):
        cols = left + tl.arange(0, BLOCK_SIZE)
        most = tl.maximum(most, tl.max(tl.load(x_ptr + row + cols, mask=cols < N, other=-float("inf")), axis=0))
    total = 0.0
    for left in range(0, N, BLOCK_SIZE):
        cols = left + tl.arange(0, BLOCK_SIZE)
        total += tl.sum(tl.exp(tl.load(x_ptr + row + cols, mask=cols < N, other=0.0) - most), axis=0)
    log_total = tl.log(total)
    for left in range(0, N, BLOCK_SIZE):
        cols = left + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + row + cols, mask=cols < N, other=0.0)
        tl.store(out_ptr + row + cols, (x - most) - log_total, mask=cols < N)


@triton.jit
def rms_channels_kernel(
    x_ptr, out_ptr, F: tl.constexpr, D: tl.constexpr, BLOCK_SIZE_F: tl.constexpr, BLOCK_SIZE_D1D2: tl.constexpr
):
    """Normalise over the F channels of a block of pixels, in two passes."""
    pixels = tl.program_id(1) * BLOCK_SIZE_D1D2 + tl.arange(0, BLOCK_SIZE_D1D2)
    squares = tl.zeros((BLOCK_SIZE_D1D2,), dtype=tl.float32)
    for step in range(tl.cdiv(F, BLOCK_SIZE_F)):
        channels = step * BLOCK_SIZE_F + tl.arange(0, BLOCK_SIZE_F)
        mask = (channels < F)[:, None] & (pixels < D)[None, :]
        at = tl.program_id(0) * F * D + channels[:, None] * D + pixels[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        squares += tl.sum(x * x, axis=0)
    rms = tl.sqrt(squares / F + 1e-5)
    for step in range(tl.cdiv(F, BLOCK_SIZE_F)):
        channels = step * BLOCK_SIZE_F + tl.arange(0, BLOCK_SIZE_F)
        mask = (channels < F)[:, None] & (pixels < D)[None, :]
        at = tl.program_id(0) * F * D + channels[:, None] * D + pixels[None, :]
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask, other=0.0) / rms[None, :], mask=mask)


@triton.jit
def l2_norm_kernel(x_ptr, out_ptr, B: tl.constexpr, D: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    """Divide a row per program by its norm, which stays a vector of one element."""
    row = tl.program_id(0)
    if row < B:
        squares = tl.zeros([1], dtype=tl.float32)
        for left in range(0, D, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
            squares += tl.sum(x * x, axis=0)
        norm = tl.sqrt(squares + 1e-12)
        for left in range(0, D, BLOCK_SIZE_N):
            cols = left + tl.arange(0, BLOCK_SIZE_N)
            x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
            tl.store(out_ptr + row * D + cols, x / norm, mask=cols < D)


@triton.jit
def group_norm_kernel(
    x_ptr,
    out_ptr,
    B: tl.constexpr,
    C: tl.constexpr,
    HW: tl.constexpr,
    G: tl.constexpr,
    TILE_SIZE: tl.constexpr,
    NUM_CORES: tl.constexpr,
):
    """Normalise groups of channels in two passes over whole tiles, without a mask; the programs take turns."""
    for task in range(tl.program_id(0), B * G, NUM_CORES):
        base = task // G * C * HW + task % G * (C // G) * HW
        total = 0.0
        squares = 0.0
        for channel in range(C // G):
            for left in range(0, HW, TILE_SIZE):
                x = tl.load(x_ptr + base + channel * HW + left + tl.arange(0, TILE_SIZE))
                total += tl.sum(x)
                squares += tl.sum(x * x)
        mean = total * (1.0 / (C // G * HW))
        inverse = 1.0 / tl.sqrt(squares * (1.0 / (C // G * HW)) - mean * mean + 1e-5)
        for channel in range(C // G):
            for left in range(0, HW, TILE_SIZE):
                at = base + channel * HW + left + tl.arange(0, TILE_SIZE)
                tl.store(out_ptr + at, (tl.load(x_ptr + at) - mean) * inverse)


@triton.jit
def whole_norm_kernel(
    x_ptr, out_ptr, B: tl.constexpr, N: tl.constexpr, BLOCK_SIZE: tl.constexpr, NUM_CORES: tl.constexpr
):
    """Normalise long rows in two passes; the programs take turns."""
    for row in range(tl.program_id(0), B, NUM_CORES):
        total = 0.0
        squares = 0.0
        for left in range(0, N, BLOCK_SIZE):
            at = row * N + left + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_ptr + at, mask=at < row * N + N, other=0.0)
            total += tl.sum(x, axis=0)
            squares += tl.sum(x * x, axis=0)
        mean = total / N
        deviation = tl.sqrt(squares / N - mean * mean + 1e-5)
        for left in range(0, N, BLOCK_SIZE):
            at = row * N + left + tl.arange(0, BLOCK_SIZE)
            x = tl.load(x_ptr + at, mask=at < row * N + N, other=0.0)
            tl.store(out_ptr + at, (x - mean) / deviation, mask=at < row * N + N)


@triton.jit
def max_middle_kernel(
    x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    """Maximum over the middle axis, each step's tile reduced; a grid of batches and columns."""
    cols = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    most = tl.full((BLOCK_SIZE_N,), -float("inf"), dtype=tl.float32)
    for top in range(0, M, BLOCK_SIZE_M):
        rows = top + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        at = tl.program_id(0) * M * N + rows[:, None] * N + cols[None, :]
        most = tl.maximum(most, tl.max(tl.load(x_ptr + at, mask=mask, other=-float("inf")), axis=0))
    tl.store(out_ptr + tl.program_id(0) * N + cols, most, mask=cols < N)


@triton.jit
def min_middle_kernel(
    x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    """Minimum over the middle axis, each step's tile reduced; a flat grid."""
    across = tl.cdiv(N, BLOCK_SIZE_N)
    batch = tl.program_id(0) // across
    cols = tl.program_id(0) % across * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    least = tl.full([BLOCK_SIZE_N], float("inf"), dtype=tl.float32)
    for top in range(0, M, BLOCK_SIZE_M):
        rows = top + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        at = batch * M * N + rows[:, None] * N + cols[None, :]
        least = tl.minimum(least, tl.min(tl.load(x_ptr + at, mask=mask, other=float("inf")), axis=0))
    tl.store(out_ptr + batch * N + cols, least, mask=cols < N)


@triton.jit
def product_middle_kernel(
    x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    """Product over the middle axis: the rows of a tile are taken out one by one."""
    cols = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    total = tl.full((BLOCK_SIZE_N,), 1.0, dtype=tl.float32)
    for top in range(0, M, BLOCK_SIZE_M):
        rows = top + tl.arange(0, BLOCK_SIZE_M)
        at = tl.program_id(0) * M * N + rows[:, None] * N + cols[None, :]
        x = tl.load(x_ptr + at, mask=(rows < M)[:, None] & (cols < N)[None, :], other=1.0)
        product = tl.full((BLOCK_SIZE_N,), 1.0, dtype=tl.float32)
        for step in range(BLOCK_SIZE_M):
            if top + step < M:
                row = tl.extract_slice(x, (step, 0), (1, BLOCK_SIZE_N), (1, 1))
                product = product * tl.reshape(row, (BLOCK_SIZE_N,))
        total = total * product
    tl.store(out_ptr + tl.program_id(0) * N + cols, total, mask=cols < N)


@triton.jit
def argmin_middle_kernel(
    x_ptr,
    index_ptr,
    B: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PARALLEL_NUM: tl.constexpr,
):
    """Index of the minimum over the middle axis, a row a step; the programs take turns."""
    across = tl.cdiv(N, BLOCK_SIZE)
    for block in range(tl.program_id(0), B * across, PARALLEL_NUM):
        batch = block // across
        first = block % across * BLOCK_SIZE
        cols = tl.arange(0, BLOCK_SIZE)
        mask = cols < tl.minimum(first + BLOCK_SIZE, N) - first
        least = tl.full((BLOCK_SIZE,), float("inf"), dtype=tl.float32)
        index = tl.zeros((BLOCK_SIZE,), dtype=tl.int32)
        for row in range(M):
            x = tl.load(x_ptr + batch * M * N + row * N + first + cols, mask=mask, other=float("inf"))
            smaller = x < least
            least = tl.where(smaller, x, least)
            index = tl.where(smaller, tl.full((BLOCK_SIZE,), row, dtype=tl.int32), index)
        tl.store(index_ptr + batch * N + first + cols, index, mask=mask)


@triton.jit
def reverse_cumsum_kernel(x_ptr, out_ptr, B, stride, N: tl.constexpr, TILE_SIZE: tl.constexpr, NUM_CORES: tl.constexpr):
    """Running sums from the end of each row, with what later tiles sum up to."""
    tiles: tl.constexpr = (N + TILE_SIZE - 1) // TILE_SIZE
    for row in range(tl.program_id(0), B, NUM_CORES):
        carried = 0.0
        for step in range(tiles):
            cols = (tiles - 1 - step) * TILE_SIZE + tl.arange(0, TILE_SIZE)
            x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=0.0)
            tl.store(out_ptr + row * stride + cols, tl.cumsum(x, axis=0, reverse=True) + carried, mask=cols < N)
            carried = carried + tl.sum(x)


@triton.jit
def matrix_vector_kernel(
    a_ptr, b_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Product of a matrix and a vector: a tile times the broadcast vector, its rows summed each step."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for left in range(0, K, BLOCK_K):
        cols = left + tl.arange(0, BLOCK_K)
        mask = (rows < M)[:, None] & (cols < K)[None, :]
        a = tl.load(a_ptr + rows[:, None] * K + cols[None, :], mask=mask, other=0.0)
        b = tl.load(b_ptr + cols, mask=cols < K, other=0.0)
        total += tl.sum(a * tl.broadcast_to(b[None, :], (BLOCK_M, BLOCK_K)), axis=1)
    tl.store(out_ptr + rows, total, mask=rows < M)


@triton.jit
def average_2d_kernel(
    x_ptr,
    out_ptr,
    BC: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT_H: tl.constexpr,
    OUT_W: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_W: tl.constexpr,
    NUM_CORES: tl.constexpr,
):
    """Averages of squares of SIZE x SIZE, an output row a turn: SIZE rows as matrices of windows, through pointers to
    blocks."""
    cols = tl.arange(0, BLOCK_W)
    for row in range(tl.program_id(0), BC * OUT_H, NUM_CORES):
        total = tl.zeros((BLOCK_W,), dtype=tl.float32)
        for step in range(SIZE):
            base = row // OUT_H * (H * W) + (row % OUT_H * SIZE + step) * W
            windows = tl.make_block_ptr(x_ptr + base, (OUT_W, SIZE), (SIZE, 1), (0, 0), (BLOCK_W, SIZE), (1, 0))
            total += tl.sum(tl.load(windows, boundary_check=(0,)), axis=1)
        out = row // OUT_H * (OUT_H * OUT_W) + row % OUT_H * OUT_W
        tl.store(out_ptr + out + cols, total * (1.0 / (SIZE * SIZE)), mask=cols < OUT_W)


@triton.jit
def average_1d_kernel(
    x_ptr,
    out_ptr,
    BC: tl.constexpr,
    L: tl.constexpr,
    OUT: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    NUM_CORES: tl.constexpr,
):
    """Averages of overlapping windows of padded rows, a row a turn, through a pointer to a block."""
    cols = tl.arange(0, BLOCK_OUT)
    for row in range(tl.program_id(0), BC, NUM_CORES):
        windows = tl.make_block_ptr(x_ptr + row * L, (OUT, SIZE), (STRIDE, 1), (0, 0), (BLOCK_OUT, SIZE), (1, 0))
        total = tl.sum(tl.load(windows, boundary_check=(0,)), axis=1)
        tl.store(out_ptr + row * OUT + cols, total * (1.0 / SIZE), mask=cols < OUT)
