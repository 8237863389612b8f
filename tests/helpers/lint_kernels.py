# ruff: noqa: N803
"""Matrix products and row kernels, each with one habit that the linter knows; loaded by path as a user's file is."""

import triton
import triton.language as tl

from tilewise.kernels.spec import Axis, Buffer, Dot, KernelSpec, Parameter, Tiling, ceil_div


@triton.jit(do_not_specialize=["inner_stride"])
def product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    inner_stride,
    HABIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply one tile per program, as Triton's tutorial does, with the offsets of HABIT."""
    cols_of_tiles = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.program_id(0) // cols_of_tiles, tl.program_id(0) % cols_of_tiles
    rows, cols = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        if HABIT == "wrapped" or HABIT == "wrapped rows":
            a = tl.load(a_ptr + (rows % M)[:, None] * K + inner[None, :], mask=(inner < K)[None, :], other=0.0)
        else:
            step = inner_stride if HABIT == "run-time stride" else 1
            mask_a = (rows < M)[:, None] & (inner < K)[None, :]
            a = tl.load(a_ptr + rows[:, None] * K + inner[None, :] * step, mask=mask_a, other=0.0)
        if HABIT == "wrapped":
            b = tl.load(b_ptr + inner[:, None] * N + (cols % N)[None, :], mask=(inner < K)[:, None], other=0.0)
        else:
            mask_b = (inner < K)[:, None] & (cols < N)[None, :]
            b = tl.load(b_ptr + inner[:, None] * N + cols[None, :], mask=mask_b, other=0.0)
        total = tl.dot(a, b, total)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total.to(c_ptr.dtype.element_ty), mask=mask)


def _product(habit):
    def sizes(problem):
        return (problem.dims[name] for name in "MNK")

    def buffers(problem):
        m, n, k = sizes(problem)
        out = Buffer((m, n), problem.dtype, role="out", terms=k)
        return {"a_ptr": Buffer((m, k), problem.dtype), "b_ptr": Buffer((k, n), problem.dtype), "c_ptr": out}

    def tiling(config, problem):
        (m, n, k), (block_m, block_n, block_k) = sizes(problem), (config[f"BLOCK_{name}"] for name in "MNK")
        axes = (Axis("M", m, block_m, block_m), Axis("K", k, k, block_k), Axis("N", n, block_n, block_n))
        streamed = (block_m + block_n) * block_k * problem.item_bytes
        return Tiling(axes, streamed, 4 * block_m * block_n, dot=Dot(block_m, block_n, block_k, alone=True))

    return KernelSpec(
        name=f"product_{habit.replace('-', '_').replace(' ', '_')}",
        summary="c = a @ b",
        function=product_kernel,
        dims=("M", "N", "K"),
        dtypes=("float16",),
        parameters=tuple(Parameter(f"BLOCK_{name}", lambda problem, target: [64, 128, 256, 512]) for name in "MNK"),
        buffers=buffers,
        scalars=lambda problem: {**problem.dims, "inner_stride": 1},
        constants=lambda problem: {"HABIT": habit},
        grid=lambda config, problem: (
            ceil_div(problem.dims["M"], config["BLOCK_M"]) * ceil_div(problem.dims["N"], config["BLOCK_N"]),
        ),
        tiling=tiling,
        reference=lambda inputs: {"c_ptr": inputs["a_ptr"] @ inputs["b_ptr"]},
        flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
        matrix_dtype=lambda problem: problem.dtype,
        default=lambda problem, target: {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
    )


WRAPPED = _product("wrapped")
WRAPPED_ROWS = _product("wrapped rows")
RUN_TIME_STRIDE = _product("run-time stride")
MASKED = _product("masked")


@triton.jit
def rows_kernel(x_ptr, index_ptr, out_ptr, M, N, HABIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Copy rows of N elements in tiles, or with HABIT gather them by a list, count in 64 bits, or as often as a list
    says."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    at = rows
    if HABIT == "list":
        at = tl.load(index_ptr + rows, mask=rows < M, other=0)
    x = tl.load(x_ptr + at[:, None] * N + cols[None, :], mask=mask, other=0)
    if HABIT == "counted":
        for _ in range(tl.load(index_ptr)):
            x = (x.to(tl.int64) + 3).to(tl.int32)
    if HABIT == "wide":
        x = (x.to(tl.int64) + 3).to(tl.int32)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], x, mask=mask)


