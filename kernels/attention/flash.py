"""Attention of many queries: `softmax(scale * q @ k.T) @ v` for each of H heads, with scale = 1 / sqrt(D).

Queries and outputs are [B, Q, H, D], keys and values [B, K, HKV, D]; a head of keys serves H / HKV heads of queries.
`causal`: query i sees the keys up to i + K - Q, so the last one sees all, and one that sees none gets zeros. `packed`:
the B sequences have lengths of their own and lie one after another, B * Q queries and B * K keys in all; `q_starts_ptr`
and `k_starts_ptr` hold the first token of each, and the end of the last. Tuning draws uneven lengths.

`plain` runs everywhere. `masked` is for Ascend and sequences of one length (see `jit/attention/flash_masked.py`).
`hopper` is for compute capability 9.0 alone (see `jit/attention/flash_hopper.py`), and needs
upstream Triton 3.6. The default is `plain`, since a launch falls back to the default where another config fails.
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
from tilewise.kernels.candidate_values import powers_of_two
from tilewise.kernels.matrix.cube_tiles import accumulator_holds, operands_in_l1, vector_memory_holds
from tilewise.kernels.spec import (
    Axis,
    Buffer,
    Config,
    Constraint,
    Dot,
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

__all__ = ["SPEC"]

_PLAIN = "tilewise.kernels.jit.attention.flash:flash_attention_kernel"
_MASKED = "tilewise.kernels.jit.attention.flash_masked:flash_attention_masked_kernel"
_HOPPER = "tilewise.kernels.jit.attention.flash_hopper:flash_attention_hopper_kernel"

_CAUSAL = Flag("causal", (False, True))
_PACKED = Flag("packed", (False, True))

_HOPPER_ROWS, _HOPPER_WARPS = 128, 4
"""Queries of a program of the variant `hopper`, and warps of each of its two groups."""


# Arguments -------------------------------------------------------------------------------------------------------


def _lengths(count: int, mean: int) -> list[int]:
    """Return the lengths of `count` packed sequences: pairs of a longer and a shorter one, from 1.2 to 1.8 times the
    mean, and an odd one of the mean."""
    spread = [mean * (pair % 4 + 1) // 5 for pair in range(count // 2)]
    return [length for more in spread for length in (mean + more, mean - more)] + [mean] * (count % 2)


def _sequences(problem: Problem) -> list[tuple[int, int]]:
    """Return the numbers of queries and keys of each sequence."""
    dims = problem.dims
    if not _PACKED.of(problem):
        return [(dims["Q"], dims["K"])] * dims["B"]
    return list(zip(_lengths(dims["B"], dims["Q"]), _lengths(dims["B"], dims["K"]), strict=True))


def _fill(tensors: Tensors, problem: Problem, generator: Any) -> None:
    """Write the starts of packed sequences, which are in another order at every draw."""
    import torch

    if not _PACKED.of(problem):
        return
    sequences = _sequences(problem)
    order = torch.randperm(len(sequences), generator=generator, device=generator.device).tolist()
    for position, name in enumerate(("q_starts_ptr", "k_starts_ptr")):
        lengths = [sequences[index][position] for index in order]
        starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=tensors[name].dtype)
        tensors[name].copy_(starts)


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    b, h, hkv, q, k, d = (problem.dims[name] for name in SPEC.dims)
    rounding = WEIGHT_ROUNDING[problem.dtype]
    starts = {f"{name}_starts_ptr": Buffer((b + 1,), "int32") for name in "qk"} if _PACKED.of(problem) else {}
    return {
        "q_ptr": Buffer((b, q, h, d), problem.dtype, draw=draw_queries),
        "k_ptr": Buffer((b, k, hkv, d), problem.dtype, draw=draw_keys),
        "v_ptr": Buffer((b, k, hkv, d), problem.dtype),
        **starts,
        "out_ptr": Buffer((b, q, h, d), problem.dtype, role="out", terms=k, tolerance=rounding),
    }


def _constants(problem: Problem) -> Mapping[str, Value | None]:
    packed = _PACKED.of(problem)
    missing = {} if packed else {"q_starts_ptr": None, "k_starts_ptr": None}
    fixed = {
        "D": problem.dims["D"],
        "BLOCK_D": padded(problem.dims["D"]),
        "CAUSAL": _CAUSAL.of(problem),
        "PACKED": packed,
    }
    return {**missing, **fixed}


def _blocks(config: Config, problem: Problem) -> int:
    """Return the blocks of queries of a head; packed sequences that begin within a block need one more each."""
    b, q, block = problem.dims["B"], problem.dims["Q"], int(config["BLOCK_M"])
    return b * q // block + b if _PACKED.of(problem) else b * ceil_div(q, block)


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    grid = (_blocks(config, problem) * problem.dims["H"],)
    fits = not _PACKED.of(problem) and problem.dims["K"] % int(config["BLOCK_N"]) == 0
    if config["VARIANT"] == "masked":
        return [Launch(_MASKED, grid, {"FITS_N": fits})]
    hopper = config["VARIANT"] == "hopper"
    return [Launch(_HOPPER if hopper else _PLAIN, grid, {"FITS_N": fits}, descriptors=hopper)]


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    b, h, hkv, q, k, d = (problem.dims[name] for name in SPEC.dims)
    queries, keys, values = inputs["q_ptr"].flatten(0, 1), inputs["k_ptr"].flatten(0, 1), inputs["v_ptr"].flatten(0, 1)
    out = torch.empty_like(queries)
    if _PACKED.of(problem):
        q_starts, k_starts = inputs["q_starts_ptr"].tolist(), inputs["k_starts_ptr"].tolist()
    else:
        q_starts, k_starts = range(0, b * q + 1, q), range(0, b * k + 1, k)
    for sequence, head in itertools.product(range(b), range(h)):  # one at a time, as the scores take K / D times q
        asked = slice(q_starts[sequence], q_starts[sequence + 1])
        known = slice(k_starts[sequence], k_starts[sequence + 1])
        kv = head // (h // hkv)
        scores = queries[asked, head] @ keys[known, kv].mT * scale(problem)
        if _CAUSAL.of(problem):
            seen = torch.ones_like(scores, dtype=torch.bool).tril(scores.shape[1] - scores.shape[0])
            scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1)
        if _CAUSAL.of(problem):
            weights = weights.masked_fill(~seen, 0.0)  # a row that sees nothing is NaN
        out[asked, head] = weights @ values[known, kv]
    return {"out_ptr": out.view(b, q, h, d)}


def _pairs(queries: int, keys: int) -> int:
    """Return the pairs of a query and a key that it sees in a causal sequence."""
    first = keys - queries + 1  # seen by the first query
    blind = max(0, 1 - first)
    return (queries - blind) * (max(first, 1) + keys) // 2 if queries > blind else 0


def _flops(problem: Problem) -> int:
    causal = _CAUSAL.of(problem)
    pairs = sum(_pairs(q, k) if causal else q * k for q, k in _sequences(problem))
    return 4 * problem.dims["H"] * problem.dims["D"] * pairs


def _tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling. The two products of a trip count as one, whose sums are as wide as both of theirs.

    All keys count, also those that a causal query does not see: that is the same factor for all configs.
    """
    rows, cols, width = int(config["BLOCK_M"]), int(config["BLOCK_N"]), padded(problem.dims["D"])
    sequences = [] if _PACKED.of(problem) else [Axis("B", problem.dims["B"], 1, 1)]
    size = _blocks(config, problem) * rows if _PACKED.of(problem) else problem.dims["Q"]
    least = SPEC.bytes(problem)
    read = 2 * problem.item_bytes * problem.dims["K"] * problem.dims["D"] * _blocks(config, problem) * problem.dims["H"]
    return Tiling(
        axes=(
            Axis("tokens" if _PACKED.of(problem) else "Q", size, rows, rows),
            *sequences,
            Axis("heads", problem.dims["H"], 1, 1),
            Axis("K", problem.dims["K"], problem.dims["K"], cols),
        ),
        streamed_bytes=2 * cols * width * problem.item_bytes,
        resident_bytes=4 * rows * (width + cols),
        traffic=max(1.0, read / least),
        dot=Dot(
            rows,
            width + cols,
            2 * width * cols // (width + cols),
            stages=_slots(config, problem) if config["VARIANT"] == "masked" else int(config.get("NUM_STAGES", 1)),
            shared_bytes=rows * width * problem.item_bytes,
            group=ceil_div(size, rows),  # all blocks of queries share keys
            described=config["VARIANT"] == "hopper",
            specialised=config["VARIANT"] == "hopper",
            head=width if config["VARIANT"] == "masked" else 0,
        ),
    )


