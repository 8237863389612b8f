"""A program that calls one function of a library on random tensors, as a user's does: `python calls.py fla/chunk_gla`.

Functions are imported when they are called: a host has few of the libraries.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.benchmarks.programs.arguments import apply, call, numbers, real, whole

__all__ = ["CALLS"]


def _cuda(*shape: int) -> Any:
    return real(*shape, device="cuda")


def _half(*shape: int) -> Any:
    return real(*shape, dtype="float16", device="cuda")


def _heads() -> Any:
    return real(2, 128, 4, 64)


def _decays() -> Any:
    return _heads().sigmoid().log()


def _shares() -> Any:
    return real(2, 128, 4).sigmoid()


def _module(place: str, size: int, *shapes: tuple[int, ...]) -> Any:
    """Make a layer of one size and call it."""
    return call(place, size).to("npu")(*(real(*shape) for shape in shapes))


_LLAMA, _GEMMA = "lightllm.models.llama.triton_kernel", "lightllm.models.gemma_2b.triton_kernel"


def _attention_of_lightllm() -> Any:
    q, k, v, out = (_half(200, 8, 64) for _ in range(4))
    starts, lengths = numbers((0, 90)), numbers((90, 110))
    place = f"{_LLAMA}.context_flashattention_nopad:context_attention_fwd_no_prompt_cache"
    return call(place, q, k, v, out, starts, lengths, 110)


def _scores_of_lightllm() -> Any:
    slots = numbers(range(150)).reshape(3, 50)
    rows, starts, lengths = numbers((0, 1, 2)), numbers((0, 40, 75)), numbers((40, 35, 45))
    place = f"{_LLAMA}.token_attention_nopad_att1:token_att_fwd"
    return call(place, _half(3, 8, 64), _half(200, 8, 64), _half(8, 120), slots, rows, starts, lengths, 45)


def _splits_of_lightllm() -> Any:
    place = f"{_LLAMA}.flash_decoding_stage2:flash_decode_stage2"
    return call(place, _cuda(3, 8, 4, 64), _cuda(3, 8, 4), numbers((200, 100, 250)), _half(3, 8, 64), 64)


def _pages_of_conch() -> Any:
    tables, lengths = numbers(range(18)).reshape(6, 3), numbers((40, 33, 20, 48, 16, 7))
    caches = _cuda(20, 16, 4, 64), _cuda(20, 16, 4, 64)
    return call("conch.ops.attention.paged_attention:paged_attention", _cuda(6, 8, 64), *caches, tables, lengths)


def _cache_of_conch() -> Any:
    pairs = [_cuda(*shape) for shape in ((48, 4, 64),) * 2 + ((20, 16, 4, 64),) * 2]
    return call("conch.ops.vllm.reshape_and_cache:reshape_and_cache", *pairs, numbers(range(48), "int64"))


def _boxes_of_conch() -> Any:
    return call("conch.ops.vision.nms:nms", _cuda(100, 4).sigmoid(), _cuda(100), 0.5)


def _int8_of_conch() -> Any:
    place = "conch.ops.quantization.int8:static_scaled_int8_quant"
    return call(place, whole(1, 96, 700).char(), _cuda(96, 700), _cuda(1).sigmoid())


def _clusters(place: str) -> Any:
    return call(f"flash_kmeans.{place}", _cuda(2, 900, 64), whole(40, 2, 900), _cuda(2, 40, 64))


def _nearest() -> Any:
    x = _cuda(2, 900, 64)
    return call("flash_kmeans.assign_euclid_triton:euclid_assign_triton", x, _cuda(2, 40, 64), (x * x).sum(-1))


def _mlstm() -> Any:
    place = "mlstm_kernels.torch.chunkwise:mlstm_chunkwise__xl_chunk"
    return call(place, *(_cuda(1, 2, 128, 64) for _ in range(3)), _cuda(1, 2, 128), _cuda(1, 2, 128))


def _selected_rows() -> Any:
    place = "xformers.ops._triton.k_index_select_cat:index_select_cat_fwd"
    return call(place, _cuda(96, 64), _cuda(300, 64), whole(300, 96))


def _gems_rotary() -> Any:
    tables = real(100, 32), real(100, 32), whole(100, 48, device="npu")
    return call("flag_gems.fused:apply_rotary_pos_emb", real(48, 8, 64), real(48, 4, 64), *tables)


def _rwkv4() -> Any:
    place = "fla.ops.rwkv4:fused_recurrent_rwkv4"
    return call(place, real(96), real(96), real(2, 64, 96), real(2, 64, 96), real(2, 3, 1, 96))


def _rwkv7() -> Any:
    rows = [real(1, 1, 96) for _ in range(6)]
    return call("fla.ops.rwkv7.fused_addcmul:fused_addcmul_rwkv7", real(2, 64, 96), real(2, 64, 96), *rows)


_BNB = "bitsandbytes.backends.triton"


def _eight_bits_of_bnb() -> Any:
    torch = importlib.import_module("torch")
    return call(f"{_BNB}.kernels_8bit_quant:quantize_blockwise_triton", _cuda(96, 768), _codes(torch), 256)


def _from_eight_bits_of_bnb() -> Any:
    torch = importlib.import_module("torch")
    place, packed = f"{_BNB}.kernels_8bit_quant:dequant_8bit_blockwise", whole(256, 96, 768).byte()
    return call(place, packed, _cuda(96 * 3), _codes(torch), 256, dtype=torch.float32)


def _codes(torch: Any) -> Any:
    return torch.linspace(-1, 1, 256, device="cuda")


def _four_bits_of_bnb() -> Any:
    packed = whole(1, 96 * 384, 1).byte()
    place = f"{_BNB}.kernels_4bit:quantize_4bit_blockwise_triton"
    return call(place, _cuda(96, 768), 64, "nf4", 96 * 12, _cuda(96 * 12), 96 * 768, packed)


def _from_four_bits_of_bnb() -> Any:
    torch, place = importlib.import_module("torch"), f"{_BNB}.kernels_4bit:dequantize_4bit_impl"
    return call(place, whole(256, 96 * 384, 1).byte(), _cuda(96 * 12), 64, "nf4", torch.float32, _cuda(96, 768))


def _weights_of_gemlite() -> Any:
    torch = importlib.import_module("torch")
    layer = torch.nn.Linear(512, 384, bias=False, dtype=torch.float16, device="cuda")
    return call("gemlite.helper:A16W8", device="cuda").from_linear(layer)(_half(96, 512))


def _backward(place: str, *args: Any) -> None:
    """Call a torch.autograd.Function, and its gradient too."""
    torch = importlib.import_module("torch")
    real = [isinstance(arg, torch.Tensor) and arg.is_floating_point() for arg in args]
    out = apply(place, *(arg.requires_grad_() if floats else arg for arg, floats in zip(args, real, strict=True)))
    out.backward(torch.randn_like(out))


_LIGER, _GEMS, _FUSED = "liger_kernel.ops", "flag_gems.ops", "chronicals.kernels.triton_kernels"


def _loss_of_liger() -> Any:
    place = f"{_LIGER}.cross_entropy:LigerCrossEntropyFunction"
    target = whole(700, 96, device="npu")
    return apply(place, real(96, 700), target, None, -100, 0.0, 0.0, "mean", None, False)


def _grpo_of_liger() -> Any:
    place, ids = f"{_LIGER}.grpo_loss:GrpoLossFunction", whole(700, 3, 16, device="npu")
    return apply(place, real(3, 17, 700), None, None, ids, real(3), None, 0.9, 0.0, 0.2, 0.2, False)


def _views_of_conch() -> Any:
    starts, lengths = numbers(range(0, 400, 10)), numbers([10] * 40)
    place = "conch.ops.vision.bev_pool:bev_pool"
    return call(place, _cuda(400, 64), whole(4, 400, 4).int(), starts, lengths, 1, 4, 4, 4)


def _products_of_three() -> Any:
    place = "grouped_mm_bf16.kernels:grouped_mm_3d3d"
    return call(place, *(real(3, *sizes, dtype="bfloat16", device="cuda") for sizes in _PRODUCT))


_PRODUCT = ((96, 128), (128, 160), (96, 160))


def _small_floats_of_mase() -> Any:
    meta = call("mase_triton.minifloat.meta:MinifloatMeta", exp_bits=4, frac_bits=3, is_finite=True, round_mode="rn")
    return call("mase_triton.minifloat.kernels.cast:extract_minifloat_component", _cuda(96, 700), meta)


def _comba() -> Any:
    place = "fla.ops.comba:fused_recurrent_comba"
    return call(place, *(_heads() for _ in range(4)), _shares().log(), _shares())


def _dplr() -> Any:
    place = "fla.ops.generalized_delta_rule:fused_recurrent_dplr_delta_rule"
    return call(place, *(_heads() for _ in range(5)), _decays())


CALLS: Mapping[str, Callable[[], object]] = {
    "bitsandbytes/quantize8": _eight_bits_of_bnb,
    "bitsandbytes/dequantize8": _from_eight_bits_of_bnb,
    "bitsandbytes/quantize4": _four_bits_of_bnb,
    "bitsandbytes/dequantize4": _from_four_bits_of_bnb,
    "gemlite/int8": _weights_of_gemlite,
    "conch/gelu": lambda: call("conch.ops.activation.gelu_tanh_and_mul:gelu_tanh_and_mul", _cuda(96, 1400)),
    "conch/silu": lambda: call("conch.ops.activation.silu_and_mul:silu_and_mul", _cuda(96, 1400)),
    "conch/gemma": lambda: call(
        "conch.ops.normalization.gemma_rms_norm:gemma_rms_norm", _cuda(96, 700), _cuda(700), 1e-6
    ),
    "conch/rms": lambda: call("conch.ops.normalization.rms_norm:rms_norm", _cuda(96, 700), _cuda(700), 1e-6),
    "conch/rotary": lambda: call(
        "conch.ops.embedding.rotary_embedding:rotary_embedding",
        *(numbers(range(48), "int64"), _cuda(48, 512), _cuda(48, 256), 64, _cuda(128, 64)),
    ),
    "conch/int8": _int8_of_conch,
    "conch/nms": _boxes_of_conch,
    "conch/cache": _cache_of_conch,
    "conch/copy": lambda: call(
        "conch.ops.vllm.copy_blocks:copy_blocks",
        *([_cuda(20, 4096)], [_cuda(20, 4096)], numbers((0, 3, 1, 5), "int64").reshape(2, 2)),
    ),
    "conch/pages": _pages_of_conch,
    "lightllm/rms": lambda: call(f"{_LLAMA}.rmsnorm:rmsnorm_forward", _half(96, 768), _half(768), 1e-6),
    "lightllm/rotary": lambda: call(
        f"{_LLAMA}.rotary_emb:rotary_emb_fwd", _half(48, 8, 64), _half(48, 4, 64), _half(48, 32), _half(48, 32)
    ),
    "lightllm/silu": lambda: call(f"{_LLAMA}.silu_and_mul:silu_and_mul_fwd", _half(96, 1536)),
    "lightllm/gelu": lambda: call(f"{_GEMMA}.gelu_and_mul:gelu_and_mul_fwd", _half(96, 1536)),
    "lightllm/context": _attention_of_lightllm,
    "lightllm/scores": _scores_of_lightllm,
    "lightllm/splits": _splits_of_lightllm,
    "sage/causal": lambda: call("sageattention:sageattn", *(_half(2, 4, 192, 64) for _ in range(3)), is_causal=True),
    "kmeans/euclid": _nearest,
    "kmeans/cosine": lambda: call(
        "flash_kmeans.assign_euclid_triton:cosine_assign_triton", _cuda(2, 900, 64), _cuda(2, 40, 64)
    ),
    "kmeans/update": lambda: _clusters("centroid_update_triton:triton_centroid_update_cosine"),
    "kmeans/sorted": lambda: _clusters("centroid_update_triton:triton_centroid_update_sorted_cosine"),
    "entmax": lambda: call("adasplash.triton_entmax:triton_entmax", _cuda(96, 700)),
    "cce": lambda: call("cut_cross_entropy:linear_cross_entropy", _half(128, 64), _half(512, 64), whole(512, 128)),
    "xformers/select": _selected_rows,
    "torchao/fp8": lambda: call(
        "torchao.prototype.blockwise_fp8_training.kernels:triton_fp8_blockwise_act_quant_lhs", _cuda(256, 512)
    ),
    "sinkhorn": lambda: call("flash_sinkhorn.c_transform:c_transform_fwd", _cuda(300, 16), _cuda(200, 16), _cuda(200)),
    "mlstm": _mlstm,
    "liger/dyt": lambda: apply("liger_kernel.ops.dyt:LigerDyTFunction", real(96, 700), real(1), real(700), real(700)),
    "liger/sparsemax": lambda: apply("liger_kernel.ops.sparsemax:LigerSparsemaxFunction", real(96, 700), -1),
    "liger/softmax": lambda: apply("liger_kernel.ops.softmax:LigerSoftmaxFunction", real(96, 700)),
    "liger/tvd": lambda: apply("liger_kernel.ops.tvd:LigerTVDLossFunction", real(96, 700), real(96, 700)),
    "liger/relu": lambda: apply("liger_kernel.ops.relu_squared:LigerReLUSquaredFunction", real(96, 700)),
    "liger/poly": lambda: apply(
        "liger_kernel.ops.poly_norm:LigerPolyNormFunction", real(96, 700), real(3), real(1), 1e-6
    ),
    "liger/llama4": lambda: apply(
        "liger_kernel.ops.llama4_rope:LigerLlama4RopeFunction",
        *(real(2, 40, 8, 64), real(2, 40, 4, 64), real(40, 32, 2)),
    ),
    "liger/fused_add": lambda: apply(
        "liger_kernel.ops.fused_add_rms_norm:LigerFusedAddRMSNormFunction",
        *(real(96, 700), real(96, 700), real(700), 1e-6),
    ),
    "liger/group_norm": lambda: apply(
        "liger_kernel.ops.group_norm:LigerGroupNormFunction", real(6, 32, 50), real(32), real(32), 32, 8, 1e-6
    ),
    "liger/jsd": lambda: apply(
        "liger_kernel.ops.jsd:LigerJSDFunction", real(96, 700).log_softmax(-1), real(96, 700).log_softmax(-1)
    ),
    "liger/kl_div": lambda: apply(
        "liger_kernel.ops.kl_div:LigerKLDivLossFunction", real(96, 700).log_softmax(-1), real(96, 700).softmax(-1)
    ),
    "liger/geglu": lambda: apply("liger_kernel.ops.geglu:LigerGELUMulFunction", real(96, 700), real(96, 700)),
    "flaggems/mm": lambda: call("flag_gems.ops:mm", real(256, 384), real(384, 512)),
    "flaggems/argmax": lambda: call("flag_gems.ops:argmax", real(300, 700), dim=1),
    "flaggems/add": lambda: call("flag_gems.ops:add", real(300, 700), real(300, 700)),
    "flaggems/rotary": _gems_rotary,
    "flaggems/embedding": lambda: call("flag_gems.ops:embedding", real(1000, 128), whole(1000, 48, device="npu")),
    "flaggems/bmm": lambda: call("flag_gems.ops:bmm", real(3, 128, 160), real(3, 160, 224)),
    "flaggems/group_norm": lambda: call(
        "flag_gems.ops:group_norm", real(6, 32, 10, 20), real(32), real(32), 6, 32, 200, 8
    ),
    "flaggems/mv": lambda: call("flag_gems.ops:mv", real(300, 700), real(700)),
    "flaggems/vector_norm": lambda: call("flag_gems.ops:vector_norm", real(300, 700), 2, [1]),
    "flaggems/prod": lambda: call("flag_gems.ops:prod_dim", real(300, 700), 1),
    "flaggems/gather": lambda: call("flag_gems.ops:gather", real(300, 700), 1, whole(700, 300, 200, device="npu")),
    "bm3d": lambda: call("bm3d_triton:denoise", _cuda(1, 1, 40, 48).sigmoid(), 0.01),
    "colortransfer": lambda: call(
        "colortransfer_triton:adain", _cuda(1, 3, 64, 96).sigmoid(), _cuda(1, 3, 48, 80).sigmoid()
    ),
    "crossentropy": lambda: call(
        "crossentropy_triton.crossentropy_tl:cross_entropy_forward", _cuda(48, 1000), whole(1000, 48)
    ),
    "multiarch/swiglu": lambda: call(
        "kernels.fused_rmsnorm_swiglu:fused_rmsnorm_swiglu_triton", _half(64, 512), _half(64, 512), _half(512)
    ),
    "multiarch/int8": lambda: call(
        "kernels.quantized_matmul:matmul_int8_triton",
        _half(128, 256),
        whole(256, 256, 192).byte(),
        _half(192),
        _half(192),
    ),
    "fla/gla": lambda: call("fla.ops.gla:fused_recurrent_gla", _heads(), _heads(), _heads(), _decays()),
    "fla/rotary": lambda: call("fla.modules.rotary:rotary_embedding", _heads(), real(128, 32), real(128, 32)),
    "fla/retention": lambda: call("fla.ops.retention:chunk_retention", _heads(), _heads(), _heads()),
    "fla/hgrn": lambda: call("fla.ops.hgrn:fused_recurrent_hgrn", real(2, 128, 96), real(2, 128, 96)),
    "fla/hgrn_chunk": lambda: call("fla.ops.hgrn:chunk_hgrn", real(2, 128, 96), real(2, 128, 96)),
    "fla/delta": lambda: call("fla.ops.delta_rule:fused_recurrent_delta_rule", _heads(), _heads(), _heads(), _shares()),
    "fla/gated_delta": lambda: call(
        "fla.ops.gated_delta_rule:fused_recurrent_gated_delta_rule",
        *(_heads(), _heads(), _heads(), _shares().log()),
        beta=_shares(),
    ),
    "fla/attention": lambda: call("fla.ops.attn:parallel_attn", _heads(), _heads(), _heads()),
    "fla/based": lambda: call("fla.ops.based:parallel_based", real(2, 128, 4, 16), real(2, 128, 4, 16), _heads()),
    "fla/rwkv4": _rwkv4,
    "fla/rwkv7": _rwkv7,
    "fla/conv": lambda: call(
        "fla.modules.causal_conv1d:causal_conv1d", real(2, 128, 96), real(96, 4), activation="silu"
    ),
    "fla/shift": lambda: call("fla.modules.token_shift:token_shift", real(2, 128, 96)),
    "fla/rms": lambda: _module("fla.modules:RMSNorm", 96, (2, 128, 96)),
    "fla/gated_rms": lambda: _module("fla.modules:FusedRMSNormGated", 96, (2, 128, 96), (2, 128, 96)),
    "fla/pooling": lambda: call("fla.ops.utils.pooling:mean_pooling", _heads(), 32),
    "fla/softmax": lambda: call("fla.ops.utils.softmax:softmax_fwd", real(4, 128, 96)),
    "fla/logsumexp": lambda: call("fla.ops.utils.logsumexp:logsumexp_fwd", real(96, 700)),
    "fla/inverse": lambda: call("fla.ops.utils.solve_tril:solve_tril", _heads()),
    "fla/kl": lambda: call(
        "fla.modules.fused_kl_div:fused_kl_div_loss", real(64, 96), real(64, 96), real(300, 96), real(300, 96)
    ),
    "fla/logsigmoid": lambda: call("fla.modules.activations:logsigmoid", real(2, 128, 96)),
    "fla/sigmoid": lambda: call("fla.modules.activations:sigmoid", real(2, 128, 96)),
    "fla/matmul": lambda: call("fla.ops.utils.matmul:matmul", real(96, 160), real(160, 224)),
    "fla/l2norm": lambda: call("fla.modules.norm.l2norm:l2norm", real(2, 128, 96)),
    "fla/cumsum": lambda: call("fla.ops.utils.cumsum:chunk_global_cumsum_scalar", _shares()),
    "fla/simple_gla": lambda: call(
        "fla.ops.simple_gla:chunk_simple_gla", _heads(), _heads(), _heads(), g=_shares().log()
    ),
    "fla/pack": lambda: call("fla.ops.utils.pack:pack_sequence", real(2, 128, 96), numbers((0, 100, 220), "int64")),
    "liger/swiglu": lambda: _backward(f"{_LIGER}.swiglu:LigerSiLUMulFunction", real(96, 700), real(96, 700)),
    "liger/rms": lambda: _backward(f"{_LIGER}.rms_norm:LigerRMSNormFunction", real(96, 700), real(700), 1e-6),
    "liger/layer_norm": lambda: _backward(
        f"{_LIGER}.layer_norm:LigerLayerNormFunction", real(96, 700), real(700), real(700), 1e-6
    ),
    "liger/cross_entropy": _loss_of_liger,
    "liger/rope": lambda: apply(
        f"{_LIGER}.rope:LigerRopeFunction",
        *(real(2, 8, 48, 64), real(2, 4, 48, 64), real(1, 48, 64), real(1, 48, 64)),
    ),
    "liger/mask": lambda: call(f"{_LIGER}.multi_token_attention:_mask_inf_forward", real(2, 4, 96, 96)),
    "liger/attn_res": lambda: apply(
        f"{_LIGER}.attn_res:LigerAttnResFunction", real(6, 2, 48, 160), real(160), real(160), 1e-6
    ),
    "liger/embedding": lambda: _backward(
        f"{_LIGER}.experimental.embedding:LigerEmbeddingFunction", real(500, 96), whole(500, 4, 40, device="npu")
    ),
    "liger/selective": lambda: call(
        f"{_LIGER}.grpo_loss:fused_selective_log_softmax", real(3, 17, 700), whole(700, 3, 16, device="npu")
    ),
    "liger/grpo": _grpo_of_liger,
    "liger/mhc": lambda: call(f"{_LIGER}.mhc:mhc_mm_norm_fwd", _half(96, 512), _half(512, 24), 1e-6),
    "liger/geglu_back": lambda: _backward(f"{_LIGER}.geglu:LigerGELUMulFunction", real(96, 700), real(96, 700)),
    "liger/modulated": lambda: apply(
        f"{_LIGER}.modulated_rms_norm:LigerModulatedRMSNormFunction",
        *(real(4, 24, 700), real(700), real(4, 700), real(4, 700), 1e-6),
    ),
    "flaggems/cumsum": lambda: call(f"{_GEMS}.cumsum:cumsum", real(300, 700), 1),
    "flaggems/softmax": lambda: call(f"{_GEMS}.softmax:softmax", real(300, 700), 1),
    "flaggems/layer_norm": lambda: call(f"{_GEMS}.layernorm:layer_norm", real(300, 700), [700], real(700), real(700)),
    "flaggems/topk": lambda: call(f"{_GEMS}.topk:topk", real(30, 700), 5),
    "flaggems/argmin": lambda: call(f"{_GEMS}.argmin:argmin", real(300, 700), 1),
    "flaggems/var_mean": lambda: call(f"{_GEMS}.var_mean:var_mean", real(300, 700), [1]),
    "flaggems/nonzero": lambda: call(f"{_GEMS}.nonzero:nonzero", real(300, 70)),
    "flaggems/index_select": lambda: call(
        f"{_GEMS}.index_select:index_select", real(300, 70), 0, whole(300, 90, device="npu")
    ),
    "flaggems/triu": lambda: call(f"{_GEMS}.triu:triu", real(300, 500)),
    "flaggems/conv2d": lambda: call(f"{_GEMS}.conv2d:conv2d", real(2, 16, 20, 24), real(32, 16, 3, 3), None, 1, 1),
    "flaggems/nll": lambda: call(f"{_GEMS}.nllloss:nll_loss_forward", real(300, 70), whole(70, 300, device="npu")),
    "flaggems/upsample": lambda: call(f"{_GEMS}.upsample_nearest2d:upsample_nearest2d", real(2, 4, 20, 24), [40, 48]),
    "flaggems/scaled_softmax": lambda: call(f"{_GEMS}.scaled_softmax:scaled_softmax_forward", _half(2, 4, 48, 96), 0.5),
    "flaggems/weight_norm": lambda: call(f"{_GEMS}.weightnorm:weight_norm_interface", real(96, 700), real(96, 1), 0),
    "flaggems/avg_pool": lambda: call(f"{_GEMS}.avg_pool2d:avg_pool2d", real(2, 8, 20, 24), 2),
    "flaggems/max_pool": lambda: call(
        f"{_GEMS}.max_pool2d_with_indices:max_pool2d_with_indices", real(2, 8, 20, 24), 2
    ),
    "flaggems/addmm": lambda: call(f"{_GEMS}.addmm:addmm", real(224), real(96, 160), real(160, 224)),
    "flaggems/mse": lambda: call(f"{_GEMS}.mse_loss:mse_loss", real(300, 70), real(300, 70)),
    "flaggems/count": lambda: call(f"{_GEMS}.count_nonzero:count_nonzero", real(300, 70), 1),
    "flaggems/log_softmax": lambda: call(f"{_GEMS}.log_softmax:log_softmax", real(300, 700), 1),
    "flaggems/amax": lambda: call(f"{_GEMS}.amax:amax", real(300, 700), [1]),
    "flaggems/mean": lambda: call(f"{_GEMS}.mean:mean_dim", real(300, 700), [1]),
    "flaggems/batch_norm": lambda: call(
        f"{_GEMS}.batch_norm:batch_norm", real(16, 8, 40), *(real(8) for _ in range(4)), True
    ),
    "conch/bev": _views_of_conch,
    "moe/topk": lambda: call("moe_ops.fused_topk_softmax_ops:fused_topk_softmax", _cuda(300, 64), 4),
    "moe/gemm": lambda: call(
        "moe_ops.grouped_gemm_ops:grouped_gemm",
        *(_half(256, 128), _half(4, 192, 128), numbers((0, 64, 100, 200, 256))),
    ),
    "lanczos": lambda: call("lanczos_triton:resize", _cuda(1, 3, 40, 48).sigmoid(), (60, 72)),
    "maxsim": lambda: call("late_interaction_kernels.forward:maxsim_forward", _half(4, 32, 128), _half(6, 90, 128)),
    "chronicals/rms": lambda: call(f"{_FUSED}:rmsnorm_forward", _cuda(96, 768), _cuda(768), 1e-6),
    "chronicals/geglu": lambda: call(f"{_FUSED}:geglu_forward", _cuda(96, 768), _cuda(96, 768)),
    "chronicals/loss": lambda: call(f"{_FUSED}:fused_cross_entropy_triton", _cuda(2, 48, 1000), whole(1000, 2, 48)),
    "grouped_mm": _products_of_three,
    "mase/minifloat": _small_floats_of_mase,
    "mingru/log": lambda: call(
        "mingru.triton_scans:parallel_scan_log_fwd", real(2, 64, 96).sigmoid().log(), real(2, 65, 96)
    ),
    "fla/linear_attn": lambda: call("fla.ops.linear_attn:chunk_linear_attn", _heads(), _heads(), _heads()),
    "fla/rebased": lambda: call("fla.ops.rebased:parallel_rebased", real(2, 128, 4, 16), real(2, 128, 4, 16), _heads()),
    "fla/kda": lambda: call("fla.ops.kda:fused_recurrent_kda", _heads(), _heads(), _heads(), _decays(), _shares()),
    "fla/rwkv6": lambda: call(
        "fla.ops.rwkv6:fused_recurrent_rwkv6", _heads(), _heads(), _heads(), _decays(), real(4, 64)
    ),
    "fla/stick": lambda: call(
        "fla.ops.stickbreaking_attn:parallel_stickbreaking_attn", _heads(), _heads(), _heads(), 0.125
    ),
    "fla/lightning": lambda: call(
        "fla.ops.lightning_attn:fused_recurrent_lightning_attn", _heads(), _heads(), _heads(), 1, 12
    ),
    "fla/comba": _comba,
    "fla/attnres": lambda: call(
        "fla.ops.attnres:fused_attnres", real(96), [real(2, 64, 96) for _ in range(4)], real(96)
    ),
    "fla/dplr": _dplr,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