def _rows(habit):
    def buffers(problem):
        shape = (problem.dims["M"], problem.dims["N"])
        return {
            "x_ptr": Buffer(shape, "int32", draw=_small),
            "index_ptr": Buffer(shape[:1], "int32", draw=None if habit == "counted" else _small),
            "out_ptr": Buffer(shape, "int32", role="out"),
        }

    def reference(inputs):
        taken = inputs["x_ptr"][inputs["index_ptr"].long()] if habit == "list" else inputs["x_ptr"]
        added = {"wide": 3, "counted": 3 * int(inputs["index_ptr"][0])}
        return {"out_ptr": taken + added.get(habit, 0)}

    return KernelSpec(
        name=f"rows_{habit}",
        summary="out[m] = x[m], or x[index[m]]",
        function=rows_kernel,
        dims=("M", "N"),
        dtypes=("int32",),
        parameters=(
            Parameter("ROWS", lambda problem, target: [1, 4, 8, 16]),
            Parameter("COLS", lambda problem, target: [64, 256, 1024]),
        ),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        constants=lambda problem: {"HABIT": habit},
        grid=lambda config, problem: (ceil_div(problem.dims["M"], config["ROWS"]),),
        tiling=lambda config, problem: Tiling((Axis("M", problem.dims["M"], config["ROWS"], config["ROWS"]),), 0, 0),
        reference=reference,
        flops=lambda problem: problem.dims["M"] * problem.dims["N"],
        default=lambda problem, target: {"ROWS": 8, "COLS": 256},
    )


def _small(tensor, generator):
    tensor.random_(0, 8, generator=generator)


COPIED = _rows("copied")
LISTED = _rows("list")
COUNTED = _rows("counted")
WIDE = _rows("wide")


@triton.jit
def positive_kernel(a_ptr, b_ptr, out_ptr, M, N, ADDED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add up each row's positive products; columns beyond the end are masked by adding minus infinity, or selecting
    it."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, 64)
    a = tl.load(a_ptr + rows[:, None] * 64 + depth[None, :], mask=(rows < M)[:, None], other=0.0)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        b = tl.load(b_ptr + depth[:, None] * N + cols[None, :], mask=(cols < N)[None, :], other=0.0)
        product = tl.dot(a, b)
        if ADDED:
            product += tl.where(cols < N, 0.0, float("-inf"))[None, :]
        else:
            product = tl.where((cols < N)[None, :], product, float("-inf"))
        total += tl.sum(tl.maximum(product, 0.0), axis=1)
    tl.store(out_ptr + rows, total, mask=rows < M)


def _positive(added):
    def buffers(problem):
        m, n = problem.dims["M"], problem.dims["N"]
        shapes = {"a_ptr": Buffer((m, 64), "float16"), "b_ptr": Buffer((64, n), "float16")}
        return shapes | {"out_ptr": Buffer((m,), "float32", role="out", terms=64 * n)}

    return KernelSpec(
        name=f"positive_{'added' if added else 'selected'}",
        summary="out[m] = sum over n of max((a @ b)[m, n], 0)",
        function=positive_kernel,
        dims=("M", "N"),
        dtypes=("float16",),
        parameters=tuple(Parameter(f"BLOCK_{name}", lambda problem, target: [32, 64, 128]) for name in "MN"),
        buffers=buffers,
        scalars=lambda problem: dict(problem.dims),
        constants=lambda problem: {"ADDED": added},
        grid=lambda config, problem: (ceil_div(problem.dims["M"], config["BLOCK_M"]),),
        tiling=lambda config, problem: Tiling((), 0, 0),
        reference=lambda inputs: {"out_ptr": (inputs["a_ptr"] @ inputs["b_ptr"]).clamp(min=0).sum(1)},
        flops=lambda problem: 128 * problem.dims["M"] * problem.dims["N"],
        matrix_dtype=lambda problem: "float16",
        default=lambda problem, target: {"BLOCK_M": 32, "BLOCK_N": 64},
    )


ADDED_MASK = _positive(added=True)
SELECTED_MASK = _positive(added=False)
