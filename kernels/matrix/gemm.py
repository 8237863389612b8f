"""Matrix products: `out[m, n] = activation(sum over k of a[m, k] * b[k, n] + bias[n])`.

`pointers` computes one tile per program and takes any size. `descriptors` loads and stores tiles through tensor
descriptors, which compute capability 9.0 does without registers and address arithmetic; rows must be multiples of 16
bytes. Its programs may be as many as the multiprocessors (`PROGRAMS`), each with several tiles in turn. `SPLIT_K`
divides the sums of few tiles among more programs; a second launch adds the parts up, always in the same order.
`hopper`, in Gluon, is for 16-bit inputs on compute capability 9.0 and needs Triton 3.6 or newer (see
`jit/matrix/gemm_hopper.py`): one warp loads tiles by descriptors that the host makes, and one or two groups of warps
multiply. `masked`, the variant for Ascend, masks its loads along every axis, so that they become transfers to a cube
core's L1.

Outputs have the dtype of their inputs, those of 8-bit floats are bfloat16, and those of int8 are int32, or bfloat16
where a scale, bias or activation follows. float32 and int8 are for Ascend. `column_major` means that b is stored as
N x K, as the weights of a linear layer are; on NVIDIA, 8-bit products are fast only then. `scaled` multiplies by a
factor per row of a and one per column of b.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.kernels.candidate_values import only_ascend, only_nvidia
from tilewise.kernels.matrix.cube_tiles import (
    CUBE_DTYPES,
    accumulator_holds,
    default_cube_tile,
    depths,
    operands_in_l1,
    sides,
    vector_memory_holds,
)
from tilewise.kernels.matrix.tiles import (
    EIGHT_BIT_FLOATS,
    buffered,
    default_group,
    draw_scales,
    group_holds,
    operands_hold,
    sums_hold,
    up_to,
)
from tilewise.kernels.spec import (
    ITEM_BYTES,
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

_POINTERS = "tilewise.kernels.jit.gemm:gemm_pointers_kernel"
_PARTS = "tilewise.kernels.jit.gemm:gemm_parts_kernel"
_SUM = "tilewise.kernels.jit.gemm:gemm_sum_kernel"
_DESCRIPTORS = "tilewise.kernels.jit.gemm:gemm_descriptors_kernel"
_MASKED = "tilewise.kernels.jit.gemm:gemm_masked_kernel"
_HOPPER = "tilewise.kernels.jit.matrix.gemm_hopper:gemm_hopper_kernel"

_COLUMN_MAJOR = Flag("column_major", (False, True))
_BIAS = Flag("bias", (False, True))
_ACTIVATION = Flag("activation", ("none", "relu", "silu", "gelu"))
_SCALED = Flag("scaled", (False, True))
_FAST_SUMS = Flag("fast_sums", (False, True))
"""8-bit inputs only: leave sums to the tensor cores, which keep about 14 bits of them on Hopper."""

_EXACT_TERMS = 128
"""Terms that tensor cores add up before their sum of 8-bit products is added to a float32 one."""

_WIDE_ROWS = 64
"""Rows of an instruction's product on Hopper (`wgmma`)."""

_SUM_M, _SUM_N = 4, 256
"""The tile of the launch that adds up parts: enough programs for a few rows, and loads of 16 bytes per thread."""


def _sizes(problem: Problem) -> tuple[int, int, int]:
    return problem.dims["M"], problem.dims["N"], problem.dims["K"]


def _tiles(config: Config, problem: Problem) -> int:
    m, n, _ = _sizes(problem)
    return ceil_div(m, int(config["BLOCK_M"])) * ceil_div(n, int(config["BLOCK_N"]))


def _is_swapped(config: Config) -> bool:
    """Return whether columns of b are the rows of an instruction's product, which are 64 at least."""
    return config["VARIANT"] == "hopper" and int(config["BLOCK_M"]) < _WIDE_ROWS


def _groups(config: Config) -> int:
    """Return how many groups of warps multiply beside one that loads; 0 if all warps do both."""
    if config["VARIANT"] == "hopper":
        return 2 if int(config["BLOCK_N" if _is_swapped(config) else "BLOCK_M"]) >= 2 * _WIDE_ROWS else 1
    return 2 if config.get("WARP_SPECIALIZE", False) else 0


