"""The kernels that come with tilewise: the location of each spec, by kernel name."""

from __future__ import annotations

__all__ = ["ANY_VALUE", "SPECS"]

SPECS = {
    "block_fp8_gemm": "tilewise.kernels.matrix.block_fp8_gemm:SPEC",
    "decode_attention": "tilewise.kernels.attention.decode:SPEC",
    "flash_attention": "tilewise.kernels.attention.flash:SPEC",
    "fused_moe": "tilewise.kernels.matrix.fused_moe:SPEC",
    "gemm": "tilewise.kernels.matrix.gemm:SPEC",
    "grouped_gemm": "tilewise.kernels.matrix.grouped_gemm:SPEC",
    "log_softmax": "tilewise.kernels.vector.softmax:LOG_SOFTMAX",
    "softmax": "tilewise.kernels.vector.softmax:SOFTMAX",
    "row_reduce": "tilewise.kernels.vector.row_reduce:SPEC",
    "max_all": "tilewise.kernels.vector.reduce:MAX_ALL",
    "max_rows": "tilewise.kernels.vector.reduce:MAX_ROWS",
    "prod_all": "tilewise.kernels.vector.reduce:PROD_ALL",
    "prod_rows": "tilewise.kernels.vector.reduce:PROD_ROWS",
    "sum_all": "tilewise.kernels.vector.reduce:SUM_ALL",
    "sum_rows": "tilewise.kernels.vector.reduce:SUM_ROWS",
    "gelu_erf": "tilewise.kernels.vector.elementwise:GELU_ERF",
    "gelu_rational": "tilewise.kernels.vector.elementwise:GELU_RATIONAL",
    "gelu_tanh": "tilewise.kernels.vector.elementwise:GELU_TANH",
    "layer_norm_apply": "tilewise.kernels.vector.elementwise:LAYER_NORM_APPLY",
    "relu_bias_scale": "tilewise.kernels.vector.elementwise:RELU_BIAS_SCALE",
    "vector_add": "tilewise.kernels.vector.elementwise:VECTOR_ADD",
    "batch_norm": "tilewise.kernels.vector.batch_norm:SPEC",
    "layer_norm": "tilewise.kernels.vector.layer_norm:FORWARD",
    "layer_norm_backward": "tilewise.kernels.vector.layer_norm:BACKWARD",
    "add_rms_norm": "tilewise.kernels.vector.rms_norm:ADD_RMS_NORM",
    "rms_norm": "tilewise.kernels.vector.rms_norm:RMS_NORM",
    "rotary": "tilewise.kernels.vector.rotary:SPEC",
    "silu_and_mul": "tilewise.kernels.vector.silu_and_mul:SPEC",
    "per_block_quant": "tilewise.kernels.vector.quantize:PER_BLOCK",
    "per_token_quant": "tilewise.kernels.vector.quantize:PER_TOKEN",
    "topk_gating": "tilewise.kernels.vector.topk_gating:SPEC",
    "cross_entropy": "tilewise.kernels.vector.cross_entropy:SPEC",
}
"""`package.module:ATTRIBUTE` of each spec. A module is imported when one of its kernels is first loaded."""

ANY_VALUE = {"max_all": ("x_ptr",), "max_rows": ("x_ptr",)}
"""`KernelSpec.any_value` of specs that were written before it: text beside a spec's contract would change its source
hash, and with it the identity of all results that are stored for it."""
