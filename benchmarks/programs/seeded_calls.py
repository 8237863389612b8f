"""A program like [calls.py](calls.py), for kernels that a seeded draw chose before any of them was tried.

Drawn with Python's `Random(20261125)`: packages of PyPI whose summary says that they have Triton kernels and that
install without dependencies, one kernel of each; and kernels of FlagGems, FLA and Liger that were in no list before.
Left out are those that no call reaches on any NPU, such as one for Hopper's tensor memory alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.programs.arguments import apply, call, numbers, real, whole

__all__ = ["CALLS"]

_LIGER, _GEMS = "liger_kernel.ops", "flag_gems.ops"


def _torch() -> Any:
    return importlib.import_module("torch")


def _real(*shape: int, dtype: str = "float32") -> Any:
    return real(*shape, dtype=dtype, device="cuda")


def _grad(*shape: int, dtype: str = "float32") -> Any:
    return _real(*shape, dtype=dtype).requires_grad_()


def _half(*shape: int) -> Any:
    return _real(*shape, dtype="float16")


def _back(result: Any) -> None:
    result.backward(_torch().randn_like(result))


def _lazy_greedy() -> Any:
    made = call("triton_submodular.functions.feature_based:FeatureBased", _real(300, 96).abs(), "sqrt")
    return made.maximize(5, "LazyGreedyTriton")


def _pages_of_flashnn() -> Any:
    place = "flashnn.triton_kernels.paged_attn:paged_attention"
    caches = _half(40, 2, 16, 64), _half(40, 2, 16, 64)
    tables = whole(40, 6, 5).int()
    return call(place, _half(6, 8, 64), _half(6, 8, 64), *caches, numbers([70] * 6), tables, 0.125, 70)


def _adam() -> Any:
    kernel = importlib.import_module("trinix.kernels.adam_kernel").TritonAdamKernel
    return kernel.apply(_real(3000), _real(3000), _real(3000), _real(3000).abs(), 1e-3, 0.9, 0.999, 1e-8, 0.01, 3)


def _swiglu_of_chalk() -> Any:
    return call("chalk.ops.arch.sm80.swiglu:build")(_half(96, 700), _half(96, 700))


def _attention_of_fskernels() -> Any:
    place = "fskernels.triton.triton_fa2:flash_attention_2_fwd"
    return call(place, *(_half(2, 4, 192, 64) for _ in range(3)))


def _intra_of_xlstm() -> Any:
    place = "fsp.vendor.torch_fw.fw_parallel:mlstm_chunkwise__parallel_fw_Hintra"
    rows = [_real(1, 2, 128, 64) for _ in range(3)]
    states = _real(1, 2, 3 * 64, 64), _real(1, 2, 3 * 64), _real(1, 2, 3)
    return call(place, *rows, _real(1, 2, 128), _real(1, 2, 128), *states)


def _neighbours() -> Any:
    mask = _torch().ones(3, 500, dtype=_torch().bool, device="cuda")
    return call("torch_fps._triton:fps_knn", _real(3, 500, 3), mask, numbers([0] * 3, "int64"), 20, 4)


def _distilled() -> Any:
    hidden, weights = (_real(48, 64), _real(48, 64)), (_real(1000, 64), _real(1000, 64))
    words = {"labels": whole(1000, 48), "kl_weight": 0.5}
    words |= {"teacher_hidden": hidden[1], "teacher_weight": weights[1]}
    return call("orda_kernel.ops.precomputed_teacher:precomputed_distillation_loss", hidden[0], weights[0], **words)


def _attention_of_mlm() -> Any:
    rows = [_half(2, 4, 192, 64) for _ in range(3)]
    return call("flash_mlm.host.host:flash_attn_mlm", *rows, 0.125, auto_tune_tiles=True, prefill=True)


def _layer_norm_of_torchnorm() -> None:
    _back(call("torchnorm._triton:fused_layer_norm", _grad(96, 700), _grad(700), _grad(700), 1e-5))


def _four_bits_of_gptq() -> Any:
    place = "gptq_triton.quant_linear:triton_matmul4"
    weights, zeros = whole(2**31 - 1, 64, 256).int(), whole(2**31 - 1, 4, 32).int()
    return call(place, 128, _half(96, 512), weights, _half(4, 256), zeros)


def _scan_of_gru() -> Any:
    place = "gru_qat.triton_kernels.scan:gru_scan_backward_triton"
    return call(
        place, _real(10, 48, 192), _real(48, 64), _real(192, 64), _real(192), _real(10, 48, 64), _real(10, 48, 64)
    )


def _layer_norm_of_transformer() -> None:
    _back(call("triton_transformer.layernorm:layernorm", _grad(96, 700), _grad(700), use_triton=True))


def _group_norm_back() -> Any:
    place = f"{_GEMS}.groupnorm:group_norm_backward"
    rows, groups = [_real(6, 32, 10, 20), _real(6, 32, 10, 20)], [_real(6, 8), _real(6, 8).abs()]
    return call(place, *rows, *groups, _real(32), 6, 32, 200, 8, [True, True, True])


def _kl_back() -> None:
    place = "fla.modules.fused_kl_div:fused_kl_div_loss"
    _back(call(place, _grad(64, 96), _real(64, 96), _grad(300, 96), _real(300, 96)))


def _heads() -> Any:
    return _grad(2, 128, 4, 64)


def _shares(*shape: int) -> Any:
    return _real(*(shape or (2, 128, 4))).sigmoid()


def _mesa() -> Any:
    place = "fla.ops.mesa_net:chunk_mesa_net"
    return call(place, _heads(), _heads(), _heads(), _shares().log(), _shares(), _shares(4, 64))


def _path_back() -> None:
    place = "fla.ops.path_attn:parallel_path_attn"
    _back(call(place, _heads(), _heads(), _heads(), _heads(), _shares().requires_grad_())[0])


def _experts_of_liger() -> Any:
    place = f"{_LIGER}.fused_moe:LigerFusedMoEFunction"
    chosen = whole(4, 100, 2).int()
    return apply(place, _half(100, 64), _half(4, 256, 64), _half(4, 64, 128), chosen, _shares(100, 2))


def _grpo_back() -> None:
    place, ids = f"{_LIGER}.grpo_loss:GrpoLossFunction", whole(700, 3, 16)
    words = (None, 0.9, 0.0, 0.2, 0.2, False)
    apply(place, _grad(3, 17, 700), None, None, ids, _real(3), *words)[0].backward()


def _added_norm_back() -> None:
    place = f"{_LIGER}.fused_add_rms_norm:LigerFusedAddRMSNormFunction"
    rows, residual = apply(place, _grad(96, 700), _grad(96, 700), _grad(700), 1e-6)
    (rows + residual).sum().backward()


CALLS: Mapping[str, Callable[[], object]] = {
    "submodular/lazy": _lazy_greedy,
    "flashnn/pages": _pages_of_flashnn,
    "trinix/adam": _adam,
    "chalk/swiglu": _swiglu_of_chalk,
    "fskernels/attention": _attention_of_fskernels,
    "xlstm/intra": _intra_of_xlstm,
    "augment/contrast": lambda: call("triton_augment.functional:adjust_contrast_fast", _shares(2, 3, 64, 96), 1.5),
    "fps/neighbours": _neighbours,
    "orda/distilled": _distilled,
    "mlm/attention": _attention_of_mlm,
    "torchnorm/layer_norm": _layer_norm_of_torchnorm,
    "gptq/matmul": _four_bits_of_gptq,
    "gru/scan": _scan_of_gru,
    "transformer/layer_norm": _layer_norm_of_transformer,
    "flaggems/fp8": lambda: call(
        f"{_GEMS}.per_token_group_quant_fp8:per_token_group_quant_fp8", _real(96, 512), 128, column_major_scales=True
    ),
    "flaggems/range": lambda: call(
        f"{_GEMS}._functional_sym_constrain_range_for_size:_functional_sym_constrain_range_for_size", _real(3000)
    ),
    "flaggems/unique": lambda: call(f"{_GEMS}.unique:_unique2", whole(500, 9000), True, True, True),
    "flaggems/gradient_of_log_softmax": lambda: call(
        f"{_GEMS}.log_softmax:log_softmax_backward", _real(96, 700), _real(96, 700), 1, _torch().float32
    ),
    "flaggems/baddbmm": lambda: call(
        f"{_GEMS}.baddbmm:baddbmm", _real(3, 96, 224), _real(3, 96, 160), _real(3, 160, 224)
    ),
    "flaggems/gradient_of_group_norm": _group_norm_back,
    "fla/rwkv6_sums": lambda: call("fla.ops.rwkv6.chunk:chunk_rwkv6_fwd_cumsum", _real(2, 128, 4, 64), 32),
    "fla/gradient_of_kl": _kl_back,
    "fla/mesa": _mesa,
    "fla/gradient_of_path": _path_back,
    "liger/gradient_of_grpo": _grpo_back,
    "liger/experts": _experts_of_liger,
    "liger/gradient_of_added_norm": _added_norm_back,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
