"""Micro-kernels that `tilewise calibrate` times: each is slow for one reason."""

import triton
import triton.language as tl

__all__ = [
    "probe_atomic_kernel",
    "probe_chain_kernel",
    "probe_copy_kernel",
    "probe_empty_kernel",
    "probe_load_kernel",
    "probe_operand_kernel",
    "probe_product_kernel",
    "probe_result_kernel",
    "probe_store_kernel",
]


@triton.jit
def probe_empty_kernel(out_ptr, WIDTH: tl.constexpr):
    """Store a little, so that the time is that of launching and of distributing the programs."""
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out_ptr + at, tl.full([WIDTH], 1.0, tl.float32))


@triton.jit
def probe_load_kernel(
    x_ptr,
    out_ptr,
    TILES: tl.constexpr,
    REPEATS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PITCH: tl.constexpr,
):
    """Load tiles of rows PITCH apart, again and again, into a sum that is faster than any load."""
    first = tl.program_id(0).to(tl.int64) * TILES * ROWS * PITCH
    at = tl.arange(0, ROWS)[:, None] * PITCH + tl.arange(0, COLS)[None, :]
    total = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for _ in range(REPEATS):
        for tile in range(TILES):
            total += tl.load(x_ptr + first + tile * ROWS * PITCH + at)
    out = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out, tl.sum(total, axis=1))


@triton.jit
def probe_store_kernel(out_ptr, TILES: tl.constexpr, REPEATS: tl.constexpr, WIDTH: tl.constexpr):
    """Store one tile at many addresses, again and again."""
    first = tl.program_id(0) * TILES * WIDTH
    tile = tl.full([WIDTH], 1.0, tl.float32)
    for _ in range(REPEATS):
        for at in range(TILES):
            tl.store(out_ptr + first + at * WIDTH + tl.arange(0, WIDTH), tile)


@triton.jit
def probe_copy_kernel(x_ptr, out_ptr, TILES: tl.constexpr, WIDTH: tl.constexpr):
    """Copy tile after tile, reading and writing at once."""
    first = tl.program_id(0).to(tl.int64) * TILES * WIDTH
    for tile in range(TILES):
        at = first + tile * WIDTH + tl.arange(0, WIDTH)
        tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def probe_chain_kernel(x_ptr, out_ptr, OP: tl.constexpr, TRIPS: tl.constexpr, WIDTH: tl.constexpr):
    """Apply one operation to a tile that stays on chip, again and again."""
    at = tl.arange(0, WIDTH)
    y = tl.load(x_ptr + at)
    x = y
    for _ in range(TRIPS):
        if OP == "scale":
            x = x * 1.0001
        elif OP == "add":
            x = x + y
        elif OP == "exp":
            x = tl.exp(x)
        elif OP == "log":
            x = tl.log(x)
        elif OP == "sqrt":
            x = tl.sqrt(x)
        elif OP == "divide":
            x = y / x
        elif OP == "cast":
            x = x.to(tl.float16).to(tl.float32) + y
        else:
            x = tl.where(x > y, y, x)
    tl.store(out_ptr + at, x)


@triton.jit
def probe_atomic_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    """Add to the same address from every program."""
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, WIDTH)), axis=0))


@triton.jit
def probe_product_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    TRIPS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    """Multiply two tiles that stay in L1, again and again. With an epilogue, vector cores square the sums."""
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
    b = tl.load(b_ptr + depth[:, None] * N + cols[None, :])
    total = tl.zeros([M, N], dtype=tl.float32)
    for _ in range(TRIPS):
        total = tl.dot(a, b, total)
    if EPILOGUE:
        total = total * total
    at = tl.program_id(0) * M * N + rows[:, None] * N + cols[None, :]
    tl.store(out_ptr + at, total)


@triton.jit
def probe_operand_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    TILES: tl.constexpr,
    REPEATS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PITCH: tl.constexpr,
):
    """Load tiles of rows PITCH apart to L1, again and again, for products that are faster than any load."""
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    first = tl.program_id(0).to(tl.int64) * TILES * M * PITCH
    b = tl.load(b_ptr + depth[:, None] * N + cols[None, :])
    total = tl.zeros([M, N], dtype=tl.float32)
    for _ in range(REPEATS):
        for tile in range(TILES):
            a = tl.load(a_ptr + first + tile * M * PITCH + rows[:, None] * PITCH + depth[None, :])
            total = tl.dot(a, b, total)
    at = tl.program_id(0) * M * N + rows[:, None] * N + cols[None, :]
    tl.store(out_ptr + at, total)


@triton.jit
def probe_result_kernel(a_ptr, b_ptr, out_ptr, TILES: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Store the product of two tiles at many addresses."""
    rows, cols, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
    b = tl.load(b_ptr + depth[:, None] * N + cols[None, :])
    for tile in range(TILES):
        at = (tl.program_id(0) * TILES + tile) * M * N + rows[:, None] * N + cols[None, :]
        tl.store(out_ptr + at, tl.dot(a, b))