def _slots(config: Config, problem: Problem) -> int:
    """Return the trips that overlap on Ascend: one where scores are masked, else as many as workspace has slots."""
    masked = _CAUSAL.of(problem) or problem.dims["K"] % int(config["BLOCK_N"])
    return 1 if masked else int(config.get("set_workspace_multibuffer", 0)) or SLOTS


# The space -------------------------------------------------------------------------------------------------------


def _tiles_of(size: int, least: int, most: int = 128) -> list[Value]:
    """Return the powers of two from 16 to the first that holds `size`, and to `most`; for larger sizes from `least`."""
    values = [value for value in powers_of_two(16, size) if value <= most]
    return [value for value in values if value >= min(least, values[-1])]


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    return _tiles_of(problem.dims["Q"], 64)


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    most = 256 if target.family == "ascend" else 128
    return _tiles_of(problem.dims["K"], 32 if padded(problem.dims["D"]) > 128 else 64, most)


def _takes_hopper(problem: Problem, target: Target) -> bool:
    """Return whether the variant runs: on its GPU, with rows of whole 16 bytes, and for tiles that fill its groups."""
    dims = problem.dims
    fits = dims["D"] % 8 == 0 and 32 < dims["D"] <= 128
    return target.family == "nvidia" and target.capability == 90 and fits and min(dims["Q"], dims["K"]) > 64


