"""Products of 8-bit floats with block scales, as DeepSeek-V3 has them: `out = (a a_scale) @ (b b_scale).T`.

a is [M, K] with a scale for each 128 elements of a row, b is stored as [N, K] with one for each 128 x 128 elements, and
the output is bfloat16. Tensor cores add up 128 terms; the sum is scaled and added to a float32 one.

`plain` runs wherever there are 8-bit floats. `hopper` is for compute capability 9.0 alone and needs Triton 3.6 or newer
(see `jit/matrix/block_fp8_hopper.py`): one warp loads by descriptors that the host makes, and two groups of warps
multiply 64 rows of a tile each. The rows of its operands and output are multiples of 16 bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from tilewise.kernels.candidate_values import only_nvidia
from tilewise.kernels.matrix.tiles import (
    EIGHT_BIT_FLOATS,
    EXACT_TOLERANCE,
    buffered,
    default_group,
    draw_scales,
    group_holds,
    operands_hold,
    scale_of_each,
    sums_hold,
    up_to,
)
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

_PLAIN = "tilewise.kernels.jit.matrix.block_fp8_gemm:block_fp8_gemm_kernel"
_HOPPER = "tilewise.kernels.jit.matrix.block_fp8_hopper:block_fp8_gemm_hopper_kernel"

_SCALED = 128
"""Elements along each axis that share a scale."""

_HOPPER_ROWS = 128
"""Rows of a tile of `hopper`, half of them for each of its two groups of warps."""


def _sizes(problem: Problem) -> tuple[int, int, int]:
    return problem.dims["M"], problem.dims["N"], problem.dims["K"]


def _buffers(problem: Problem) -> Mapping[str, Buffer]:
    m, n, k = _sizes(problem)
    scales = functools.partial(Buffer, dtype="float32", draw=draw_scales)
    return {
        "a_ptr": Buffer((m, k), problem.dtype),
        "b_ptr": Buffer((n, k), problem.dtype),
        "a_scale_ptr": scales((m, ceil_div(k, _SCALED))),
        "b_scale_ptr": scales((ceil_div(n, _SCALED), ceil_div(k, _SCALED))),
        "out_ptr": Buffer((m, n), "bfloat16", role="out", terms=k, tolerance=EXACT_TOLERANCE),
    }


def _described(config: Config) -> Mapping[str, tuple[int, int]]:
    """Return the blocks of the tensors that `hopper` takes as descriptors."""
    cols = min(int(config["BLOCK_N"]), _SCALED)
    return {
        "a_ptr": (_HOPPER_ROWS, _SCALED),
        "b_ptr": (cols, _SCALED),
        "out_ptr": (_HOPPER_ROWS // 2, cols),
    }


def _launches(config: Config, problem: Problem) -> Sequence[Launch]:
    m, n, k = _sizes(problem)
    block_m, block_n, block_k = (int(config[f"BLOCK_{name}"]) for name in "MNK")
    tiles = ceil_div(m, block_m) * ceil_div(n, block_n)
    if config["VARIANT"] == "hopper":
        grid = (min(tiles, int(config["PROGRAMS"]) or tiles),)
        return [Launch(_HOPPER, grid, {"NUM_STAGES": int(config["num_stages"])}, blocks=_described(config))]
    even = {"EVEN_M": m % block_m == 0, "EVEN_N": n % block_n == 0, "EVEN_K": k % block_k == 0}
    return [Launch(_PLAIN, (tiles,), {**even, "SCALED": _SCALED, "WIDE": max(m * k, n * k, m * n) >= 2**31})]


def _tiling(config: Config, problem: Problem) -> Tiling:
    m, n, k = _sizes(problem)
    block_m, block_n, block_k = (int(config[f"BLOCK_{name}"]) for name in "MNK")
    hopper = config["VARIANT"] == "hopper"
    stages = int(config.get("num_stages", 2))
    read = k * (ceil_div(n, block_n) * m + ceil_div(m, block_m) * n)
    return Tiling(
        axes=(
            Axis("M", m, block_m, block_m),
            Axis("K", k, ceil_div(k, block_k) * block_k, block_k),
            Axis("N", n, block_n, block_n),
        ),
        streamed_bytes=(block_m + block_n) * block_k,
        resident_bytes=4 * block_m * block_n,
        traffic=(read + 2 * m * n) / SPEC.bytes(problem),
        dot=Dot(
            block_m,
            block_n,
            block_k,
            stages=stages if hopper else buffered(block_m, stages),
            shared_bytes=2 * 2 * math.prod(_described(config)["out_ptr"]) if hopper else 0,
            group=int(config["GROUP_M"]),
            programs=int(config.get("PROGRAMS", 0)),
            row_bytes=block_k,
            along_depth=True,
            described=hopper,
            specialised=hopper,
            handed=hopper,
            rescaled=True,
        ),
    )


def _reference(inputs: Tensors) -> Tensors:
    a, b = (inputs[name].to(inputs["a_scale_ptr"].dtype) for name in ("a_ptr", "b_ptr"))
    a_scale = inputs["a_scale_ptr"].repeat_interleave(_SCALED, 1)[:, : a.shape[1]]
    b_scale = scale_of_each(inputs["b_scale_ptr"], b.shape, _SCALED)
    return {"out_ptr": (a * a_scale) @ (b * b_scale).T}


# The space -------------------------------------------------------------------------------------------------------


def _takes_hopper(problem: Problem, target: Target) -> bool:
    _, n, k = _sizes(problem)
    return target.family == "nvidia" and target.capability == 90 and k % 16 == 0 and 2 * n % 16 == 0


def _variants(problem: Problem, target: Target) -> Sequence[Value]:
    return ["plain", "hopper"] if _takes_hopper(problem, target) else ["plain"]


def _block_m(problem: Problem, target: Target) -> Sequence[Value]:
    values = up_to(problem.dims["M"], 16, 256)
    return values if 128 in values or not _takes_hopper(problem, target) else [*values, 128]


def _block_n(problem: Problem, target: Target) -> Sequence[Value]:
    return up_to(max(problem.dims["N"], 128), 32, 256)


def _programs(problem: Problem, target: Target) -> Sequence[Value]:
    return [0, target.cores] if _takes_hopper(problem, target) else []


def _hopper_holds(config: Config, problem: Problem, target: Target) -> bool:
    if config["VARIANT"] != "hopper":
        return not config.get("PROGRAMS", 0)
    tile = (config["BLOCK_M"], config["BLOCK_K"], config["num_warps"]) == (_HOPPER_ROWS, _SCALED, 4)
    return tile and int(config["BLOCK_N"]) >= 64


def _registers_hold(config: Config, problem: Problem, target: Target) -> bool:
    """Return whether a thread's sums are few and many enough; those of 128 terms need as many registers again."""
    if target.family != "nvidia" or config["VARIANT"] == "hopper":
        return True
    rows, cols, warps = int(config["BLOCK_M"]), int(config["BLOCK_N"]), int(config["num_warps"])
    return sums_hold(rows, cols, warps) and rows * cols / (32 * warps) <= 64


