"""The shapes that `tilewise bench kernels` times: small, as in the seed documents, and over 256 MB of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["SHAPES", "shapes"]

_MODEL = ({"M": 256, "N": 4096}, {"M": 4096, "N": 4096}, {"M": 16384, "N": 8192})
"""Tokens and hidden size of a layer of a language model."""

_VECTOR = ({"N": 2**20}, {"N": 2**25}, {"N": 2**27})
_MATRIX = ({"M": 1024, "N": 1024}, {"M": 4096, "N": 4096}, {"M": 16384, "N": 8192})
_ROWS = ({"M": 1000, "N": 8192}, {"M": 256, "N": 65536}, {"M": 16384, "N": 8192})

SHAPES: Mapping[str, Sequence[Mapping[str, int]]] = {
    "block_fp8_gemm": tuple({"M": m, "N": 7168, "K": 4096} for m in (128, 4096, 8192)),
    "decode_attention": (
        {"B": 1, "H": 64, "HKV": 8, "PAGES": 16384, "PAGE": 16, "D": 128},
        {"B": 8, "H": 32, "HKV": 8, "PAGES": 2048, "PAGE": 16, "D": 128},
        {"B": 64, "H": 32, "HKV": 8, "PAGES": 256, "PAGE": 16, "D": 128},
    ),
    "flash_attention": tuple(
        {"B": 4, "H": 32, "HKV": 8, "Q": size, "K": size, "D": 128} for size in (4096, 8192, 16384)
    ),
    "fused_moe": tuple({"M": m, "E": 64, "N": 1408, "K": 2048, "TOPK": 6} for m in (16, 1024, 16384)),
    "gemm": ({"M": 16, "N": 8192, "K": 8192}, {"M": 4096, "N": 4096, "K": 4096}, {"M": 8192, "N": 8192, "K": 8192}),
    "grouped_gemm": tuple({"M": m, "N": 4096, "K": 7168, "G": 64} for m in (512, 8192, 65536)),
    "row_reduce": ({"M": 1000, "N": 8192}, {"M": 16384, "N": 8192}, {"M": 131072, "N": 1024}),
    "vector_add": _VECTOR,
    "gelu_tanh": _VECTOR,
    "gelu_rational": _VECTOR,
    "gelu_erf": _VECTOR,
    "relu_bias_scale": _MATRIX,
    "layer_norm_apply": _MATRIX,
    "softmax": _MATRIX,
    "log_softmax": _MATRIX,
    "layer_norm": _MATRIX,
    "layer_norm_backward": _MATRIX,
    "batch_norm": ({"N": 16, "C": 64, "HW": 1024}, {"N": 32, "C": 128, "HW": 3136}, {"N": 64, "C": 512, "HW": 3136}),
    "sum_all": ({"N": 2**20}, {"N": 2**25}, {"N": 2**28}),
    "prod_all": ({"N": 2**20}, {"N": 2**25}, {"N": 2**28}),
    "max_all": ({"N": 2**20}, {"N": 2**25}, {"N": 2**28}),
    "sum_rows": _ROWS,
    "prod_rows": _ROWS,
    "max_rows": _ROWS,
    "rms_norm": _MODEL,
    "add_rms_norm": _MODEL,
    "silu_and_mul": ({"M": 256, "N": 14336}, {"M": 4096, "N": 14336}, {"M": 16384, "N": 14336}),
    "rotary": tuple({"M": m, "H": 32, "HALF": 64} for m in (256, 4096, 32768)),
    "cross_entropy": ({"M": 256, "N": 32000}, {"M": 4096, "N": 32000}, {"M": 8192, "N": 128256}),
    "per_token_quant": _MODEL,
    "per_block_quant": _MODEL,
    "topk_gating": (
        {"M": 4096, "E": 8, "TOPK": 2},
        {"M": 65536, "E": 128, "TOPK": 8},
        {"M": 1048576, "E": 128, "TOPK": 8},
    ),
}


def shapes(kernel: str) -> Sequence[Mapping[str, int]]:
    """Return the kernel's shapes, or none for a kernel without default shapes."""
    return SHAPES.get(kernel, ())
