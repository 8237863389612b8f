"""A program like [calls.py](calls.py), for kernels of a third seeded draw, tried to find what tilewise lacks.

Drawn from the kernels of FlagGems, FLA and Liger that no earlier list or result names: twelve of each package, the
first in the order of Python's `Random(7).shuffle` over those of the package, sorted by name and file. One of them,
`kernel_tle_bucket_sort_topk`, is launched under later releases of Triton alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.programs.arguments import apply, back, call, grad, real, shares, whole

__all__ = ["CALLS"]

_GEMS, _LIGER = "flag_gems.ops", "liger_kernel.ops"


def _heads() -> Any:
    return grad(2, 128, 4, 64)


def _embedding_back() -> Any:
    place = f"{_GEMS}.embedding_dense_backward:embedding_dense_backward"
    return call(place, real(40, 30, 96), whole(500, 40, 30, device="npu"), 500, -1, True)


def _split_states() -> Any:
    rows = [real(2, 512, 4, 64) for _ in range(3)]
    gates, given = shares(2, 512, 4).log(), real(2, 512, 4, 64)
    place = "fla.ops.common.chunk_h_split:chunk_bwd_dh"
    return call(place, *rows, gates, None, None, given, None, None, 0.125)


def _ttt() -> Any:
    rows, weights = [real(2, 128, 4, 64) for _ in range(3)], [real(4, 64) for _ in range(2)]
    return call("fla.ops.ttt:fused_chunk_ttt_linear", *rows, *weights, shares(2, 128, 4, 1), chunk_size=16)


def _log_linear_back() -> None:
    rows = grad(2, 256, 1, 64), grad(2, 256, 1, 64), grad(2, 256, 4, 64)
    gates = shares(2, 256, 4).log().requires_grad_(), shares(2, 256, 4, 9).requires_grad_()
    back(call("fla.ops.log_linear_attn:chunk_log_linear_attn", *rows, *gates)[0])


def _mesa_back() -> Any:
    rows, states = [real(2, 128, 4, 64) for _ in range(3)], [real(2, 2, 4, 64, 64) for _ in range(2)]
    place = "fla.ops.mesa_net.chunk_h_kv_intra_bwd_separate:chunk_mesa_net_h_kv_bwd_intra_separate_fn"
    gates = shares(2, 128, 4), shares(2, 128, 4).log()
    return call(place, *rows, gates[0], *states, gates[1], real(2, 128, 4, 64), None)


def _hgrn_back() -> None:
    back(call("fla.ops.hgrn:chunk_hgrn", grad(2, 128, 96), shares(2, 128, 96).log().requires_grad_())[0])


def _cyclic() -> Any:
    rows = [real(2, 128, 4, 64) for _ in range(3)]
    gates = shares(2, 128, 4).log(), real(2, 128, 4), shares(2, 128, 4)
    return call("fla.ops.cyfa:chunk_cyfa", *rows, *gates, real(4, 15, 15), real(64), real(64), 1e-6, 1e-6)


def _group_norm_back() -> None:
    place = f"{_LIGER}.backends._ascend.ops.group_norm:LigerGroupNormFunction"
    back(apply(place, grad(6, 32, 200), grad(32), grad(32), 32, 8, 1e-5))


def _softmax_back() -> None:
    back(apply(f"{_LIGER}.softmax:LigerSoftmaxFunction", grad(96, 700)))


def _loss_and_distance_back() -> None:
    place = f"{_LIGER}.fused_ce_tvd:LigerFusedCETVDFunction"
    made = apply(place, grad(96, 700), real(96, 700), whole(700, 96, device="npu"))
    (made[0] + made[1]).sum().backward()


def _polynomial_back() -> None:
    back(apply(f"{_LIGER}.poly_norm:LigerPolyNormFunction", grad(96, 700), grad(3), grad()))


def _neighbours() -> Any:
    place = f"{_LIGER}.backends._ascend.ops.fused_neighborhood_attention:LigerFusedNeighborhoodAttentionFunction"
    return apply(place, *(real(2, 4, 128, 64) for _ in range(3)))


def _sinkhorn() -> Any:
    words = {"tmax": 8, "pre_eps": 1e-6, "sinkhorn_eps": 1e-6, "post_mult": 2.0}
    return call(f"{_LIGER}.mhc:mhc_split_sinkhorn_fwd", real(96, 24), real(24), real(1), real(1), real(1), **words)


def _pooled_back() -> Any:
    place, words = f"{_GEMS}.max_pool2d_with_indices", (3, 2, 1, 1, False)
    x = real(2, 6, 40, 50)
    made, indices = call(f"{place}:max_pool2d_with_indices", x, *words)
    return call(f"{place}:max_pool2d_backward", real(*made.shape), x, indices, *words)


def _products_of_householder() -> Any:
    place = "fla.ops.path_attn.cumprod_householder_fwd:chunk_cumprod_householder_fwd_fn"
    return call(place, *(real(2, 256, 4, 64) for _ in range(3)), 128, 64)


def _cyclic_back() -> None:
    rows = [_heads() for _ in range(3)]
    gates = shares(2, 128, 4).log().requires_grad_(), grad(2, 128, 4), shares(2, 128, 4).requires_grad_()
    back(call("fla.ops.cyfa:chunk_cyfa", *rows, *gates, grad(4, 15, 15), grad(64), grad(64), 1e-6, 1e-6)[0])


def _layer_norm_back() -> None:
    back(call("fla.modules.norm.layernorm:layer_norm", grad(96, 700), grad(700), grad(700)))


def _wide_residual() -> Any:
    place = f"{_LIGER}.backends._ascend.ops.attn_res:LigerAttnResFunction"
    return apply(place, real(4, 2, 64, 3000), real(3000), real(3000), 1e-6)


def _wide_rms_norm() -> Any:
    place = f"{_LIGER}.backends._ascend.ops.rms_norm:rms_norm_forward"
    return call(place, real(64, 30000), real(30000), 1e-6, 0.0, "llama")


def _wide_group_norm() -> Any:
    place = f"{_LIGER}.backends._ascend.ops.group_norm:group_norm_forward"
    return call(place, real(6, 32, 2000), 32, 8, real(32), real(32), 1e-5)


def _wide_polynomial() -> Any:
    return call(f"{_LIGER}.backends._ascend.ops.poly_norm:poly_norm_forward", real(64, 30000), real(3), real(1))


def _rotary_of_three() -> Any:
    place = f"{_LIGER}.qwen2vl_mrope:qwen2vl_mrope_forward"
    tables = real(3, 2, 48, 64), real(3, 2, 48, 64)
    return call(place, real(2, 8, 48, 64), real(2, 4, 48, 64), *tables, [8, 12, 12])


def _residual_back() -> None:
    back(apply(f"{_LIGER}.attn_res:LigerAttnResFunction", grad(4, 2, 64, 96), grad(96), grad(96), 1e-6))


CALLS: Mapping[str, Callable[[], object]] = {
    "flaggems/embedding_counts": _embedding_back,
    "flaggems/asinh": lambda: call(f"{_GEMS}.asinh_:asinh_", real(96, 700)),
    "flaggems/product_of_all": lambda: call(f"{_GEMS}.prod:prod", real(96, 700)),
    "flaggems/cumulated_columns": lambda: call(f"{_GEMS}.cumsum:cumsum", real(6, 5000, 12), 1),
    "flaggems/selected_back": lambda: call(
        f"{_GEMS}.select_backward:select_backward", real(48, 64), (48, 10, 64), 1, 3
    ),
    "flaggems/counts": lambda: call(f"{_GEMS}.unique_consecutive:unique_consecutive", whole(5, 9000), True, True),
    "fla/ttt": _ttt,
    "fla/split_states": _split_states,
    "fla/gradient_of_log_linear": _log_linear_back,
    "fla/gradient_of_mesa": _mesa_back,
    "fla/gradient_of_hgrn": _hgrn_back,
    "fla/chunked_cyclic": _cyclic,
    "liger/gradient_of_ascend_group_norm": _group_norm_back,
    "liger/gradient_of_softmax": _softmax_back,
    "liger/gradient_of_loss_and_distance": _loss_and_distance_back,
    "liger/gradient_of_poly": _polynomial_back,
    "liger/neighbours": _neighbours,
    "liger/sinkhorn": _sinkhorn,
    "flaggems/cumulated_largest": lambda: call(f"{_GEMS}.cummax:cummax", real(9000), 0),
    "flaggems/pooled_back": _pooled_back,
    "flaggems/reflected": lambda: call(f"{_GEMS}.reflection_pad2d:reflection_pad2d", real(2, 6, 40, 50), (3, 2, 4, 1)),
    "flaggems/random": lambda: call(f"{_GEMS}.rand:rand", (96, 700)),
    "flaggems/quantile": lambda: call(f"{_GEMS}.quantile:quantile", real(96, 300), real(4).sigmoid(), 1),
    "fla/householder": _products_of_householder,
    "fla/fused_based": lambda: call(
        "fla.ops.based:fused_chunk_based", real(2, 128, 4, 16), real(2, 128, 4, 16), real(2, 128, 4, 64)
    ),
    "fla/gradient_of_cyclic": _cyclic_back,
    "fla/gradient_of_gate": lambda: back(
        call("fla.ops.gated_delta_rule.gate:fused_gdn_gate", grad(2, 128, 4), grad(4), grad(4))
    ),
    "fla/recurrent_rwkv7": lambda: call(
        "fla.ops.rwkv7:fused_recurrent_rwkv7", *(real(2, 64, 4, 64).sigmoid().neg() for _ in range(6))
    ),
    "fla/gradient_of_layer_norm": _layer_norm_back,
    "liger/wide_residual": _wide_residual,
    "liger/wide_rms_norm": _wide_rms_norm,
    "liger/wide_group_norm": _wide_group_norm,
    "liger/wide_poly": _wide_polynomial,
    "liger/rotary_of_three": _rotary_of_three,
    "liger/gradient_of_residual": _residual_back,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
