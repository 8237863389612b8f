"""A program like [calls.py](calls.py), for kernels of a second seeded draw, chosen before any of them was tried.

Drawn from 795 kernels: those of FlagGems' `ops`, `fused` and `modules` (345), of FLA's `ops` and `modules` (326), and
of Liger's `ops` (120) that are under `triton.jit` and launched by name, and 4 of the tutorials of Triton 3.2; without
any that an earlier list or result names. Sorted by library, name and file, they were put in the order of Python's
`Random(20261126).shuffle`, of which these are the first 14: 12, and the next 2 in place of two that are not launched
here. FLA has other code than `chunk_gla_bwd_kernel_inter` for NPUs, and Liger has `_element_mul_kernel` for NPUs alone,
which it finds by the package transformers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.programs.arguments import apply, call, numbers, real, whole

__all__ = ["CALLS"]

_GEMS = "flag_gems"


def _real(*shape: int, dtype: str = "float32") -> Any:
    return real(*shape, dtype=dtype, device="cuda")


def _grad(*shape: int) -> Any:
    return _real(*shape).requires_grad_()


def _heads(*shape: int) -> Any:
    return _grad(*(shape or (2, 128, 4, 64)))


def _shares(*shape: int) -> Any:
    return _real(*shape).sigmoid()


def _back(results: Any) -> None:
    results[0].square().sum().backward()


def _sparse_attention() -> Any:
    at = numbers(range(128), "int64") // 32
    blocks = at.new_zeros(1, 128, 1, 2)
    blocks[0, :, 0, 0], blocks[0, :, 0, 1] = (at - 1).clamp(0), at
    rows = _real(1, 128, 16, 64), _real(1, 128, 1, 64), _real(1, 128, 1, 64)
    words = {"g_slc": _shares(1, 128, 16), "block_indices": blocks, "block_counts": 2, "block_size": 32}
    return call("fla.ops.nsa:parallel_nsa", *rows, **words)


def _parallel_simple_gla() -> Any:
    rows = [_real(2, 128, 4, 64) for _ in range(3)]
    return call("fla.ops.simple_gla:parallel_simple_gla", *rows, _shares(2, 128, 4).log())


def _chunked_delta() -> Any:
    rows = [_real(2, 128, 4, 64, dtype="bfloat16") for _ in range(3)]
    shares = _shares(2, 128, 4).bfloat16()
    return call("fla.ops.delta_rule:chunk_delta_rule", *rows, shares, use_qk_l2norm_in_kernel=True)


def _cyclic_step() -> Any:
    rows = [_real(2, 1, 4, 64) for _ in range(3)]
    gates = _shares(2, 1, 4).log(), _real(2, 1, 4), _shares(2, 1, 4)
    weights = _real(4, 15, 15), _real(64), _real(64)
    place = "fla.ops.cyfa:fused_recurrent_cyfa"
    return call(place, *rows, *gates, *weights, 1e-6, 1e-6, output_final_state=True)


def _gla_back() -> None:
    _back(call("fla.ops.gla:chunk_gla", _heads(), _heads(), _heads(), _shares(2, 128, 4, 64).log().requires_grad_()))


def _abc_back() -> None:
    _back(call("fla.ops.abc:chunk_abc", _heads(), _heads(), _heads(), _heads(2, 128, 4, 32)))


def _linear_jsd_back() -> None:
    hidden, weights = (_grad(48, 64), _real(48, 64)), (_grad(1000, 64), _real(1000, 64))
    place = "liger_kernel.ops:LigerFusedLinearJSDFunction"
    (3 * apply(place, hidden[0], weights[0], hidden[1], weights[1], whole(1000, 48))).backward()


def _gdn2_back() -> None:
    rows = [real(2, 128, 4, 64).requires_grad_() for _ in range(3)]  # on an NPU, for which it has code of its own
    gates = [real(2, 128, 4, 64).sigmoid() for _ in range(3)]
    gates[0] = gates[0].log().requires_grad_()
    _back(call("fla.ops.gdn2:chunk_gdn2", *rows, *gates, use_qk_l2norm_in_kernel=True))


def _instance_norm() -> Any:
    place = f"{_GEMS}.fused.instance_norm:instance_norm"
    weights, running = (_real(32), _real(32)), (_real(32), _shares(32))
    return call(place, _real(6, 32, 10, 20), *weights, *running, use_input_stats=False)


def _parallax_back() -> None:
    rows = [_real(2, 128, 4, 64, dtype="bfloat16").requires_grad_() for _ in range(4)]
    call("fla.ops.parallax:parallel_parallax", *rows).square().sum().backward()


CALLS: Mapping[str, Callable[[], object]] = {
    "fla/nsa": _sparse_attention,
    "fla/parallel_simple_gla": _parallel_simple_gla,
    "fla/chunked_delta": _chunked_delta,
    "flaggems/geglu_fused": lambda: call(f"{_GEMS}.fused.geglu:geglu", _real(96, 1400)),
    "fla/cyclic": _cyclic_step,
    "flaggems/consecutive": lambda: call(f"{_GEMS}:unique_consecutive", whole(5, 9000), True, True),
    "flaggems/largest": lambda: call(f"{_GEMS}:argmax", _real(30, 700)),
    "flaggems/logit": lambda: call(f"{_GEMS}:logit", _shares(30, 700)),
    "fla/gradient_of_gla": _gla_back,
    "fla/gradient_of_abc": _abc_back,
    "liger/gradient_of_linear_jsd": _linear_jsd_back,
    "fla/gradient_of_gdn2": _gdn2_back,
    "flaggems/instance_norm": _instance_norm,
    "fla/gradient_of_parallax": _parallax_back,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
