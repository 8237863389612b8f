"""Softmax and log-softmax over the last axis.

`one_load` reads a row once and needs all of it on chip. `online` reads it twice, in blocks of columns, and takes rows
of any length. With the output it moves 1.5 times the least bytes, or less if a cache keeps the row in between.

A row with a NaN, with +inf, or of -inf alone becomes NaN, as in torch. A problem with a dimension of size 0 is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two, row_blocks
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    KernelSpec,
    Launch,
    Parameter,
    Problem,
    Target,
    Tiling,
    Value,
    ceil_div,
)

__all__ = ["LOG_SOFTMAX", "SOFTMAX"]

_ONE_LOAD = "tilewise.kernels.jit.softmax:softmax_one_load_kernel"
_ONLINE = "tilewise.kernels.jit.softmax:softmax_online_kernel"

_NARROWEST = 512
"""Columns of the smallest block of a row."""


def _whole_row(n: int, target: Target) -> int:
    """Return the block that holds a row: the row's length, on NVIDIA the next power of two."""
    return n if target.family == "ascend" else powers_of_two(1, n)[-1]


def _row_blocks(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "ascend":
        return [rows for rows in row_blocks(m, target) if ceil_div(m, rows) <= 16 * target.cores]
    persistent = {ceil_div(m, target.cores * waves) for waves in (1, 2, 4, 8)}
    return sorted({*(rows for rows in powers_of_two(1, 16) if rows <= m), *persistent, *_rows(problem, target)})


def _rows(problem: Problem, target: Target) -> Sequence[Value]:
    m, n = problem.dims["M"], problem.dims["N"]
    least = min(_NARROWEST, _whole_row(n, target))
    if target.family == "nvidia":
        return [rows for rows in powers_of_two(1, min(m, 256)) if rows <= m and rows * least <= 16384]
    return nice_numbers(min(m, target.on_chip_bytes // (3 * 4 * least)))


def _columns(problem: Problem, target: Target) -> Sequence[Value]:
    n = problem.dims["N"]
    whole, most = _whole_row(n, target), 65536 if target.family == "nvidia" else target.on_chip_bytes // (3 * 4)
    parts = [cols for cols in powers_of_two(_NARROWEST, 16384) if cols < n]
    return [*parts, whole] if whole <= most else parts


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    shape = (problem.dims["M"], problem.dims["N"])
    return {"x_ptr": Buffer(shape, problem.dtype), "out_ptr": Buffer(shape, problem.dtype, role="out")}


def _launches(log: bool) -> Callable[[Config, Problem], Sequence[Launch]]:
    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        m, n, cols = problem.dims["M"], problem.dims["N"], int(config["BLOCK_SIZE_N"])
        grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
        constants = {"LOG": log, "FITS_M": int(config["ROWS_PER_BLOCK"]) <= m}
        if config["VARIANT"] == "one_load":
            return [Launch(_ONE_LOAD, grid, {**constants, "FITS_N": cols == n})]
        return [Launch(_ONLINE, grid, {**constants, "EVEN_N": n % cols == 0})]

    return launches


def _tiling(log: bool) -> Callable[[Config, Problem], Tiling]:
    """Return the tiling, with on-chip memory as the Ascend compiler plans it.

    float32 is computed in place if nothing else needs the loaded tile. Otherwise the output has its own buffers,
    doubled like those of the load. The two reductions need scratch of half a tile each, and a single row only one of
    them. `online` has buffers for both its loops. If memory is tight, a second buffer reuses space of the scratch and
    the other loop.
    """

    def tiling(config: Config, problem: Problem) -> Tiling:
        rows, cols = int(config["ROWS_PER_BLOCK"]), int(config["BLOCK_SIZE_N"])
        m, n, item = problem.dims["M"], problem.dims["N"], problem.item_bytes
        padded = ceil_div(cols * item, 32) * 32 // item
        stored = 4 if log or item < 4 else 0
        online = config["VARIANT"] == "online"
        temporaries = 4 * (item < 4 if online else log)
        scratch = 4 if rows > 1 else 2
        return Tiling(
            axes=(Axis("M", m, int(config["BLOCK_SIZE_M"]), rows), Axis("N", n, n, cols)),
            streamed_bytes=rows * padded * (item * (1 + online) + stored),
            resident_bytes=rows * padded * (temporaries + scratch),
            traffic=1.5 if online else 1.0,  # x twice and the output once, instead of each once
            doubling_bytes=0 if log or online else rows * padded * item // 2,
            reductions=2 * (ceil_div(n, cols) if online else 1),
            operations=(1 if log else 2) * online,  # the difference and the exponential are computed twice
            moved_back=rows <= m,
            in_place=stored == 0,
        )

    return tiling


def _fits(log: bool) -> Callable[[Config, Problem, Target], bool]:
    tiling = _tiling(log)

    def fits(config: Config, problem: Problem, target: Target) -> bool:
        tiles = tiling(config, problem)
        return target.family != "ascend" or tiles.streamed_bytes + tiles.resident_bytes <= target.on_chip_bytes

    return fits


def _variant_holds(config: Config, problem: Problem, target: Target) -> bool:
    return (config["VARIANT"] == "one_load") == (int(config["BLOCK_SIZE_N"]) >= problem.dims["N"])


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a tile fits NVIDIA's registers: 1 to 64 elements per thread, or fewer for a single warp."""
    if target.family != "nvidia":
        return True
    threads, tile = 32 * int(config["num_warps"]), int(config["ROWS_PER_BLOCK"]) * int(config["BLOCK_SIZE_N"])
    return threads <= tile <= 64 * threads or (threads == 32 and tile < 32)


def _stages_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether NVIDIA's pipelined loads have a loop of enough trips, and fit half of shared memory."""
    stages = int(config.get("NUM_STAGES", 1))
    if stages == 1:
        return True
    rows, cols = int(config["ROWS_PER_BLOCK"]), int(config["BLOCK_SIZE_N"])
    one_load = config["VARIANT"] == "one_load"
    trips = ceil_div(int(config["BLOCK_SIZE_M"]), rows) if one_load else ceil_div(problem.dims["N"], cols)
    return trips >= stages and stages * rows * cols * problem.item_bytes <= target.on_chip_bytes // 2


def _default(log: bool) -> Callable[[Problem, Target], Config]:
    fits = _fits(log)

    def default(problem: Problem, target: Target) -> Config:
        """Return one load of the whole row if it fits, with about four programs per core on Ascend."""
        m, n = problem.dims["M"], problem.dims["N"]
        columns = [int(cols) for cols in _columns(problem, target)]
        if target.family == "nvidia":
            whole = columns[-1] >= n
            cols = columns[-1] if whole else 4096
            rows = max(int(r) for r in _rows(problem, target) if r == 1 or int(r) * cols <= 1024)
            tiles = {"BLOCK_SIZE_M": rows, "ROWS_PER_BLOCK": rows, "BLOCK_SIZE_N": cols}
            warps = max(w for w in (1, 2, 4, 8, 16, 32) if w == 1 or 256 * w <= rows * cols)
            return {"VARIANT": "one_load" if whole else "online", **tiles, "num_warps": warps, "NUM_STAGES": 1}
        blocks = [int(block) for block in _row_blocks(problem, target)]
        enough = ceil_div(m, 4 * target.cores)
        block = next((rows for rows in blocks if rows >= enough), blocks[-1])
        config: dict[str, Value] = {"VARIANT": "one_load", "BLOCK_SIZE_M": block, "ROWS_PER_BLOCK": 1}
        config |= {"BLOCK_SIZE_N": columns[-1], "multibuffer": True}
        if columns[-1] < n or not fits(config, problem, target):
            config |= {"VARIANT": "online", "BLOCK_SIZE_N": max(c for c in columns if c <= 4096)}
        return config

    return default


def _spec(name: str, summary: str, log: bool, reference: Callable[[Any], Any]) -> KernelSpec:
    return KernelSpec(
        name=name,
        summary=summary,
        function=(_ONE_LOAD, _ONLINE),
        dims=("M", "N"),
        dtypes=("float32", "float16", "bfloat16"),
        parameters=(
            Parameter("VARIANT", lambda problem, target: ["one_load", "online"]),
            Parameter("BLOCK_SIZE_M", _row_blocks),
            Parameter("ROWS_PER_BLOCK", _rows),
            Parameter("BLOCK_SIZE_N", _columns),
            Parameter("multibuffer", lambda _, t: [True, False] if t.family == "ascend" else [], role="option"),
            Parameter("num_warps", lambda _, t: [1, 2, 4, 8, 16, 32] if t.family == "nvidia" else [], role="option"),
            Parameter("NUM_STAGES", lambda _, t: [1, 2, 4] if t.family == "nvidia" else []),
        ),
        constraints=(
            Constraint("one_load where the block holds a row, else online", _variant_holds),
            Constraint(
                "ROWS_PER_BLOCK <= BLOCK_SIZE_M", lambda c, p, t: int(c["ROWS_PER_BLOCK"]) <= int(c["BLOCK_SIZE_M"])
            ),
            Constraint("the tiles fit on chip", _fits(log)),
            Constraint("1 to 64 elements of a tile a thread", _registers_hold),
            Constraint("NUM_STAGES needs as many trips, and half of shared memory", _stages_hold),
        ),
        buffers=_buffers,
        scalars=lambda problem: dict(problem.dims),
        launches=_launches(log),
        tiling=_tiling(log),
        reference=lambda tensors: {"out_ptr": reference(tensors["x_ptr"])},
        flops=lambda problem: 5 * problem.dims["M"] * problem.dims["N"],
        default=_default(log),
    )


SOFTMAX = _spec("softmax", "out[m, n] = exp(x[m, n]) / sum over k of exp(x[m, k])", False, lambda x: x.softmax(1))

LOG_SOFTMAX = _spec(
    "log_softmax",
    "out[m, n] = x[m, n] - log(sum over k of exp(x[m, k]))",
    True,
    lambda x: x.log_softmax(1),
)
