"""A program that calls one function of a library on random tensors, as a user's does: `python calls.py fla/chunk_gla`.

Functions are imported when they are called: a host has few of the libraries.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["CALLS"]


def _call(place: str, *args: Any, **kwargs: Any) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)(*args, **kwargs)


def _apply(place: str, *args: Any) -> Any:
    """Call a torch.autograd.Function."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name).apply(*args)


def _real(*shape: int, dtype: str = "float32", device: str = "npu") -> Any:
    torch = importlib.import_module("torch")
    return torch.randn(shape, dtype=getattr(torch, dtype), device=device)


def _cuda(*shape: int) -> Any:
    return _real(*shape, device="cuda")


def _half(*shape: int) -> Any:
    return _real(*shape, dtype="float16", device="cuda")


def _whole(below: int, *shape: int, device: str = "cuda") -> Any:
    return importlib.import_module("torch").randint(0, below, shape, device=device)


def _numbers(values: Any, dtype: str = "int32") -> Any:
    torch = importlib.import_module("torch")
    return torch.tensor(list(values), dtype=getattr(torch, dtype), device="cuda")


def _heads() -> Any:
    return _real(2, 128, 4, 64)


def _decays() -> Any:
    return _heads().sigmoid().log()


def _shares() -> Any:
    return _real(2, 128, 4).sigmoid()


def _module(place: str, size: int, *shapes: tuple[int, ...]) -> Any:
    """Make a layer of one size and call it."""
    return _call(place, size).to("npu")(*(_real(*shape) for shape in shapes))


_LLAMA, _GEMMA = "lightllm.models.llama.triton_kernel", "lightllm.models.gemma_2b.triton_kernel"


def _attention_of_lightllm() -> Any:
    q, k, v, out = (_half(200, 8, 64) for _ in range(4))
    starts, lengths = _numbers((0, 90)), _numbers((90, 110))
    place = f"{_LLAMA}.context_flashattention_nopad:context_attention_fwd_no_prompt_cache"
    return _call(place, q, k, v, out, starts, lengths, 110)


def _scores_of_lightllm() -> Any:
    slots = _numbers(range(150)).reshape(3, 50)
    rows, starts, lengths = _numbers((0, 1, 2)), _numbers((0, 40, 75)), _numbers((40, 35, 45))
    place = f"{_LLAMA}.token_attention_nopad_att1:token_att_fwd"
    return _call(place, _half(3, 8, 64), _half(200, 8, 64), _half(8, 120), slots, rows, starts, lengths, 45)


def _splits_of_lightllm() -> Any:
    place = f"{_LLAMA}.flash_decoding_stage2:flash_decode_stage2"
    return _call(place, _cuda(3, 8, 4, 64), _cuda(3, 8, 4), _numbers((200, 100, 250)), _half(3, 8, 64), 64)


def _pages_of_conch() -> Any:
    tables, lengths = _numbers(range(18)).reshape(6, 3), _numbers((40, 33, 20, 48, 16, 7))
    caches = _cuda(20, 16, 4, 64), _cuda(20, 16, 4, 64)
    return _call("conch.ops.attention.paged_attention:paged_attention", _cuda(6, 8, 64), *caches, tables, lengths)


def _cache_of_conch() -> Any:
    pairs = [_cuda(*shape) for shape in ((48, 4, 64),) * 2 + ((20, 16, 4, 64),) * 2]
    return _call("conch.ops.vllm.reshape_and_cache:reshape_and_cache", *pairs, _numbers(range(48), "int64"))


def _boxes_of_conch() -> Any:
    return _call("conch.ops.vision.nms:nms", _cuda(100, 4).sigmoid(), _cuda(100), 0.5)


def _int8_of_conch() -> Any:
    place = "conch.ops.quantization.int8:static_scaled_int8_quant"
    return _call(place, _whole(1, 96, 700).char(), _cuda(96, 700), _cuda(1).sigmoid())


def _clusters(place: str) -> Any:
    return _call(f"flash_kmeans.{place}", _cuda(2, 900, 64), _whole(40, 2, 900), _cuda(2, 40, 64))


def _nearest() -> Any:
    x = _cuda(2, 900, 64)
    return _call("flash_kmeans.assign_euclid_triton:euclid_assign_triton", x, _cuda(2, 40, 64), (x * x).sum(-1))


