"""Attention of one query per sequence over keys and values in pages, as when text is generated.

Queries and outputs are [B, H, D]. Keys and values lie in pages [B * PAGES, PAGE, HKV, D]; row b of `table_ptr` [B,
PAGES] names the pages of sequence b in order, of whose tokens the first `lengths_ptr[b]` count. A head of keys serves
H / HKV heads of queries, which fill one tile. `SPLITS` divides the keys of few sequences among more programs; a second
launch merges the parts, always in the same order. Tuning draws lengths within two pages of PAGES * PAGE.

`paged`, the variant for Ascend, takes the keys of one page at a time (see `jit/attention/decode_paged.py`): large pages
are fast there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.kernels.attention.heads import (
    LARGEST_HEAD,
    SLOTS,
    WEIGHT_ROUNDING,
    draw_keys,
    draw_queries,
    only_nvidia,
    padded,
    scale,
)
from tilewise.kernels.candidate_values import only_ascend, powers_of_two
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    Dot,
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

__all__ = ["SPEC"]

_ATTEND = "tilewise.kernels.jit.attention.decode:decode_attention_kernel"
_PAGED = "tilewise.kernels.jit.attention.decode_paged:decode_attention_paged_kernel"
_MERGE_PAGES = "tilewise.kernels.jit.attention.decode_paged:merge_pages_kernel"
_MERGE = "tilewise.kernels.jit.attention.decode:merge_parts_kernel"

_LARGEST_GROUP = 64
"""Heads that share keys: a program keeps the sums of all of them in registers."""

_MOST_SPLITS = 64


def _group(problem: Problem) -> int:
    return max(1, problem.dims["H"] // problem.dims["HKV"])


def _capacity(problem: Problem) -> int:
    return problem.dims["PAGES"] * problem.dims["PAGE"]


def _is_paged(config: Config) -> bool:
    return config.get("VARIANT") == "paged"


def _keys(config: Config, problem: Problem) -> int:
    """Return the keys of the longest sequence, with those that fill up the blocks of each page."""
    if not _is_paged(config):
        return _capacity(problem)
    block = int(config["BLOCK_N"])
    return problem.dims["PAGES"] * ceil_div(problem.dims["PAGE"], block) * block


def _part(config: Config, problem: Problem) -> int:
    """Return the length of a part of the longest sequence: whole blocks."""
    block = int(config["BLOCK_N"])
    return ceil_div(ceil_div(_keys(config, problem), int(config["SPLITS"])), block) * block


def _shortest(problem: Problem) -> int:
    return max(1, _capacity(problem) - 2 * problem.dims["PAGE"] + 1)


def _fill(tensors: Tensors, problem: Problem, generator: Any) -> None:
    """Write the table, pages in any order, and the lengths."""
    import torch

    b, pages = problem.dims["B"], problem.dims["PAGES"]
    table, lengths = tensors["table_ptr"], tensors["lengths_ptr"]
    table.copy_(torch.randperm(b * pages, generator=generator, device=generator.device).view(b, pages))
    lengths.random_(_shortest(problem), _capacity(problem) + 1, generator=generator)


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    b, h, hkv, pages, page, d = (problem.dims[name] for name in SPEC.dims)
    shape = (b * pages, page, hkv, d)
    needed = b * _shortest(problem) * hkv * d * problem.item_bytes
    rounding = WEIGHT_ROUNDING[problem.dtype]
    return {
        "q_ptr": Buffer((b, h, d), problem.dtype, draw=draw_queries),
        "k_ptr": Buffer(shape, problem.dtype, draw=draw_keys, moved_bytes=needed),
        "v_ptr": Buffer(shape, problem.dtype, moved_bytes=needed),
        "table_ptr": Buffer((b, pages), "int32"),
        "lengths_ptr": Buffer((b,), "int32"),
        "out_ptr": Buffer((b, h, d), problem.dtype, role="out", terms=_capacity(problem), tolerance=rounding),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    b, h, hkv = (problem.dims[name] for name in ("B", "H", "HKV"))
    splits = int(config["SPLITS"])
    paged = _is_paged(config)
    attend = Launch(_PAGED if paged else _ATTEND, (b * hkv * splits,), {"WHOLE": splits == 1})
    if paged:
        return [attend] if splits == 1 else [attend, Launch(_MERGE_PAGES, (b * hkv,))]
    merge = Launch(_MERGE, (b * h,), {"BLOCK_S": powers_of_two(1, splits)[-1]})
    return [attend] if splits == 1 else [attend, merge]


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    b, h, d = (problem.dims[name] for name in "BHD")
    splits = int(config["SPLITS"])
    lines = (b, splits, h) if _is_paged(config) else (b, h, splits)
    return {
        "parts_ptr": Buffer((*lines, d), "float32", role="out"),
        "weights_ptr": Buffer(lines, "float32", role="out"),
    }


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    queries, keys, values, table = (inputs[name] for name in ("q_ptr", "k_ptr", "v_ptr", "table_ptr"))
    out = torch.empty_like(queries)
    for sequence, length in enumerate(inputs["lengths_ptr"].tolist()):
        pages = table[sequence].long()
        known, weighed = (source[pages].flatten(0, 1)[:length].movedim(0, 1) for source in (keys, values))
        asked = queries[sequence].view(problem.dims["HKV"], -1, problem.dims["D"])
        weights = (asked @ known.mT * scale(problem)).softmax(-1)
        out[sequence] = (weights @ weighed).flatten(0, 1)
    return {"out_ptr": out}


def _tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling; the two products of a trip count as one, whose sums are as wide as both of theirs."""
    rows, cols, width = padded(_group(problem)), int(config["BLOCK_N"]), padded(problem.dims["D"])
    return Tiling(
        axes=(
            Axis("sequences", problem.dims["B"] * problem.dims["HKV"], 1, 1, along="B"),
            Axis("keys", _keys(config, problem), _part(config, problem), cols, along="PAGES"),
        ),
        streamed_bytes=2 * cols * width * problem.item_bytes,
        resident_bytes=4 * rows * (width + cols),
        dot=Dot(
            rows,
            width + cols,
            2 * width * cols // (width + cols),
            stages=_slots(config) if _is_paged(config) else int(config.get("NUM_STAGES", 1)),
            shared_bytes=rows * width * problem.item_bytes,
            splits=int(config["SPLITS"]),
            chained=True,
            head=width if _is_paged(config) else 0,
        ),
    )