def _part(config: Config, problem: Problem) -> int:
    """Return the length of a part of K: all of it, or whole blocks."""
    block = int(config["BLOCK_K"])
    if config["SPLIT_K"] == 1:
        return problem.dims["K"]
    return ceil_div(ceil_div(problem.dims["K"], block), int(config["SPLIT_K"])) * block


def _out_dtype(problem: Problem) -> str:
    if problem.dtype == "int8":
        return "bfloat16" if _has_epilogue(problem) else "int32"
    return "bfloat16" if _has_float8(problem) else problem.dtype


def _has_epilogue(problem: Problem) -> bool:
    """Return whether anything is done to the sums: on Ascend by vector cores."""
    return bool(_BIAS.of(problem) or _SCALED.of(problem)) or _ACTIVATION.of(problem) != "none"


def _has_float8(problem: Problem) -> bool:
    return problem.dtype.startswith("float8")


def _tolerance(problem: Problem) -> float:
    """Return how far sums of 8-bit products may be off beyond float32, relative to the RMS.

    Hopper's tensor cores keep a sum to 14 bits and cut off the rest at every step of 32 terms ("DeepSeek-V3 Technical
    Report", section 3.3.2). A cut is at most 2^-13 of the sum so far, and all of them point towards zero: K / 32 steps
    are off by at most K / 32 * 2^-13 of it. Sums that are added to float32 ones after every 128 terms have four steps.
    """
    if not _has_float8(problem):
        return 0.0
    terms = problem.dims["K"] if _FAST_SUMS.of(problem) else min(problem.dims["K"], _EXACT_TERMS)
    return float(ceil_div(terms, 32) * 2.0**-13)


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n, k = _sizes(problem)
    out = _out_dtype(problem)
    buffers = {
        "a_ptr": Buffer((m, k), problem.dtype),
        "b_ptr": Buffer((k, n), problem.dtype, strides=(1, k) if _COLUMN_MAJOR.of(problem) else None),
    }
    if _BIAS.of(problem):
        buffers["bias_ptr"] = Buffer((n,), out)
    if _SCALED.of(problem):
        scales = functools.partial(Buffer, dtype="float32", draw=draw_scales)
        buffers |= {"a_scale_ptr": scales((m,)), "b_scale_ptr": scales((n,))}
    return {**buffers, "out_ptr": Buffer((m, n), out, role="out", terms=k, tolerance=_tolerance(problem))}


def _constants(problem: Problem) -> Mapping[str, Value | None]:
    missing = {name: None for name in ("bias_ptr", "a_scale_ptr", "b_scale_ptr") if name not in _buffers(problem)}
    fixed = {"COLUMN_MAJOR": _COLUMN_MAJOR.of(problem), "ACTIVATION": _ACTIVATION.of(problem)}
    return {**missing, **fixed}


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n, k = _sizes(problem)
    block_k, split, tiles = int(config["BLOCK_K"]), int(config["SPLIT_K"]), _tiles(config, problem)
    grid = (min(tiles, int(config.get("PROGRAMS", 0)) or tiles),)
    if config["VARIANT"] == "masked":
        return [Launch(_MASKED, grid, {"INTEGER": problem.dtype == "int8"})]
    if config["VARIANT"] == "hopper":
        shape = {"SWAP": _is_swapped(config), "GROUPS": _groups(config), "NUM_STAGES": int(config["num_stages"])}
        block_m, block_n = int(config["BLOCK_M"]), int(config["BLOCK_N"])
        return [Launch(_HOPPER, grid, shape, blocks={"a_ptr": (block_m, block_k), "b_ptr": (block_k, block_n)})]
    exact = {
        "FP8": _has_float8(problem),
        "EXACT_TERMS": 0 if _FAST_SUMS.of(problem) else min(_EXACT_TERMS, block_k),
    }
    if config["VARIANT"] == "descriptors":
        flatten = grid[0] < tiles and not config.get("WARP_SPECIALIZE", False)
        return [Launch(_DESCRIPTORS, grid, {**exact, "FLATTEN": flatten}, descriptors=True)]
    even = {f"EVEN_{name}": size % int(config[f"BLOCK_{name}"]) == 0 for name, size in (("M", m), ("N", n))}
    wide = max(m * k, k * n, m * n) >= 2**31
    constants = {**exact, **even, "EVEN_K": k % (block_k * split) == 0, "WIDE": wide, "ALIGNED": math.gcd(n, k, 16)}
    if split == 1:
        return [Launch(_POINTERS, (tiles,), constants)]
    summed = {"SUM_M": _SUM_M, "SUM_N": _SUM_N}
    return [
        Launch(_PARTS, (tiles, split), constants),
        Launch(_SUM, (ceil_div(m, _SUM_M), ceil_div(n, _SUM_N)), summed),
    ]


