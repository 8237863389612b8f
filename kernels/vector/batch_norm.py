"""2-D batch normalisation, training forward: `y = (x - mean) * rstd * w + b` with the statistics of each channel.

x is contiguous [N, C, H, W], passed as [N, C, HW]. mean and rstd (of the biased variance) are stored in float32. NaN
and infinity make their whole channel NaN, as in torch. A problem with a dimension of size 0 is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import powers_of_two
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
    Tensors,
    Tiling,
    Value,
    ceil_div,
)

__all__ = ["EPS", "SPEC"]

EPS = 1e-5
"""Added to the variance; torch's default."""

_WHOLE, _SUMS, _APPLY = (
    f"tilewise.kernels.jit.batch_norm:batch_norm_{name}_kernel" for name in ("whole", "sums", "apply")
)

_SELECT = 2.5
"""Vector operations of a select of a tile on Ascend: the mask, its operand, and the selection."""

_TILE = ("BLOCK_SIZE_N", "BLOCK_SIZE_C", "BLOCK_SIZE_HW")


def _sizes(problem: Problem) -> tuple[int, int, int]:
    return problem.dims["N"], problem.dims["C"], problem.dims["HW"]


def _elements(config: Config) -> int:
    n, c, hw = (int(config[name]) for name in _TILE)
    return n * c * hw


def _parts(config: Config, problem: Problem) -> tuple[int, int]:
    """Return the number of parts of a channel, by images and by pixels."""
    n, _, hw = _sizes(problem)
    return ceil_div(n, int(config["PART_N"])), ceil_div(hw, int(config["PART_HW"]))


def _programs(config: Config, problem: Problem) -> int:
    return ceil_div(problem.dims["C"], int(config["BLOCK_SIZE_C"])) * math.prod(_parts(config, problem))


def _ascend(target: Target) -> bool:
    return target.family == "ascend"


