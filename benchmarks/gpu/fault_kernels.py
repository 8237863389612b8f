"""Row sums with one fault on the device, selected by `FAULT`."""

import triton
import triton.language as tl

__all__ = ["faulty_sums_kernel"]


@triton.jit
def faulty_sums_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, COLS: tl.constexpr, FAULT: tl.constexpr):  # noqa: C901 - one branch per fault
    """Sum `ROWS` rows per program, `COLS` columns at a time, correctly except for the one `FAULT`."""
    tl.static_assert(FAULT != "does not compile", "not this config")
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros([ROWS, COLS], dtype=tl.float32)
    highest = tl.full([ROWS, COLS], float("-inf"), dtype=tl.float32)
    for left in range(0, N, COLS):
        cols = left + tl.arange(0, COLS)
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
        total += x
        highest = tl.maximum(highest, x)
    sums = tl.sum(total, axis=1)
    written = rows < M
    if FAULT == "endless loop":
        value = tl.load(x_ptr, volatile=True)
        while value < 1e30:
            value = tl.load(x_ptr, volatile=True)
    if FAULT == "illegal address":
        far = tl.full([ROWS], 1 << 42, dtype=tl.int64)
        tl.store(out_ptr + far + rows, sums)
    if FAULT == "misaligned address":
        odd = (x_ptr + rows).to(tl.int64, bitcast=True) + 1
        sums += tl.load(odd.to(tl.pointer_type(tl.float32), bitcast=True))
    if FAULT == "trap":
        rows = tl.inline_asm_elementwise("trap; mov.u32 $0, $1;", "=r,r", [rows], dtype=tl.int32, is_pure=False, pack=1)
    if FAULT == "writes out of bounds":
        tl.store(out_ptr + M + rows, sums)
    if FAULT == "writes to its input":
        tl.store(x_ptr + rows, sums)
    if FAULT == "leaves a part unwritten":
        written = written & (rows % 64 != 7)
    if FAULT == "returns NaN":
        sums = tl.where(rows == 5, float("nan"), sums)
    if FAULT == "right on one input only":
        sums += tl.where(tl.max(highest, axis=1) < 0, 1000.0, 0.0)
    tl.store(out_ptr + rows, sums, mask=written)