def _scratch(config: Config, problem: Problem) -> Mapping[str, Buffer]:
    split, (m, n, _) = int(config["SPLIT_K"]), _sizes(problem)
    return {"parts_ptr": Buffer((split, m, n), "float32", role="out")} if split > 1 else {}


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, n, k = _sizes(problem)
    block_m, block_n, block_k = (int(config[f"BLOCK_{name}"]) for name in "MNK")
    split, item, least = int(config["SPLIT_K"]), problem.item_bytes, SPEC.bytes(problem)
    read = item * k * (ceil_div(n, block_n) * m + ceil_div(m, block_m) * n)
    parts = 2 * 4 * m * n * split if split > 1 else 0
    rows, cols = Axis("M", m, block_m, block_m), Axis("N", n, block_n, block_n)
    if _is_swapped(config):
        rows, cols = cols, rows
    along_depth = m > n or bool(_COLUMN_MAJOR.of(problem))
    return Tiling(
        axes=(rows, Axis("K", k, _part(config, problem), block_k), cols),
        streamed_bytes=(block_m + block_n) * block_k * item,
        resident_bytes=4 * block_m * block_n,
        traffic=(read + parts + ITEM_BYTES[_out_dtype(problem)] * m * n) / least,
        dot=Dot(
            rows.block,
            cols.block,
            block_k,
            stages=buffered(rows.block, int(config.get("num_stages", 2))),
            shared_bytes=_stored_bytes(config),
            splits=split,
            group=int(config["GROUP_M"]),
            programs=int(config.get("PROGRAMS", 0)),
            row_bytes=item * (block_k if along_depth else block_n),
            operand_rows=block_m + (block_n if _COLUMN_MAJOR.of(problem) else block_k),
            along_depth=along_depth,
            described=config["VARIANT"] in ("descriptors", "hopper"),
            specialised=_groups(config) > 0,
            groups=max(1, _groups(config)),
            handed=config["VARIANT"] == "hopper",
            alone=not _has_epilogue(problem),
            epilogue=_epilogue(problem),
        ),
    )


def _copies(problem: Problem) -> int:
    """Return how many copies of a tile's sums an epilogue keeps in a vector core's memory, as compiled."""
    return 0 if not _has_epilogue(problem) else 4 if _ACTIVATION.of(problem) == "gelu" else 1


_ACTIVATION_OPERATIONS = {"none": 0, "relu": 1, "silu": 12, "gelu": 45}
"""Vector operations for each element of an activation, by the modelled times of compiled code."""


def _epilogue(problem: Problem) -> float:
    """Return the vector operations for each of a tile's sums; their conversion is one too."""
    if not _has_epilogue(problem):
        return 0.0
    return (
        1.0
        + _ACTIVATION_OPERATIONS[str(_ACTIVATION.of(problem))]
        + bool(_BIAS.of(problem))
        + 2 * bool(_SCALED.of(problem))
    )


def _stored_bytes(config: Config) -> int:
    """Return the shared memory from which a part of a tile of 16-bit numbers is stored: by a descriptor, or half at a
    time by threads that exchange them there, which a transposed tile is not."""
    if config["VARIANT"] == "hopper":
        return 0 if _is_swapped(config) else int(config["BLOCK_M"]) * int(config["BLOCK_N"])
    if config["VARIANT"] != "descriptors":
        return 0
    return 2 * int(config["BLOCK_M"]) * int(config["BLOCK_N"]) // int(config["PARTS_N"])