def _workspace_slots(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of slots of workspace, 0 for the compiler's own; only a loop without masks has more than
    one."""
    overlaps = _variants(problem, target) == ["masked"] and not _CAUSAL.of(problem)
    return [0, 2] if overlaps and problem.dims["K"] % int(_block_n(problem, target)[0]) == 0 else []


def _variants(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend" and not _PACKED.of(problem):
        return ["masked"]
    return ["plain", "hopper"] if _takes_hopper(problem, target) else ["plain"]


def _heads_hold(config: Config, problem: Problem, target: Target) -> bool:
    return problem.dims["H"] % problem.dims["HKV"] == 0 and problem.dims["D"] <= LARGEST_HEAD


def _hopper_holds(config: Config, problem: Problem, target: Target) -> bool:
    if config["VARIANT"] != "hopper":
        return True
    whole = config["BLOCK_M"] == _HOPPER_ROWS and config["num_warps"] == _HOPPER_WARPS
    return whole and int(config["BLOCK_N"]) >= 64 and int(config["NUM_STAGES"]) >= 2


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a thread holds 1 to 128 sums of both products: more would spill."""
    if target.family != "nvidia":
        return True
    groups = 2 if config["VARIANT"] == "hopper" else 1
    sums = int(config["BLOCK_M"]) * (padded(problem.dims["D"]) + int(config["BLOCK_N"]))
    return 1 <= sums / (32 * int(config["num_warps"]) * groups) <= 128


_SCORE_TILES, _TAIL_TILES, _CAUSAL_TILES, _VALUE_TILES = 2.0, 2.5, 4.0, 2.0
"""Float32 tiles that the compiler plans in a vector core's memory where it does not double buffers: of scores, of those
that are masked at the end of the keys, of causal ones, and of values; read from what it says of tiles that do not
fit."""


def _cores_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether half a tile of scores and values fits a vector core, and sums and operands fit a cube core on
    Ascend."""
    rows, cols, width = int(config["BLOCK_M"]), int(config["BLOCK_N"]), padded(problem.dims["D"])
    scores = _CAUSAL_TILES if _CAUSAL.of(problem) else _TAIL_TILES if problem.dims["K"] % cols else _SCORE_TILES
    tiles = vector_memory_holds(rows, cols * scores + width * _VALUE_TILES, target)
    operands = operands_in_l1(rows + 2 * cols, 0, width, problem.item_bytes)
    return tiles and operands and accumulator_holds(rows, max(cols, width))


def _shared_memory_holds(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether queries, and keys and values in flight, fit a program's share: 1 KiB less than the core's.

    Compiled for 9.0, configs take exactly these bytes, `hopper` less than 300 more for its barriers.
    """
    tiling = _tiling(config, problem)
    assert tiling.dot is not None
    if config["VARIANT"] == "masked":
        return _cores_hold(config, problem, target)
    if target.family != "nvidia":
        return tiling.streamed_bytes + tiling.dot.shared_bytes <= target.on_chip_bytes
    needed = tiling.dot.stages * tiling.streamed_bytes + tiling.dot.shared_bytes
    return needed + (512 if config["VARIANT"] == "hopper" else 0) <= target.on_chip_bytes - 1024


def _slots_hold(config: Config, problem: Problem, target: Target) -> bool:
    return not config.get("set_workspace_multibuffer", 0) or problem.dims["K"] % int(config["BLOCK_N"]) == 0


def _default(problem: Problem, target: Target) -> Config:
    """Return the largest tiles that fit, with as few warps as hold their sums: the fastest `plain` one on an H200. On
    Ascend they go with two slots of workspace, which is faster with the largest tiles."""
    rows, cols = _block_m(problem, target)[::-1], _block_n(problem, target)[::-1]
    options = itertools.product((2, 1), (4, 8)) if target.family == "nvidia" else [()]
    names = ("NUM_STAGES", "num_warps")
    config: dict[str, Value] = {}
    for block_m, block_n, values in itertools.product(rows, cols, list(options)):
        config = {
            "VARIANT": _variants(problem, target)[0],
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            **dict(zip(names, values, strict=False)),
            **({"set_workspace_multibuffer": 2} if _workspace_slots(problem, target) else {}),
        }
        if all(constraint.holds(config, problem, target) for constraint in SPEC.constraints):
            break
    return config


SPEC = KernelSpec(
    name="flash_attention",
    summary="out = softmax(q @ k.T / sqrt(D)) @ v per head, of many queries",
    function=(_PLAIN, _HOPPER, _MASKED),
    dims=("B", "H", "HKV", "Q", "K", "D"),
    dtypes=("bfloat16", "float16"),
    flags=(_CAUSAL, _PACKED),
    parameters=(
        Parameter("VARIANT", _variants),
        Parameter("BLOCK_M", _block_m),
        Parameter("BLOCK_N", _block_n),
        Parameter("NUM_STAGES", only_nvidia(1, 2, 3, 4)),
        Parameter("num_warps", only_nvidia(4, 8), role="option"),
        Parameter("set_workspace_multibuffer", _workspace_slots, role="option"),
    ),
    constraints=(
        Constraint(f"H is a multiple of HKV, and D at most {LARGEST_HEAD}", _heads_hold),
        Constraint("hopper takes 128 queries, 64 or more keys, 4 warps and at least 2 stages", _hopper_holds),
        Constraint("1 to 128 sums of both products per thread", _registers_hold),
        Constraint("queries, and keys and values in flight, fit in shared memory", _shared_memory_holds),
        Constraint("set_workspace_multibuffer needs keys that are whole blocks", _slots_hold),
    ),
    buffers=_buffers,
    scalars=lambda problem: {
        **{name: size for name, size in problem.dims.items() if name != "D"},
        "SCALE": scale(problem),
    },
    constants=_constants,
    fill=_fill,
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=_flops,
    matrix_dtype=lambda problem: problem.dtype,
    default=_default,
)