def _mlstm() -> Any:
    place = "mlstm_kernels.torch.chunkwise:mlstm_chunkwise__xl_chunk"
    return _call(place, *(_cuda(1, 2, 128, 64) for _ in range(3)), _cuda(1, 2, 128), _cuda(1, 2, 128))


def _selected_rows() -> Any:
    place = "xformers.ops._triton.k_index_select_cat:index_select_cat_fwd"
    return _call(place, _cuda(96, 64), _cuda(300, 64), _whole(300, 96))


def _gems_rotary() -> Any:
    tables = _real(100, 32), _real(100, 32), _whole(100, 48, device="npu")
    return _call("flag_gems.fused:apply_rotary_pos_emb", _real(48, 8, 64), _real(48, 4, 64), *tables)


def _rwkv4() -> Any:
    place = "fla.ops.rwkv4:fused_recurrent_rwkv4"
    return _call(place, _real(96), _real(96), _real(2, 64, 96), _real(2, 64, 96), _real(2, 3, 1, 96))


def _rwkv7() -> Any:
    rows = [_real(1, 1, 96) for _ in range(6)]
    return _call("fla.ops.rwkv7.fused_addcmul:fused_addcmul_rwkv7", _real(2, 64, 96), _real(2, 64, 96), *rows)


_BNB = "bitsandbytes.backends.triton"


def _eight_bits_of_bnb() -> Any:
    torch = importlib.import_module("torch")
    return _call(f"{_BNB}.kernels_8bit_quant:quantize_blockwise_triton", _cuda(96, 768), _codes(torch), 256)


def _from_eight_bits_of_bnb() -> Any:
    torch = importlib.import_module("torch")
    place, packed = f"{_BNB}.kernels_8bit_quant:dequant_8bit_blockwise", _whole(256, 96, 768).byte()
    return _call(place, packed, _cuda(96 * 3), _codes(torch), 256, dtype=torch.float32)


def _codes(torch: Any) -> Any:
    return torch.linspace(-1, 1, 256, device="cuda")


def _four_bits_of_bnb() -> Any:
    packed = _whole(1, 96 * 384, 1).byte()
    place = f"{_BNB}.kernels_4bit:quantize_4bit_blockwise_triton"
    return _call(place, _cuda(96, 768), 64, "nf4", 96 * 12, _cuda(96 * 12), 96 * 768, packed)


def _from_four_bits_of_bnb() -> Any:
    torch, place = importlib.import_module("torch"), f"{_BNB}.kernels_4bit:dequantize_4bit_impl"
    return _call(place, _whole(256, 96 * 384, 1).byte(), _cuda(96 * 12), 64, "nf4", torch.float32, _cuda(96, 768))


def _weights_of_gemlite() -> Any:
    torch = importlib.import_module("torch")
    layer = torch.nn.Linear(512, 384, bias=False, dtype=torch.float16, device="cuda")
    return _call("gemlite.helper:A16W8", device="cuda").from_linear(layer)(_half(96, 512))


def _backward(place: str, *args: Any) -> None:
    """Call a torch.autograd.Function, and its gradient too."""
    torch = importlib.import_module("torch")
    real = [isinstance(arg, torch.Tensor) and arg.is_floating_point() for arg in args]
    out = _apply(place, *(arg.requires_grad_() if floats else arg for arg, floats in zip(args, real, strict=True)))
    out.backward(torch.randn_like(out))


_LIGER, _GEMS, _FUSED = "liger_kernel.ops", "flag_gems.ops", "chronicals.kernels.triton_kernels"


def _loss_of_liger() -> Any:
    place = f"{_LIGER}.cross_entropy:LigerCrossEntropyFunction"
    target = _whole(700, 96, device="npu")
    return _apply(place, _real(96, 700), target, None, -100, 0.0, 0.0, "mean", None, False)


def _grpo_of_liger() -> Any:
    place, ids = f"{_LIGER}.grpo_loss:GrpoLossFunction", _whole(700, 3, 16, device="npu")
    return _apply(place, _real(3, 17, 700), None, None, ids, _real(3), None, 0.9, 0.0, 0.2, 0.2, False)


def _views_of_conch() -> Any:
    starts, lengths = _numbers(range(0, 400, 10)), _numbers([10] * 40)
    place = "conch.ops.vision.bev_pool:bev_pool"
    return _call(place, _cuda(400, 64), _whole(4, 400, 4).int(), starts, lengths, 1, 4, 4, 4)


