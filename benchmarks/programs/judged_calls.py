"""A program like [calls.py](calls.py), for kernels of a fourth seeded draw, made when the tuner was frozen.

`draw.py SITE 20261127 4` at commit 862883f: twelve kernels of FlagGems, FLA and Liger that no list and no result had
named then.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.programs.arguments import apply, back, call, grad, real, shares, whole

__all__ = ["CALLS"]

_GEMS, _LIGER = "flag_gems", "liger_kernel.ops"


def _half(*shape: int) -> Any:
    return real(*shape, dtype="bfloat16")


def _heads() -> Any:
    return grad(2, 128, 4, 64, dtype="bfloat16")


def _chunk_output() -> Any:
    rows = [_half(2, 128, 4, 64) for _ in range(3)]
    sums = shares(2, 128, 4).log().reshape(2, 2, 64, 4).cumsum(2).reshape(2, 128, 4)
    return call(f"{_GEMS}.fused.FLA.chunk_o:chunk_fwd_o", *rows, _half(2, 2, 4, 64, 64), sums)


def _schedule() -> Any:
    place = f"{_GEMS}.ops.get_scheduler_metadata:get_scheduler_metadata"
    half = importlib.import_module("torch").float16
    return call(place, 8, 16, 1024, 32, 8, 128, 128, half, whole(1024, 8, device="npu").int() + 1)


def _gate_back() -> None:
    back(call("fla.ops.kda.gate:fused_kda_gate", grad(2, 128, 4, 64), grad(4), grad(256)))


def _attention_back() -> None:
    back(call("fla.ops.attn:parallel_attn", _heads(), _heads(), _heads()))


def _wall() -> Any:
    gates = shares(2, 128, 4, 64).log().bfloat16()
    return call("fla.ops.wall_attn:parallel_wall_attn", *(_half(2, 128, 4, 64) for _ in range(3)), gates)


def _parallax_back() -> None:
    back(call("fla.ops.parallax:parallel_parallax", *(_heads() for _ in range(4))))


def _streams_back() -> None:
    place = f"{_LIGER}.mhc:LigerMHCPostResFunction"
    back(apply(place, grad(96, 4, 256), grad(96, 256), grad(96, 4), grad(96, 4, 4)))


def _sparsemax() -> Any:
    return apply(f"{_LIGER}.backends._ascend.ops.sparsemax:LigerSparsemaxFunction", real(64, 30000), -1)


def _sequences() -> Any:
    ids = whole(700, 3, 16, device="npu")
    words = (None, 0.9, 0.0, 0.2, 0.2, False, "grpo", None, True, "sequence")
    return apply(f"{_LIGER}.grpo_loss:GrpoLossFunction", real(3, 17, 700), real(3, 16), None, ids, real(3), *words)


def _neighbours_back() -> None:
    place = f"{_LIGER}.fused_neighborhood_attention:LigerFusedNeighborhoodAttentionFunction"
    back(apply(place, *(grad(2, 4, 128, 64) for _ in range(3))))


CALLS: Mapping[str, Callable[[], object]] = {
    "flaggems/sorted": lambda: call(f"{_GEMS}.ops.sort:sort", real(30, 700)),
    "flaggems/normed_columns": lambda: call(
        f"{_GEMS}.ops.weightnorm:weight_norm_interface", real(96, 700), real(1, 700), 1
    ),
    "flaggems/chunk_output": _chunk_output,
    "flaggems/schedule": _schedule,
    "fla/gradient_of_kda_gate": _gate_back,
    "fla/gradient_of_attention": _attention_back,
    "fla/wall": _wall,
    "fla/gradient_of_halved_parallax": _parallax_back,
    "liger/gradient_of_streams": _streams_back,
    "liger/wide_sparsemax": _sparsemax,
    "liger/sequences": _sequences,
    "liger/gradient_of_neighbours": _neighbours_back,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