def _reference(inputs: Tensors, problem: Problem) -> Tensors:
    import torch

    a, b = inputs["a_ptr"], inputs["b_ptr"]
    if a.element_size() == 1:  # torch multiplies no 8-bit floats, and wraps sums of 8-bit integers
        wide = torch.int32 if a.dtype == torch.int8 else torch.bfloat16
        a, b = a.to(wide), b.to(wide)
    out = a @ b
    if problem.dtype == "int8" and _has_epilogue(problem):
        out = out.double()
    if _SCALED.of(problem):
        out = (out * inputs["a_scale_ptr"][:, None] * inputs["b_scale_ptr"]).to(out.dtype)
    if _BIAS.of(problem):
        out = out + inputs["bias_ptr"]
    functions: dict[bool | str, Any] = {
        "relu": torch.relu,
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
    }
    return {"out_ptr": functions.get(_ACTIVATION.of(problem), lambda x: x)(out)}


# The space -------------------------------------------------------------------------------------------------------


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend":
        return sides(problem.dims["M"])
    values = up_to(problem.dims["M"], 16, 256)
    return [value for value in values if value >= 64] if problem.dims["M"] > 256 else values


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend":
        return sides(problem.dims["N"])
    values = up_to(problem.dims["N"], 16, 256)
    least = 32 if problem.dims["M"] <= 64 else 64
    return [value for value in values if value >= least] or values