# Parameters ------------------------------------------------------------------------------------------------------


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of images per tile: more than one only for small planes."""
    n, _, hw = _sizes(problem)
    return [block for block in powers_of_two(1, n) if block == 1 or (block <= 2 * n and block * hw <= 16384)][:11]


def _block_c(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of channels per tile, which join small planes; on Ascend also those that fill the cores."""
    _, c, hw = _sizes(problem)
    blocks = set(powers_of_two(1, min(c, 256, max(1, 4096 // hw))))
    if _ascend(target):
        blocks |= {ceil_div(c, target.cores * waves) for waves in (1, 2, 4)}
        blocks = {block for block in blocks if block <= c and block * min(hw, 256) <= 16384}
    return sorted(blocks)


def _block_hw(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of pixels per tile: on Ascend the plane or aligned shares of it, otherwise powers of two."""
    hw = problem.dims["HW"]
    if not _ascend(target):
        blocks = powers_of_two(1, min(hw, 8192))
        return [block for block in blocks if block >= min(32, blocks[-1])][-6:]
    shares = {_aligned(ceil_div(hw, share), problem, target) for share in (2, 3, 4, 6, 8, 12, 16)} | {2048, 8192}
    return sorted({hw if hw <= 16384 else 8192, *(share for share in shares if 256 <= share < min(hw, 16384))})


def _part_n(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of images per part: all, or a share, up to 8 programs per core or 16 parts of a channel."""
    n, c, _ = _sizes(problem)
    parts = {*powers_of_two(1, min(n, max(16, 8 * target.cores // c))), max(1, target.cores // c)}
    return sorted({ceil_div(n, part) for part in parts})


def _part_hw(problem: Problem, target: Target) -> Sequence[Value]:
    """Return the numbers of pixels per part: all, or shares of at least 1024 for when channels and images are too few
    for the cores."""
    n, c, hw = _sizes(problem)
    fill = max(1, target.cores // (n * c))
    parts = {*powers_of_two(1, 4 * fill), fill}
    return sorted({hw, *(share for part in parts if (share := _aligned(ceil_div(hw, part), problem, target)) >= 1024)})


def _aligned(elements: int, problem: Problem, target: Target) -> int:
    """Round up to the next address where a transfer may start on chip."""
    align = target.align_bytes // problem.item_bytes
    return align * ceil_div(elements, align)


def _blocks_in_parts(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether no block exceeds the part that it walks through, or on NVIDIA the next power of two."""
    pairs = (("BLOCK_SIZE_N", "PART_N"), ("BLOCK_SIZE_HW", "PART_HW"))
    slack = 1 if _ascend(target) else 2
    return all(int(config[block]) < slack * int(config[part]) + (slack == 1) for block, part in pairs)


def _tile_fits(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a tile has enough elements for a trip, at least 512 or half of all, and fits: x and two sums on
    chip on Ascend, and at most 32 elements per thread on NVIDIA."""
    n, _, hw = _sizes(problem)
    elements = _elements(config)
    if elements < min(512, ceil_div(n * hw * int(config["BLOCK_SIZE_C"]), 2)):
        return False
    if _ascend(target):
        return 3 * 4 * elements <= target.on_chip_bytes
    threads = 32 * int(config["num_warps"])
    return threads <= max(32, elements) and elements <= 32 * threads


def _parts_serve(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether channels are cut only as far as cores are idle, and the last launch can add up all parts in one
    tile."""
    parts = math.prod(_parts(config, problem))
    most = 8 * target.cores if parts > 1 else target.max_programs
    return _programs(config, problem) <= most and parts * int(config["BLOCK_SIZE_C"]) <= 4096


_CONSTRAINTS = (
    Constraint("blocks are no larger than the parts that they go through", _blocks_in_parts),
    Constraint("a tile is worth a trip, and three of them fit on chip", _tile_fits),
    Constraint("channels cut into parts make at most 8 programs per core", _parts_serve),
)


def _default_option(elements: int, target: Target) -> dict[str, Value]:
    return {"multibuffer": True} if _ascend(target) else {"num_warps": min(16, max(1, elements // 256))}


def _default(problem: Problem, target: Target) -> Config:
    """Return two passes with, if possible, a program for each core, tiles without tails of about 4096 elements, and few
    parts."""

    def preference(config: Config) -> tuple[int, ...]:
        programs = min(target.cores, _programs(config, problem))
        even = not _ascend(target) or all(_evens(config, problem))
        return programs, even, -abs(4096 - _elements(config)), -math.prod(_parts(config, problem))

    blocks = [values(problem, target) for values in (_block_n, _block_c, _block_hw, _part_n, _part_hw)]
    names = (*_TILE, "PART_N", "PART_HW")
    configs = [
        {"VARIANT": "two_passes", **tile, **_default_option(_elements(tile), target)}
        for tile in (dict(zip(names, values, strict=True)) for values in itertools.product(*blocks))
    ]
    valid = [c for c in configs if all(rule.holds(c, problem, target) for rule in _CONSTRAINTS)]
    return max(valid, key=preference)


# Launches --------------------------------------------------------------------------------------------------------


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    n, c, hw = _sizes(problem)
    return {
        "x_ptr": Buffer((n, c, hw), problem.dtype),
        "w_ptr": Buffer((c,), problem.dtype),
        "b_ptr": Buffer((c,), problem.dtype),
        "y_ptr": Buffer((n, c, hw), problem.dtype, role="out"),
        "mean_ptr": Buffer((c,), "float32", role="out", scale=1 / math.sqrt(n * hw)),
        "rstd_ptr": Buffer((c,), "float32", role="out"),
    }


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    parts, c = math.prod(_parts(config, problem)), problem.dims["C"]
    if parts == 1:
        return {}
    sums = Buffer((c, parts), "float32")
    return {"shift_ptr": Buffer((c,), "float32"), "sums_ptr": sums, "squares_ptr": sums}


def _launches(config: Config, problem: Problem) -> list[Launch]:
    parts_n, parts_hw = _parts(config, problem)
    parts = parts_n * parts_hw
    grid = (_programs(config, problem),)
    even = dict(zip(("EVEN_N", "EVEN_HW"), _evens(config, problem), strict=True))
    if parts == 1:
        return [Launch(_WHOLE, grid, even)]
    cut = {"PARTS_N": parts_n, "PARTS_HW": parts_hw, "PARTS_BLOCK": powers_of_two(1, parts)[-1]}
    kinds = ("both",) if config["VARIANT"] == "two_passes" else ("sum", "squares")
    return [*(Launch(_SUMS, grid, {"KIND": kind, **cut, **even}) for kind in kinds), Launch(_APPLY, grid, cut)]


def _evens(config: Config, problem: Problem) -> tuple[bool, bool]:
    """Return whether every tile lies inside its part, so that no sum needs a select: by images, and by pixels."""
    n, _, hw = _sizes(problem)
    axes = ((n, "PART_N", "BLOCK_SIZE_N"), (hw, "PART_HW", "BLOCK_SIZE_HW"))
    even_n, even_hw = (
        size % int(config[block]) == 0 and (int(config[part]) >= size or int(config[part]) % int(config[block]) == 0)
        for size, part, block in axes
    )
    return even_n, even_hw


def _tiling(config: Config, problem: Problem) -> Tiling:
    """Return the tiling, with bytes as the Ascend compiler plans them.

    Beside the tile of x there are:

    - two sums, and half a tile for halving a sum;
    - two more tiles for the broadcast shifts of several channels of several images;
    - half a tile for a select by images, and two and a half for one by pixels;
    - for 16-bit inputs, half a tile in float32 beside each of these.

    Zeroing the sums costs about one operation.
    """
    n, c, hw = _sizes(problem)
    block_n, block_c, block_hw = (int(config[name]) for name in _TILE)
    even_n, even_hw = _evens(config, problem)
    narrow = problem.item_bytes < 4
    again = config["VARIANT"] == "three_passes"
    shifts = (block_n > 1) + 3 * (min(block_n, block_c) > 1)
    halves = 5 + narrow + shifts + (1 + narrow) * (not even_n) + (5 + narrow) * (not even_hw)
    return Tiling(
        axes=(
            Axis("C", c, block_c, block_c),
            Axis("N", n, int(config["PART_N"]), block_n),
            Axis("HW", hw, int(config["PART_HW"]), block_hw),
        ),
        streamed_bytes=_elements(config) * problem.item_bytes,
        resident_bytes=halves * _elements(config) * 2,
        traffic=1.5 + 0.5 * again,  # x twice or three times and y, not x and y
        doubling_bytes=0,
        reductions=3,
        operations=1 + 2 * again + _SELECT * ((not even_n) + (not even_hw)) * (1 + again),
    )


def _reference(inputs: Tensors) -> Tensors:
    import torch

    x, w, b = (inputs[name] for name in ("x_ptr", "w_ptr", "b_ptr"))
    y, mean, rstd = torch.native_batch_norm(x, w, b, None, None, True, 0.0, EPS)
    return {"y_ptr": y, "mean_ptr": mean, "rstd_ptr": rstd}


SPEC = KernelSpec(
    name="batch_norm",
    summary="y = (x - mean) * rstd * w + b over [N, C, HW] with each channel's own mean and rstd",
    function=(_WHOLE, _SUMS, _APPLY),
    dims=("N", "C", "HW"),
    dtypes=("float32", "float16", "bfloat16"),
    parameters=(
        Parameter("VARIANT", lambda problem, target: ["two_passes", "three_passes"]),
        Parameter("BLOCK_SIZE_N", _block_n),
        Parameter("BLOCK_SIZE_C", _block_c),
        Parameter("BLOCK_SIZE_HW", _block_hw),
        Parameter("PART_N", _part_n),
        Parameter("PART_HW", _part_hw),
        Parameter("multibuffer", lambda _, target: [True, False] if _ascend(target) else [], role="option"),
        Parameter("num_warps", lambda _, target: [] if _ascend(target) else [1, 2, 4, 8, 16, 32], role="option"),
    ),
    constraints=_CONSTRAINTS,
    buffers=_buffers,
    scratch=_scratch,
    scalars=lambda problem: {**problem.dims, "eps": EPS},
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 7 * math.prod(_sizes(problem)),
    default=_default,
)