def _default(problem: Problem, target: Target) -> Config:
    """Return `hopper` where it fills half of the cores, else the largest tiles of `plain` that do, or the smallest."""
    m, n, _ = _sizes(problem)

    def config(variant: str, rows: int, cols: int) -> Config:
        tiles = ceil_div(m, rows) * ceil_div(n, cols)
        return {
            "VARIANT": variant,
            "BLOCK_M": rows,
            "BLOCK_N": cols,
            "BLOCK_K": _SCALED,
            "GROUP_M": default_group(m, rows),
            **({"PROGRAMS": target.cores * (variant == "hopper" and tiles > target.cores)} if hopper else {}),
            **({"num_warps": 4 if rows * cols <= 64 * 128 or variant == "hopper" else 8} if nvidia else {}),
            **({"num_stages": 4 if variant == "hopper" else 3} if nvidia else {}),
        }

    nvidia, hopper = target.family == "nvidia", _takes_hopper(problem, target)
    for across in (256, 128):
        filled = ceil_div(m, _HOPPER_ROWS) * ceil_div(n, across) >= target.cores // 2
        if hopper and filled and (across == 128 or n > 128):
            return config("hopper", _HOPPER_ROWS, across)
    rows = [int(each) for each in _block_m(problem, target) if int(each) <= 128 and int(each) < 2 * max(m, 16)]
    cols = [int(each) for each in _block_n(problem, target) if int(each) <= 128]
    sides = [(max(rows), each) for each in sorted(cols, reverse=True)]
    filling = [side for side in sides if ceil_div(m, side[0]) * ceil_div(n, side[1]) >= target.cores // 2]
    return config("plain", *(filling or sides[-1:])[0])


SPEC = KernelSpec(
    name="block_fp8_gemm",
    summary="out[m, n] = sum over k of a[m, k] a_scale[m, k / 128] b[n, k] b_scale[n / 128, k / 128]",
    function=(_PLAIN, _HOPPER),
    dims=("M", "N", "K"),
    dtypes=("float8_e4m3fn",),
    parameters=(
        Parameter("VARIANT", _variants),
        Parameter("BLOCK_M", _block_m),
        Parameter("BLOCK_N", _block_n),
        Parameter("BLOCK_K", lambda problem, target: [64, 128]),
        Parameter("GROUP_M", lambda problem, target: [1, 4, 8, 16]),
        Parameter("PROGRAMS", _programs),
        Parameter("num_warps", only_nvidia(4, 8), role="option"),
        Parameter("num_stages", only_nvidia(2, 3, 4, 5, 6), role="option"),
    ),
    constraints=(
        Constraint(EIGHT_BIT_FLOATS, lambda config, problem, target: target.has_float8),
        Constraint("hopper takes 128 rows, 64 columns or more, 4 warps and whole blocks of K", _hopper_holds),
        Constraint("2 to 64 sums of a tile per thread", _registers_hold),
        Constraint("GROUP_M is at most the number of rows of tiles", group_holds),
        Constraint(
            "the operands in flight fit in shared memory",
            lambda config, problem, target: operands_hold(_tiling(config, problem), target),
        ),
    ),
    buffers=_buffers,
    scalars=lambda problem: dict(problem.dims),
    launches=_launches,
    tiling=_tiling,
    reference=_reference,
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=lambda problem: problem.dtype,
    default=_default,
)