def _products_of_three() -> Any:
    place = "grouped_mm_bf16.kernels:grouped_mm_3d3d"
    return _call(place, *(_real(3, *sizes, dtype="bfloat16", device="cuda") for sizes in _PRODUCT))


_PRODUCT = ((96, 128), (128, 160), (96, 160))


def _small_floats_of_mase() -> Any:
    meta = _call("mase_triton.minifloat.meta:MinifloatMeta", exp_bits=4, frac_bits=3, is_finite=True, round_mode="rn")
    return _call("mase_triton.minifloat.kernels.cast:extract_minifloat_component", _cuda(96, 700), meta)


def _comba() -> Any:
    place = "fla.ops.comba:fused_recurrent_comba"
    return _call(place, *(_heads() for _ in range(4)), _shares().log(), _shares())


def _dplr() -> Any:
    place = "fla.ops.generalized_delta_rule:fused_recurrent_dplr_delta_rule"
    return _call(place, *(_heads() for _ in range(5)), _decays())


CALLS: Mapping[str, Callable[[], object]] = {
    "bitsandbytes/quantize8": _eight_bits_of_bnb,
    "bitsandbytes/dequantize8": _from_eight_bits_of_bnb,
    "bitsandbytes/quantize4": _four_bits_of_bnb,
    "bitsandbytes/dequantize4": _from_four_bits_of_bnb,
    "gemlite/int8": _weights_of_gemlite,
    "conch/gelu": lambda: _call("conch.ops.activation.gelu_tanh_and_mul:gelu_tanh_and_mul", _cuda(96, 1400)),
    "conch/silu": lambda: _call("conch.ops.activation.silu_and_mul:silu_and_mul", _cuda(96, 1400)),
    "conch/gemma": lambda: _call(
        "conch.ops.normalization.gemma_rms_norm:gemma_rms_norm", _cuda(96, 700), _cuda(700), 1e-6
    ),
    "conch/rms": lambda: _call("conch.ops.normalization.rms_norm:rms_norm", _cuda(96, 700), _cuda(700), 1e-6),
    "conch/rotary": lambda: _call(
        "conch.ops.embedding.rotary_embedding:rotary_embedding",
        *(_numbers(range(48), "int64"), _cuda(48, 512), _cuda(48, 256), 64, _cuda(128, 64)),
    ),
    "conch/int8": _int8_of_conch,
    "conch/nms": _boxes_of_conch,
    "conch/cache": _cache_of_conch,
    "conch/copy": lambda: _call(
        "conch.ops.vllm.copy_blocks:copy_blocks",
        *([_cuda(20, 4096)], [_cuda(20, 4096)], _numbers((0, 3, 1, 5), "int64").reshape(2, 2)),
    ),
    "conch/pages": _pages_of_conch,
    "lightllm/rms": lambda: _call(f"{_LLAMA}.rmsnorm:rmsnorm_forward", _half(96, 768), _half(768), 1e-6),
    "lightllm/rotary": lambda: _call(
        f"{_LLAMA}.rotary_emb:rotary_emb_fwd", _half(48, 8, 64), _half(48, 4, 64), _half(48, 32), _half(48, 32)
    ),
    "lightllm/silu": lambda: _call(f"{_LLAMA}.silu_and_mul:silu_and_mul_fwd", _half(96, 1536)),
    "lightllm/gelu": lambda: _call(f"{_GEMMA}.gelu_and_mul:gelu_and_mul_fwd", _half(96, 1536)),
    "lightllm/context": _attention_of_lightllm,
    "lightllm/scores": _scores_of_lightllm,
    "lightllm/splits": _splits_of_lightllm,
    "sage/causal": lambda: _call("sageattention:sageattn", *(_half(2, 4, 192, 64) for _ in range(3)), is_causal=True),
    "kmeans/euclid": _nearest,
    "kmeans/cosine": lambda: _call(
        "flash_kmeans.assign_euclid_triton:cosine_assign_triton", _cuda(2, 900, 64), _cuda(2, 40, 64)
    ),
    "kmeans/update": lambda: _clusters("centroid_update_triton:triton_centroid_update_cosine"),
    "kmeans/sorted": lambda: _clusters("centroid_update_triton:triton_centroid_update_sorted_cosine"),
    "entmax": lambda: _call("adasplash.triton_entmax:triton_entmax", _cuda(96, 700)),
    "cce": lambda: _call("cut_cross_entropy:linear_cross_entropy", _half(128, 64), _half(512, 64), _whole(512, 128)),
    "xformers/select": _selected_rows,
    "torchao/fp8": lambda: _call(
        "torchao.prototype.blockwise_fp8_training.kernels:triton_fp8_blockwise_act_quant_lhs", _cuda(256, 512)
    ),
    "sinkhorn": lambda: _call("flash_sinkhorn.c_transform:c_transform_fwd", _cuda(300, 16), _cuda(200, 16), _cuda(200)),
    "mlstm": _mlstm,
    "liger/dyt": lambda: _apply(
        "liger_kernel.ops.dyt:LigerDyTFunction", _real(96, 700), _real(1), _real(700), _real(700)
    ),
    "liger/sparsemax": lambda: _apply("liger_kernel.ops.sparsemax:LigerSparsemaxFunction", _real(96, 700), -1),
    "liger/softmax": lambda: _apply("liger_kernel.ops.softmax:LigerSoftmaxFunction", _real(96, 700)),
    "liger/tvd": lambda: _apply("liger_kernel.ops.tvd:LigerTVDLossFunction", _real(96, 700), _real(96, 700)),
    "liger/relu": lambda: _apply("liger_kernel.ops.relu_squared:LigerReLUSquaredFunction", _real(96, 700)),
    "liger/poly": lambda: _apply(
        "liger_kernel.ops.poly_norm:LigerPolyNormFunction", _real(96, 700), _real(3), _real(1), 1e-6
    ),
    "liger/llama4": lambda: _apply(
        "liger_kernel.ops.llama4_rope:LigerLlama4RopeFunction",
        *(_real(2, 40, 8, 64), _real(2, 40, 4, 64), _real(40, 32, 2)),
    ),
    "liger/fused_add": lambda: _apply(
        "liger_kernel.ops.fused_add_rms_norm:LigerFusedAddRMSNormFunction",
        *(_real(96, 700), _real(96, 700), _real(700), 1e-6),
    ),
    "liger/group_norm": lambda: _apply(
        "liger_kernel.ops.group_norm:LigerGroupNormFunction", _real(6, 32, 50), _real(32), _real(32), 32, 8, 1e-6
    ),
    "liger/jsd": lambda: _apply(
        "liger_kernel.ops.jsd:LigerJSDFunction", _real(96, 700).log_softmax(-1), _real(96, 700).log_softmax(-1)
    ),
    "liger/kl_div": lambda: _apply(
        "liger_kernel.ops.kl_div:LigerKLDivLossFunction", _real(96, 700).log_softmax(-1), _real(96, 700).softmax(-1)
    ),
    "liger/geglu": lambda: _apply("liger_kernel.ops.geglu:LigerGELUMulFunction", _real(96, 700), _real(96, 700)),
    "flaggems/mm": lambda: _call("flag_gems.ops:mm", _real(256, 384), _real(384, 512)),
    "flaggems/argmax": lambda: _call("flag_gems.ops:argmax", _real(300, 700), dim=1),
    "flaggems/add": lambda: _call("flag_gems.ops:add", _real(300, 700), _real(300, 700)),
    "flaggems/rotary": _gems_rotary,
    "flaggems/embedding": lambda: _call("flag_gems.ops:embedding", _real(1000, 128), _whole(1000, 48, device="npu")),
    "flaggems/bmm": lambda: _call("flag_gems.ops:bmm", _real(3, 128, 160), _real(3, 160, 224)),
    "flaggems/group_norm": lambda: _call(
        "flag_gems.ops:group_norm", _real(6, 32, 10, 20), _real(32), _real(32), 6, 32, 200, 8
    ),
    "flaggems/mv": lambda: _call("flag_gems.ops:mv", _real(300, 700), _real(700)),
    "flaggems/vector_norm": lambda: _call("flag_gems.ops:vector_norm", _real(300, 700), 2, [1]),
    "flaggems/prod": lambda: _call("flag_gems.ops:prod_dim", _real(300, 700), 1),
    "flaggems/gather": lambda: _call("flag_gems.ops:gather", _real(300, 700), 1, _whole(700, 300, 200, device="npu")),
    "bm3d": lambda: _call("bm3d_triton:denoise", _cuda(1, 1, 40, 48).sigmoid(), 0.01),
    "colortransfer": lambda: _call(
        "colortransfer_triton:adain", _cuda(1, 3, 64, 96).sigmoid(), _cuda(1, 3, 48, 80).sigmoid()
    ),
    "crossentropy": lambda: _call(
        "crossentropy_triton.crossentropy_tl:cross_entropy_forward", _cuda(48, 1000), _whole(1000, 48)
    ),
    "multiarch/swiglu": lambda: _call(
        "kernels.fused_rmsnorm_swiglu:fused_rmsnorm_swiglu_triton", _half(64, 512), _half(64, 512), _half(512)
    ),
    "multiarch/int8": lambda: _call(
        "kernels.quantized_matmul:matmul_int8_triton",
        _half(128, 256),
        _whole(256, 256, 192).byte(),
        _half(192),
        _half(192),
    ),
    "fla/gla": lambda: _call("fla.ops.gla:fused_recurrent_gla", _heads(), _heads(), _heads(), _decays()),
    "fla/rotary": lambda: _call("fla.modules.rotary:rotary_embedding", _heads(), _real(128, 32), _real(128, 32)),
    "fla/retention": lambda: _call("fla.ops.retention:chunk_retention", _heads(), _heads(), _heads()),
    "fla/hgrn": lambda: _call("fla.ops.hgrn:fused_recurrent_hgrn", _real(2, 128, 96), _real(2, 128, 96)),
    "fla/hgrn_chunk": lambda: _call("fla.ops.hgrn:chunk_hgrn", _real(2, 128, 96), _real(2, 128, 96)),
    "fla/delta": lambda: _call(
        "fla.ops.delta_rule:fused_recurrent_delta_rule", _heads(), _heads(), _heads(), _shares()
    ),
    "fla/gated_delta": lambda: _call(
        "fla.ops.gated_delta_rule:fused_recurrent_gated_delta_rule",
        *(_heads(), _heads(), _heads(), _shares().log()),
        beta=_shares(),
    ),
    "fla/attention": lambda: _call("fla.ops.attn:parallel_attn", _heads(), _heads(), _heads()),
    "fla/based": lambda: _call("fla.ops.based:parallel_based", _real(2, 128, 4, 16), _real(2, 128, 4, 16), _heads()),
    "fla/rwkv4": _rwkv4,
    "fla/rwkv7": _rwkv7,
    "fla/conv": lambda: _call(
        "fla.modules.causal_conv1d:causal_conv1d", _real(2, 128, 96), _real(96, 4), activation="silu"
    ),
    "fla/shift": lambda: _call("fla.modules.token_shift:token_shift", _real(2, 128, 96)),
    "fla/rms": lambda: _module("fla.modules:RMSNorm", 96, (2, 128, 96)),
    "fla/gated_rms": lambda: _module("fla.modules:FusedRMSNormGated", 96, (2, 128, 96), (2, 128, 96)),
    "fla/pooling": lambda: _call("fla.ops.utils.pooling:mean_pooling", _heads(), 32),
    "fla/softmax": lambda: _call("fla.ops.utils.softmax:softmax_fwd", _real(4, 128, 96)),
    "fla/logsumexp": lambda: _call("fla.ops.utils.logsumexp:logsumexp_fwd", _real(96, 700)),
    "fla/inverse": lambda: _call("fla.ops.utils.solve_tril:solve_tril", _heads()),
    "fla/kl": lambda: _call(
        "fla.modules.fused_kl_div:fused_kl_div_loss", _real(64, 96), _real(64, 96), _real(300, 96), _real(300, 96)
    ),
    "fla/logsigmoid": lambda: _call("fla.modules.activations:logsigmoid", _real(2, 128, 96)),
    "fla/sigmoid": lambda: _call("fla.modules.activations:sigmoid", _real(2, 128, 96)),
    "fla/matmul": lambda: _call("fla.ops.utils.matmul:matmul", _real(96, 160), _real(160, 224)),
    "fla/l2norm": lambda: _call("fla.modules.norm.l2norm:l2norm", _real(2, 128, 96)),
    "fla/cumsum": lambda: _call("fla.ops.utils.cumsum:chunk_global_cumsum_scalar", _shares()),
    "fla/simple_gla": lambda: _call(
        "fla.ops.simple_gla:chunk_simple_gla", _heads(), _heads(), _heads(), g=_shares().log()
    ),
    "fla/pack": lambda: _call("fla.ops.utils.pack:pack_sequence", _real(2, 128, 96), _numbers((0, 100, 220), "int64")),
    "liger/swiglu": lambda: _backward(f"{_LIGER}.swiglu:LigerSiLUMulFunction", _real(96, 700), _real(96, 700)),
    "liger/rms": lambda: _backward(f"{_LIGER}.rms_norm:LigerRMSNormFunction", _real(96, 700), _real(700), 1e-6),
    "liger/layer_norm": lambda: _backward(
        f"{_LIGER}.layer_norm:LigerLayerNormFunction", _real(96, 700), _real(700), _real(700), 1e-6
    ),
    "liger/cross_entropy": _loss_of_liger,
    "liger/rope": lambda: _apply(
        f"{_LIGER}.rope:LigerRopeFunction",
        *(_real(2, 8, 48, 64), _real(2, 4, 48, 64), _real(1, 48, 64), _real(1, 48, 64)),
    ),
    "liger/mask": lambda: _call(f"{_LIGER}.multi_token_attention:_mask_inf_forward", _real(2, 4, 96, 96)),
    "liger/attn_res": lambda: _apply(
        f"{_LIGER}.attn_res:LigerAttnResFunction", _real(6, 2, 48, 160), _real(160), _real(160), 1e-6
    ),
    "liger/embedding": lambda: _backward(
        f"{_LIGER}.experimental.embedding:LigerEmbeddingFunction", _real(500, 96), _whole(500, 4, 40, device="npu")
    ),
    "liger/selective": lambda: _call(
        f"{_LIGER}.grpo_loss:fused_selective_log_softmax", _real(3, 17, 700), _whole(700, 3, 16, device="npu")
    ),
    "liger/grpo": _grpo_of_liger,
    "liger/mhc": lambda: _call(f"{_LIGER}.mhc:mhc_mm_norm_fwd", _half(96, 512), _half(512, 24), 1e-6),
    "liger/geglu_back": lambda: _backward(f"{_LIGER}.geglu:LigerGELUMulFunction", _real(96, 700), _real(96, 700)),
    "liger/modulated": lambda: _apply(
        f"{_LIGER}.modulated_rms_norm:LigerModulatedRMSNormFunction",
        *(_real(4, 24, 700), _real(700), _real(4, 700), _real(4, 700), 1e-6),
    ),
    "flaggems/cumsum": lambda: _call(f"{_GEMS}.cumsum:cumsum", _real(300, 700), 1),
    "flaggems/softmax": lambda: _call(f"{_GEMS}.softmax:softmax", _real(300, 700), 1),
    "flaggems/layer_norm": lambda: _call(
        f"{_GEMS}.layernorm:layer_norm", _real(300, 700), [700], _real(700), _real(700)
    ),
    "flaggems/topk": lambda: _call(f"{_GEMS}.topk:topk", _real(30, 700), 5),
    "flaggems/argmin": lambda: _call(f"{_GEMS}.argmin:argmin", _real(300, 700), 1),
    "flaggems/var_mean": lambda: _call(f"{_GEMS}.var_mean:var_mean", _real(300, 700), [1]),
    "flaggems/nonzero": lambda: _call(f"{_GEMS}.nonzero:nonzero", _real(300, 70)),
    "flaggems/index_select": lambda: _call(
        f"{_GEMS}.index_select:index_select", _real(300, 70), 0, _whole(300, 90, device="npu")
    ),
    "flaggems/triu": lambda: _call(f"{_GEMS}.triu:triu", _real(300, 500)),
    "flaggems/conv2d": lambda: _call(f"{_GEMS}.conv2d:conv2d", _real(2, 16, 20, 24), _real(32, 16, 3, 3), None, 1, 1),
    "flaggems/nll": lambda: _call(f"{_GEMS}.nllloss:nll_loss_forward", _real(300, 70), _whole(70, 300, device="npu")),
    "flaggems/upsample": lambda: _call(f"{_GEMS}.upsample_nearest2d:upsample_nearest2d", _real(2, 4, 20, 24), [40, 48]),
    "flaggems/scaled_softmax": lambda: _call(
        f"{_GEMS}.scaled_softmax:scaled_softmax_forward", _half(2, 4, 48, 96), 0.5
    ),
    "flaggems/weight_norm": lambda: _call(f"{_GEMS}.weightnorm:weight_norm_interface", _real(96, 700), _real(96, 1), 0),
    "flaggems/avg_pool": lambda: _call(f"{_GEMS}.avg_pool2d:avg_pool2d", _real(2, 8, 20, 24), 2),
    "flaggems/max_pool": lambda: _call(
        f"{_GEMS}.max_pool2d_with_indices:max_pool2d_with_indices", _real(2, 8, 20, 24), 2
    ),
    "flaggems/addmm": lambda: _call(f"{_GEMS}.addmm:addmm", _real(224), _real(96, 160), _real(160, 224)),
    "flaggems/mse": lambda: _call(f"{_GEMS}.mse_loss:mse_loss", _real(300, 70), _real(300, 70)),
    "flaggems/count": lambda: _call(f"{_GEMS}.count_nonzero:count_nonzero", _real(300, 70), 1),
    "flaggems/log_softmax": lambda: _call(f"{_GEMS}.log_softmax:log_softmax", _real(300, 700), 1),
    "flaggems/amax": lambda: _call(f"{_GEMS}.amax:amax", _real(300, 700), [1]),
    "flaggems/mean": lambda: _call(f"{_GEMS}.mean:mean_dim", _real(300, 700), [1]),
    "flaggems/batch_norm": lambda: _call(
        f"{_GEMS}.batch_norm:batch_norm", _real(16, 8, 40), *(_real(8) for _ in range(4)), True
    ),
    "conch/bev": _views_of_conch,
    "moe/topk": lambda: _call("moe_ops.fused_topk_softmax_ops:fused_topk_softmax", _cuda(300, 64), 4),
    "moe/gemm": lambda: _call(
        "moe_ops.grouped_gemm_ops:grouped_gemm",
        *(_half(256, 128), _half(4, 192, 128), _numbers((0, 64, 100, 200, 256))),
    ),
    "lanczos": lambda: _call("lanczos_triton:resize", _cuda(1, 3, 40, 48).sigmoid(), (60, 72)),
    "maxsim": lambda: _call("late_interaction_kernels.forward:maxsim_forward", _half(4, 32, 128), _half(6, 90, 128)),
    "chronicals/rms": lambda: _call(f"{_FUSED}:rmsnorm_forward", _cuda(96, 768), _cuda(768), 1e-6),
    "chronicals/geglu": lambda: _call(f"{_FUSED}:geglu_forward", _cuda(96, 768), _cuda(96, 768)),
    "chronicals/loss": lambda: _call(f"{_FUSED}:fused_cross_entropy_triton", _cuda(2, 48, 1000), _whole(1000, 2, 48)),
    "grouped_mm": _products_of_three,
    "mase/minifloat": _small_floats_of_mase,
    "mingru/log": lambda: _call(
        "mingru.triton_scans:parallel_scan_log_fwd", _real(2, 64, 96).sigmoid().log(), _real(2, 65, 96)
    ),
    "fla/linear_attn": lambda: _call("fla.ops.linear_attn:chunk_linear_attn", _heads(), _heads(), _heads()),
    "fla/rebased": lambda: _call(
        "fla.ops.rebased:parallel_rebased", _real(2, 128, 4, 16), _real(2, 128, 4, 16), _heads()
    ),
    "fla/kda": lambda: _call("fla.ops.kda:fused_recurrent_kda", _heads(), _heads(), _heads(), _decays(), _shares()),
    "fla/rwkv6": lambda: _call(
        "fla.ops.rwkv6:fused_recurrent_rwkv6", _heads(), _heads(), _heads(), _decays(), _real(4, 64)
    ),
    "fla/stick": lambda: _call(
        "fla.ops.stickbreaking_attn:parallel_stickbreaking_attn", _heads(), _heads(), _heads(), 0.125
    ),
    "fla/lightning": lambda: _call(
        "fla.ops.lightning_attn:fused_recurrent_lightning_attn", _heads(), _heads(), _heads(), 1, 12
    ),
    "fla/comba": _comba,
    "fla/attnres": lambda: _call(
        "fla.ops.attnres:fused_attnres", _real(96), [_real(2, 64, 96) for _ in range(4)], _real(96)
    ),
    "fla/dplr": _dplr,
}
"""Calls by `library/name`."""


if __name__ == "__main__":
    CALLS[sys.argv[1]]()