def _block_k(problem: Problem, target: Target) -> Sequence[Value]:
    """Return blocks of 64 to 256 bytes of a row, up to 512 for the long loops of few rows."""
    if target.family == "ascend":
        return depths(problem.dims["K"], problem.item_bytes)
    least, most = 64 if problem.dims["K"] >= 64 else 32, 256 if problem.dims["M"] > 256 else 512
    return up_to(problem.dims["K"], least // problem.item_bytes, min(256, most // problem.item_bytes))


def _split_k(problem: Problem, target: Target) -> Sequence[Value]:
    """Return more than one part only where the largest tiles would leave most of the cores idle."""
    if target.family == "ascend":
        return [1]
    m, n, k = _sizes(problem)
    most = min(4 * target.cores // (ceil_div(m, 256) * ceil_div(n, 256)), k // 128)
    return [split for split in (1, 2, 4, 8, 16) if split <= max(1, most)]


def _has_descriptors(problem: Problem, target: Target) -> bool:
    """Return whether the device loads tiles by descriptors, whose rows are multiples of 16 bytes."""
    _, n, k = _sizes(problem)
    rows = [k * problem.item_bytes, 2 * n] + ([] if _COLUMN_MAJOR.of(problem) else [n * problem.item_bytes])
    capable = target.family == "nvidia" and (target.capability == 0 or target.capability >= 90)
    return capable and all(row % 16 == 0 for row in rows)


def _variants(problem: Problem, target: Target) -> Sequence[Value]:
    if target.family == "ascend":
        return ["masked"]
    if not _has_descriptors(problem, target):
        return ["pointers"]
    hopper = target.capability == 90 and problem.item_bytes == 2
    return ["pointers", "descriptors", *(["hopper"] if hopper else [])]


def _group_m(problem: Problem, target: Target) -> Sequence[Value]:
    """Return rows of tiles to work on together: 2 where there are not many more, as their operands share the L2."""
    few = target.family == "nvidia" and problem.dims["M"] <= 256
    return [1, 2, 4, 8, 16] if few else [1, 4, 8, 16]


def _programs(problem: Problem, target: Target) -> Sequence[Value]:
    """Return how many programs share the tiles, 0 for one each."""
    shared = target.family == "ascend" or _has_descriptors(problem, target)
    return [0, target.matrix_cores] if shared else []


def _only_descriptors(*values: Value) -> Any:
    return lambda problem, target: list(values) if _has_descriptors(problem, target) else []


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a thread's sums are few enough and many enough; specialised, two groups of warps share a tile.

    Exact sums of 8-bit products are made of those of an instruction, of 64 rows by four warps, which need registers of
    their own.
    """
    if target.family != "nvidia":
        return True
    rows, cols = int(config["BLOCK_M"]), int(config["BLOCK_N"])
    warps = max(1, _groups(config)) * int(config["num_warps"])
    exact = _has_float8(problem) and not _FAST_SUMS.of(problem)
    return sums_hold(rows, cols, warps) and (not exact or rows * cols / (32 * warps) + cols / 2 <= 192)


def _shared_memory_holds(config: Config, problem: Problem, target: Target) -> bool:
    if config["VARIANT"] == "masked":
        rows, cols, depth = (int(config[f"BLOCK_{name}"]) for name in "MNK")
        held = accumulator_holds(rows, cols) and vector_memory_holds(rows, cols * _copies(problem), target)
        return held and operands_in_l1(rows, cols, depth, problem.item_bytes)
    return operands_hold(_tiling(config, problem), target)


def _parts_hold(config: Config, problem: Problem, target: Target) -> bool:
    split = int(config["SPLIT_K"])
    if split == 1:
        return True
    full = ceil_div(problem.dims["K"], _part(config, problem)) == split
    return full and config["VARIANT"] == "pointers" and _tiles(config, problem) * split <= 4 * target.cores


def _variant_holds(config: Config, problem: Problem, target: Target) -> bool:
    if config["VARIANT"] == "descriptors":
        return int(config["BLOCK_N"]) // int(config["PARTS_N"]) >= 16
    if config["VARIANT"] in ("masked", "hopper"):
        return True
    return not config.get("PROGRAMS", 0) and config.get("PARTS_N", 1) == 1 and not config.get("WARP_SPECIALIZE", False)


def _hopper_holds(config: Config, problem: Problem, target: Target) -> bool:
    if config["VARIANT"] != "hopper":
        return True
    side = int(config["BLOCK_N" if _is_swapped(config) else "BLOCK_M"])
    plain = config["PARTS_N"] == 1 and not config["WARP_SPECIALIZE"] and config["num_warps"] == 4
    return plain and side >= _WIDE_ROWS and int(config["BLOCK_K"]) >= 64 and int(config["num_stages"]) >= 3


def _programs_hold(config: Config, problem: Problem, target: Target) -> bool:
    programs = int(config.get("PROGRAMS", 0))
    return programs == 0 or _tiles(config, problem) > programs


def _specialised_holds(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether the compiler specialises warps: four, for 128 rows or more, which are stored as a whole. It does
    not where it has to transpose 8-bit operands. With 5 or 6 stages, all 15 such configs that were tried on an H200
    with Triton 3.6 left parts of the product unwritten; with up to 4, none of 107 did.
    """
    if not config.get("WARP_SPECIALIZE", False):
        return True
    if int(config["num_stages"]) > 4:
        return False
    if problem.item_bytes == 1 and not _COLUMN_MAJOR.of(problem):
        return False
    return config["num_warps"] == 4 and config["PARTS_N"] == 1 and int(config["BLOCK_M"]) >= 128


def _holds(config: Config, problem: Problem, target: Target) -> bool:
    listed = {each.name: each.values(problem, target) for each in SPEC.parameters}
    named = all(config[name] in values for name, values in listed.items() if values)
    return named and all(constraint.holds(config, problem, target) for constraint in SPEC.constraints)


_FAST = ((128, 256, 8, 3), (256, 128, 8, 3), (128, 128, 4, 4), (64, 256, 4, 5), (64, 128, 4, 5))
"""Rows, columns, warps and stages of tiles that tunings on an H200 came to, the largest first."""


def _default(problem: Problem, target: Target) -> Config:
    """Return the largest tiles that fill the cores, narrow and deep ones for few rows."""
    if target.family == "ascend":
        return _cube_default(problem, target)
    large = _large_tiles(problem, target) if problem.dims["M"] > 64 and _has_descriptors(problem, target) else None
    return large or _small_tiles(problem, target)


def _cube_default(problem: Problem, target: Target) -> Config:
    m, n, k = _sizes(problem)
    tile = default_cube_tile(m, n, k, problem.item_bytes, target, copies=_copies(problem))
    many = ceil_div(m, int(tile["BLOCK_M"])) * ceil_div(n, int(tile["BLOCK_N"])) > target.matrix_cores
    return {
        "VARIANT": "masked",
        **tile,
        "GROUP_M": default_group(m, int(tile["BLOCK_M"])),
        "SPLIT_K": 1,
        "PROGRAMS": target.matrix_cores if many else 0,
        "multibuffer": True,
    }


def _large_tiles(problem: Problem, target: Target) -> Config | None:
    m, n, _ = _sizes(problem)
    for rows, cols, warps, stages in _FAST:
        tiles = ceil_div(m, rows) * ceil_div(n, cols)
        config: Config = {
            "VARIANT": "descriptors",
            "BLOCK_M": rows,
            "BLOCK_N": cols,
            "BLOCK_K": 128 // problem.item_bytes,
            "GROUP_M": default_group(m, rows),
            "SPLIT_K": 1,
            "PROGRAMS": target.cores if tiles > target.cores else 0,
            "PARTS_N": 1,
            "WARP_SPECIALIZE": False,
            "num_warps": warps,
            "num_stages": stages,
        }
        if tiles >= target.cores // 2 and _holds(config, problem, target):
            return config
    return None


def _small_tiles(problem: Problem, target: Target) -> Config:
    m, n, _ = _sizes(problem)
    depth = min((128 if m > 64 else 256) // problem.item_bytes, int(max(_block_k(problem, target))))
    rows = max(int(value) for value in _block_m(problem, target) if int(value) <= 128)
    wide = [int(value) for value in _block_n(problem, target) if int(value) <= 128]
    filling = [cols for cols in wide if ceil_div(m, rows) * ceil_div(n, cols) >= target.cores // 2]
    cols = max(filling) if filling else min(wide)
    config: dict[str, Value] = {"VARIANT": "pointers", "BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": depth}
    config |= {"GROUP_M": default_group(m, rows), "SPLIT_K": 1}
    if _has_descriptors(problem, target):
        config |= {"PROGRAMS": 0, "PARTS_N": 1, "WARP_SPECIALIZE": False}
    if target.family == "nvidia":
        config |= {"num_warps": 8 if rows * cols > 64 * 128 else 4, "num_stages": 5 if rows <= 64 and cols <= 64 else 3}
    return config


SPEC = KernelSpec(
    name="gemm",
    summary="out[m, n] = activation(sum over k of a[m, k] * b[k, n] + bias[n])",
    function=(_POINTERS, _PARTS, _SUM, _DESCRIPTORS, _MASKED, _HOPPER),
    dims=("M", "N", "K"),
    dtypes=("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32", "int8"),
    flags=(_COLUMN_MAJOR, _BIAS, _ACTIVATION, _SCALED, _FAST_SUMS),
    parameters=(
        Parameter("VARIANT", _variants),
        Parameter("BLOCK_M", _block_m),
        Parameter("BLOCK_N", _block_n),
        Parameter("BLOCK_K", _block_k),
        Parameter("GROUP_M", _group_m),
        Parameter("SPLIT_K", _split_k),
        Parameter("PROGRAMS", _programs),
        Parameter("PARTS_N", _only_descriptors(1, 2)),
        Parameter("WARP_SPECIALIZE", _only_descriptors(False, True)),
        Parameter("num_warps", only_nvidia(4, 8), role="option"),
        Parameter("num_stages", only_nvidia(2, 3, 4, 5, 6, 7), role="option"),
        Parameter("multibuffer", only_ascend(True, False), role="option"),
    ),
    constraints=(
        Constraint(
            EIGHT_BIT_FLOATS,
            lambda config, problem, target: not _has_float8(problem) or target.has_float8,
        ),
        Constraint(
            CUBE_DTYPES,
            lambda config, problem, target: problem.dtype not in ("float32", "int8") or target.family == "ascend",
        ),
        Constraint("PROGRAMS, PARTS_N and WARP_SPECIALIZE need descriptors", _variant_holds),
        Constraint(
            "WARP_SPECIALIZE needs four warps, 128 rows, one part, and 8-bit b in column-major order",
            _specialised_holds,
        ),
        Constraint(
            "hopper takes four warps, one part, BLOCK_K of 64 and three stages or more, and 64 rows or columns or more",
            _hopper_holds,
        ),
        Constraint("2 to 128 sums of a tile per thread", _registers_hold),
        Constraint("GROUP_M is at most the number of rows of tiles", group_holds),
        Constraint("PROGRAMS is less than the number of tiles", _programs_hold),
        Constraint("SPLIT_K needs pointers, no empty part, and at most four programs per core", _parts_hold),
        Constraint(
            "the operands in flight fit in shared memory, or in L1, the sums in L0C, and their copies in vector cores",
            _shared_memory_holds,
        ),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    constants=_constants,
    launches=_launches,
    scratch=_scratch,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=lambda problem: problem.dtype,
    default=_default,
)
