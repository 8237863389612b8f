# ruff: noqa: N803
"""Row maxima, sums and softmax, right or with one mistake that many inputs do not show; loaded by path."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Launch, Parameter, Tiling, ceil_div


@triton.jit
def reduce_kernel(
    x_ptr,
    out_ptr,
    M,
    N,
    OP: tl.constexpr,
    START: tl.constexpr,
    OTHER: tl.constexpr,
    SHORT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    result = tl.full([ROWS, COLS], START, dtype=tl.float32)
    for left in range(0, N, COLS):
        cols = left + tl.arange(0, COLS)
        mask = (rows < M)[:, None] & (cols < N - SHORT)[None, :]
        if OTHER is None:
            x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask).to(tl.float32)
        else:
            x = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=OTHER).to(tl.float32)
        if OP == "max":
            result = tl.maximum(result, x, propagate_nan=tl.PropagateNan.ALL)
        else:
            result += x
    tl.store(out_ptr + rows, tl.max(result, axis=1) if OP == "max" else tl.sum(result, axis=1), mask=rows < M)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, M, N, WITH_MAX: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    at = rows[:, None] * N + cols[None, :]
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=float("-inf")).to(tl.float32)
    if WITH_MAX:
        x -= tl.max(x, axis=1)[:, None]
    power = tl.exp(x)
    tl.store(out_ptr + at, power / tl.sum(power, axis=1)[:, None], mask=mask)


@triton.jit
def double_kernel(x_ptr, out_ptr, M, N, NARROW: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    first = (tl.program_id(0).to(tl.int16) if NARROW else tl.program_id(0).to(tl.int64)) * ROWS
    rows = first + tl.arange(0, ROWS)
    at = rows[:, None] * N + tl.arange(0, COLS)[None, :]
    mask = (rows < M)[:, None] & (tl.arange(0, COLS) < N)[None, :]
    tl.store(out_ptr + at, 2.0 * tl.load(x_ptr + at, mask=mask, other=0.0), mask=mask)


def _spec(name, function, reference, constants, *, reduces):
    def launches(config, problem):
        whole = {} if reduces else {"COLS": problem.dims["N"]}
        return [Launch(function, (ceil_div(problem.dims["M"], config["ROWS"]),), constants | whole)]

    def tiling(config, problem):
        m, n = problem.dims["M"], problem.dims["N"]
        return Tiling((Axis("M", m, config["ROWS"], config["ROWS"]), Axis("N", n, n, config.get("COLS", n))), 4, 4)

    def buffers(problem):
        m, n = problem.dims["M"], problem.dims["N"]
        shape = (m,) if reduces else (m, n)
        return {"x_ptr": Buffer((m, n), problem.dtype), "out_ptr": Buffer(shape, problem.dtype, role="out")}

    names = ("ROWS", "COLS") if reduces else ("ROWS",)
    return KernelSpec(
        name=name,
        summary="rows",
        function=(function,),
        dims=("M", "N"),
        dtypes=("float32", "float16", "bfloat16"),
        parameters=tuple(Parameter(p, lambda problem, target: [4, 64, 128]) for p in names),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        launches=launches,
        tiling=tiling,
        reference=lambda inputs: {"out_ptr": reference(inputs["x_ptr"])},
        flops=lambda problem: problem.dims["M"] * problem.dims["N"],
        default=lambda problem, target: {"ROWS": 4, "COLS": 128} if reduces else {"ROWS": 4},
    )


def _reduction(name, op, start=float("-inf"), other=float("-inf"), short=0):
    constants = {"OP": op, "START": start, "OTHER": other, "SHORT": short}
    reference = (lambda x: x.amax(1)) if op == "max" else (lambda x: x.sum(1))
    return _spec(name, reduce_kernel, reference, constants, reduces=True)


def _softmax(name, with_max):
    return _spec(name, softmax_kernel, lambda x: x.softmax(1), {"WITH_MAX": with_max}, reduces=False)


MAX = _reduction("max", "max")
MAX_FROM_ZERO = _reduction("max_from_zero", "max", start=0.0)
MAX_OTHER_ZERO = _reduction("max_other_zero", "max", other=0.0)
MAX_WITHOUT_OTHER = _reduction("max_without_other", "max", other=None)
MAX_ONE_COLUMN_SHORT = _reduction("max_one_column_short", "max", short=1)
SUM = _reduction("sum", "sum", 0.0, 0.0)
SUM_ONE_COLUMN_SHORT = _reduction("sum_one_column_short", "sum", 0.0, 0.0, short=1)
SOFTMAX = _softmax("softmax", with_max=True)
SOFTMAX_WITHOUT_MAX = _softmax("softmax_without_max", with_max=False)
DOUBLE = _spec("double", double_kernel, lambda x: 2 * x, {"NARROW": False}, reduces=False)
DOUBLE_BY_16_BITS = _spec("double_by_16_bits", double_kernel, lambda x: 2 * x, {"NARROW": True}, reduces=False)