def _slots(config: Config) -> int:
    """Return the trips that overlap on Ascend: with a vector loop in parts as many as workspace has slots, else half as
    many, which is chosen by hand by fourteen times of each."""
    return SLOTS if config.get("tile_mix_vector_loop", 0) else SLOTS // 2


# The space -------------------------------------------------------------------------------------------------------


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    held = problem.dims["PAGE"] if target.family == "ascend" else _capacity(problem)
    values = [value for value in powers_of_two(16, held) if value <= 128]
    return [value for value in values if value >= 32] or values


def _splits(problem: Problem, target: Target) -> Sequence[Value]:
    """Return more than one part only where the sequences alone would not fill the cores four times."""
    most = min(_MOST_SPLITS, max(1, 4 * target.matrix_cores // (problem.dims["B"] * problem.dims["HKV"])))
    return [splits for splits in powers_of_two(1, most) if splits <= most]


def _heads_hold(config: Config, problem: Problem, target: Target) -> bool:
    whole = problem.dims["H"] % problem.dims["HKV"] == 0
    return whole and _group(problem) <= _LARGEST_GROUP and problem.dims["D"] <= LARGEST_HEAD


def _parts_hold(config: Config, problem: Problem, target: Target) -> bool:
    return ceil_div(_keys(config, problem), _part(config, problem)) == config["SPLITS"]


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    if target.family != "nvidia":
        return True
    sums = padded(_group(problem)) * (padded(problem.dims["D"]) + int(config["BLOCK_N"]))
    return sums <= 128 * 32 * int(config["num_warps"])


def _shared_memory_holds(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether queries, and keys and values in flight, fit a program's share: 1 KiB less than the core's."""
    tiling = _tiling(config, problem)
    assert tiling.dot is not None
    if _is_paged(config):
        return tiling.streamed_bytes + tiling.dot.shared_bytes <= target.on_chip_bytes
    needed = tiling.dot.stages * tiling.streamed_bytes + tiling.dot.shared_bytes
    return needed <= target.on_chip_bytes - (1024 if target.family == "nvidia" else 0)


def _default(problem: Problem, target: Target) -> Config:
    """Return blocks of at most 64 keys, 128 on Ascend, and about two programs per core."""
    most = 128 if target.family == "ascend" else 64
    blocks = [value for value in _block_n(problem, target) if int(value) <= most][::-1]
    programs = problem.dims["B"] * problem.dims["HKV"]
    splits = [
        value for value in _splits(problem, target) if programs * int(value) <= max(programs, 2 * target.matrix_cores)
    ]
    options = list(itertools.product((2, 1), (4, 8))) if target.family == "nvidia" else [()]
    names = ("NUM_STAGES", "num_warps")
    config: dict[str, Value] = {}
    for split, block, values in itertools.product(splits[::-1], blocks, options):
        config = {"BLOCK_N": block, "SPLITS": split, **dict(zip(names, values, strict=False))}
        config |= {"VARIANT": "paged", "tile_mix_vector_loop": 4} if target.family == "ascend" else {}
        if all(constraint.holds(config, problem, target) for constraint in SPEC.constraints):
            break
    return config


SPEC = KernelSpec(
    name="decode_attention",
    summary="out = softmax(q @ k.T / sqrt(D)) @ v per head, of one query per sequence over pages of keys",
    function=(_ATTEND, _MERGE, _PAGED, _MERGE_PAGES),
    dims=("B", "H", "HKV", "PAGES", "PAGE", "D"),
    dtypes=("bfloat16", "float16"),
    parameters=(
        Parameter("VARIANT", only_ascend("paged")),
        Parameter("BLOCK_N", _block_n),
        Parameter("SPLITS", _splits),
        Parameter("NUM_STAGES", only_nvidia(1, 2, 3, 4)),
        Parameter("num_warps", only_nvidia(2, 4, 8), role="option"),
        Parameter("tile_mix_vector_loop", only_ascend(0, 4), role="option"),
    ),
    constraints=(
        Constraint(
            f"H is a multiple of HKV, at most {_LARGEST_GROUP} times it, and D at most {LARGEST_HEAD}", _heads_hold
        ),
        Constraint("no part of the keys is empty", _parts_hold),
        Constraint("at most 128 sums of both products per thread", _registers_hold),
        Constraint("queries, and keys and values in flight, fit in shared memory", _shared_memory_holds),
    ),
    buffers=_buffers,
    scalars=lambda problem: {
        **{name: problem.dims[name] for name in ("H", "HKV", "PAGES")},
        "SCALE": scale(problem),
    },
    constants=lambda problem: {
        "D": problem.dims["D"],
        "PAGE": problem.dims["PAGE"],
        "BLOCK_D": padded(problem.dims["D"]),
        "BLOCK_H": padded(_group(problem)),
    },
    launches=_launches,
    scratch=_scratch,
    fill=_fill,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 4 * problem.dims["B"] * problem.dims["H"] * problem.dims["D"] * _capacity(problem),
    matrix_dtype=lambda problem: problem.dtype,
    default=_default,
)
