"""Gating of a mixture of experts: the TOPK largest of a softmax over E experts, and the experts' numbers.

The weights are divided by their sum, unless the flag `renormalise` is false. A row of logits must fit on chip, as some
thousand experts do. Weights are in order, the largest first; of equal logits the expert with the smaller number comes
first. TOPK is at most E, and logits are finite.

`selected` looks for the largest that is left, TOPK times, with all threads of a row. `sorted`, in Gluon for NVIDIA (see
`jit/topk_sorted.py`), gives each row to one thread, which sorts parts of `BLOCK_SIZE_E` experts and merges them. It
takes at most 16 choices; of 16-bit logits at most 65536 experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two, row_blocks
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    Flag,
    KernelSpec,
    Launch,
    Parameter,
    Problem,
    Target,
    Tensors,
    Tiling,
    Value,
    ceil_div,
)
from tilewise.kernels.vector.row_tiles import (
    DTYPES,
    MULTIBUFFER,
    NUM_STAGES,
    NUM_WARPS,
    padded,
    row_constraints,
    warps_for,
    whole_row,
)

__all__ = ["SPEC"]

_SELECTED = "tilewise.kernels.jit.topk_gating:topk_gating_kernel"
_SORTED = "tilewise.kernels.jit.topk_sorted:topk_gating_sorted_kernel"
_RENORMALISE = Flag("renormalise", (True, False))


_CHOICES = 16
"""Most choices of `sorted`, whose thread keeps them in registers beside as many of the part that it sorts."""

_EXPERTS = 65536
"""Most experts of 16-bit logits, whose keys have 16 bits for an expert."""

_MANY = 65536
"""Rows of 16-bit logits beyond which `sorted` aims at throughput, about as many as an H100 runs at a time. On one, that
is 4% slower with 65536 rows of 128, 10% faster with 262144, and 3% slower with 262144 rows of float32."""

_PART = 128
"""Registers for the logits that `sorted` sorts at once: one for each of 16 bits, two for a float32."""


def _takes_sorted(problem: Problem, target: Target) -> bool:
    experts, chosen = problem.dims["E"], problem.dims["TOPK"]
    numbered = experts <= _EXPERTS or problem.item_bytes == 4
    return (
        target.family == "nvidia" and (target.capability or 0) >= 80 and chosen <= min(experts, _CHOICES) and numbered
    )


def _most_at_once(problem: Problem) -> int:
    return 2 * _PART // problem.item_bytes


def _variants(problem: Problem, target: Target) -> Sequence[Value]:
    return ["selected", "sorted"] if _takes_sorted(problem, target) else []


def _is_sorted(config: Config) -> bool:
    return config.get("VARIANT") == "sorted"


def _row_block(problem: Problem, target: Target) -> Sequence[Value]:
    m = problem.dims["M"]
    if target.family == "ascend":
        return row_blocks(m, target)
    persistent = {ceil_div(m, target.cores * waves) for waves in (1, 2, 4, 8, 16)}
    return sorted({*_sub_block(problem, target), *persistent})


def _sub_block(problem: Problem, target: Target) -> Sequence[Value]:
    m, width = problem.dims["M"], whole_row(problem.dims["E"], target)
    if target.family == "nvidia":
        most = max(1, min(m, 1024, 16384 // width))
        of_warps = [32 * warps for warps in (1, 2, 4, 8)] if _takes_sorted(problem, target) else []
        return sorted({*(rows for rows in powers_of_two(1, most) if rows <= most), *of_warps})
    return nice_numbers(max(1, min(m, target.on_chip_bytes // (4 * 4 * width))))


def _expert_block(problem: Problem, target: Target) -> Sequence[Value]:
    whole = whole_row(problem.dims["E"], target)
    return [*(_parts(problem, whole) if _takes_sorted(problem, target) else ()), whole]


def _parts(problem: Problem, whole: int) -> Sequence[int]:
    """Return the parts of a row, in experts, that `sorted` may take at a time, the whole row apart.

    In a loop, half of the most is as fast, and compiles in a third of the time.
    """
    return [part for part in (_PART // 4, _PART // 2) if _chosen(problem) <= part < whole]


def _chosen(problem: Problem) -> int:
    """Return the block that holds the TOPK chosen experts: a power of two on every target."""
    return powers_of_two(1, problem.dims["TOPK"])[-1]


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, e, k = (problem.dims[name] for name in ("M", "E", "TOPK"))
    return {
        "x_ptr": Buffer((m, e), problem.dtype),
        "weight_ptr": Buffer((m, k), "float32", role="out"),
        "id_ptr": Buffer((m, k), "int32", role="out"),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, e = problem.dims["M"], problem.dims["E"]
    rows, part = int(config["SUB_BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_E"])
    grid = (ceil_div(m, int(config["BLOCK_SIZE_M"])),)
    renormalise = _RENORMALISE.of(problem)
    if not _is_sorted(config):
        fits = {"FITS_M": rows <= m, "FITS_E": part == e}
        return [Launch(_SELECTED, grid, {**fits, "RENORMALISE": renormalise, "BLOCK_SIZE_K": _chosen(problem)})]
    log_k, log_part = (size.bit_length() - 1 for size in (_chosen(problem), part))
    sizes = {"CHOSEN": problem.dims["TOPK"], "LOG_K": log_k, "LOG_RUNS": log_part - log_k}
    many = m > _MANY and problem.item_bytes == 2
    return [Launch(_SORTED, grid, {**sizes, "FITS_E": part >= e, "RENORMALISE": renormalise, "MANY": many})]


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, e, k = (problem.dims[name] for name in ("M", "E", "TOPK"))
    block, rows, cols = (int(config[name]) for name in ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_E"))
    tile = rows * padded(cols, problem.item_bytes)
    return Tiling(
        axes=(Axis("M", m, block, rows), Axis("E", e, ceil_div(e, cols) * cols if cols < e else e, cols)),
        streamed_bytes=tile * problem.item_bytes,
        resident_bytes=4 * tile * 3 + 16 * rows * padded(_chosen(problem), 4),
        reductions=0 if _is_sorted(config) else 1 + 2 * k,
        operations=20 if _is_sorted(config) else 3 * k,
        moved_back=rows <= m and not _is_sorted(config),
    )


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    logits = inputs["x_ptr"]
    chosen, ids = (t[:, : problem.dims["TOPK"]] for t in logits.sort(dim=1, descending=True, stable=True))
    whole = chosen if _RENORMALISE.of(problem) else logits
    weights = (chosen - whole.logsumexp(1, keepdim=True)).exp()
    return {"weight_ptr": weights, "id_ptr": ids.to(torch.int32)}


def _sorted_holds(config: Config, problem: Problem, target: Target) -> bool:
    rows, part = int(config["SUB_BLOCK_SIZE_M"]), int(config["BLOCK_SIZE_E"])
    if not _is_sorted(config):
        few = target.family != "nvidia" or rows == 1 or rows * part <= min(16384, 64 * 32 * int(config["num_warps"]))
        return part >= problem.dims["E"] and few
    rows_of_warps = int(config["BLOCK_SIZE_M"]) == rows == 32 * int(config["num_warps"])
    return rows_of_warps and config["NUM_STAGES"] == 1 and _chosen(problem) <= part <= _most_at_once(problem)


def _default(problem: Problem, target: Target) -> Config:
    """Return `sorted` where it fills the cores of an NVIDIA GPU, else tiles of about 1024 logits."""
    width = whole_row(problem.dims["E"], target)
    if _takes_sorted(problem, target) and problem.dims["M"] >= 128 * target.cores:
        part = width if width <= _most_at_once(problem) else _PART // 2
        sizes = {"BLOCK_SIZE_M": 32, "SUB_BLOCK_SIZE_M": 32, "BLOCK_SIZE_E": part}
        return {"VARIANT": "sorted", **sizes, "num_warps": 1, "NUM_STAGES": 1}
    if target.family == "nvidia":
        rows = max(int(r) for r in _sub_block(problem, target) if r == 1 or int(r) * width <= 1024)
        selected: Config = {"VARIANT": "selected"} if _takes_sorted(problem, target) else {}
        tiles = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_E": width}
        return {**selected, **tiles, "num_warps": warps_for(rows * width), "NUM_STAGES": 1}
    enough = ceil_div(problem.dims["M"], 4 * target.cores)
    block = next(int(rows) for rows in _row_block(problem, target) if int(rows) >= enough)
    sub = max(int(rows) for rows in _sub_block(problem, target) if rows == 1 or int(rows) * width <= 1024)
    return {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": min(sub, block), "BLOCK_SIZE_E": width, "multibuffer": True}


SPEC = KernelSpec(
    name="topk_gating",
    summary="the TOPK largest of softmax(x[m]) over E experts, largest first, over their sum, and the experts' numbers",
    function=(_SELECTED, _SORTED),
    dims=("M", "E", "TOPK"),
    dtypes=DTYPES,
    flags=(_RENORMALISE,),
    parameters=(
        Parameter("VARIANT", _variants),
        Parameter("BLOCK_SIZE_M", _row_block),
        Parameter("SUB_BLOCK_SIZE_M", _sub_block),
        Parameter("BLOCK_SIZE_E", _expert_block),
        MULTIBUFFER,
        NUM_WARPS,
        NUM_STAGES,
    ),
    constraints=(
        Constraint("TOPK <= E", lambda c, p, t: p.dims["TOPK"] <= p.dims["E"]),
        Constraint(
            "sorted takes 32 rows per warp, and at most 128 experts at a time; selected whole rows", _sorted_holds
        ),
        *row_constraints(_tiling, most=_PART),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: (4 + 3 * problem.dims["TOPK"]) * problem.dims["M"] * problem.dims["E"],
    default=_default,
)
