"""Kernels of other people's libraries, tuned as their users would: by `tilewise tune` on a program that calls them.

Each is a call of [calls.py](calls.py) and a kernel that it launches, or one of Triton's tutorials, which no package
holds: a folder is given that does. What is not installed is told as such, and is no outcome.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header

__all__ = ["CASES", "Case", "bench_programs", "outcome", "summary"]

_PROGRAM = Path(__file__).with_name("calls.py")
_DEVICE = "model:Ascend910B4"
_TRIALS, _SECONDS = 3, 180
"""Trials of a tuning, and seconds after which it is ended."""


@dataclass(frozen=True, slots=True)
class Case:
    """A call by its name, a kernel that it launches, and the package on PyPI with its module."""

    call: str
    kernel: str
    package: str
    module: str


_PACKAGES = {
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "bm3d": ("bm3d-triton", "bm3d_triton"),
    "cce": ("cut-cross-entropy", "cut_cross_entropy"),
    "chronicals": ("chronicals", "chronicals"),
    "colortransfer": ("colortransfer-triton", "colortransfer_triton"),
    "conch": ("conch-triton-kernels", "conch"),
    "crossentropy": ("crossentropy-triton", "crossentropy_triton"),
    "entmax": ("adasplash", "adasplash"),
    "fla": ("fla-core", "fla"),
    "flaggems": ("flag-gems", "flag_gems"),
    "gemlite": ("gemlite", "gemlite"),
    "grouped_mm": ("grouped-mm-bf16", "grouped_mm_bf16"),
    "kmeans": ("flash-kmeans", "flash_kmeans"),
    "lanczos": ("lanczos-triton", "lanczos_triton"),
    "liger": ("liger-kernel", "liger_kernel"),
    "lightllm": ("lightllm", "lightllm"),
    "mase": ("mase-triton", "mase_triton"),
    "maxsim": ("late-interaction-kernels", "late_interaction_kernels"),
    "mingru": ("mingru-scans", "mingru"),
    "mlstm": ("mlstm-kernels", "mlstm_kernels"),
    "moe": ("moe-ops", "moe_ops"),
    "multiarch": ("cuda-triton-multiarch", "kernels"),
    "sage": ("sageattention", "sageattention"),
    "sinkhorn": ("flash-sinkhorn", "flash_sinkhorn"),
    "torchao": ("torchao", "torchao"),
    "tutorials": ("triton's tutorials", ""),
    "xformers": ("xformers", "xformers"),
}
"""The package and its module for the first word of a call's name."""

_KERNELS = """
tutorials/01-vector-add add_kernel
tutorials/02-fused-softmax softmax_kernel
tutorials/03-matrix-multiplication matmul_kernel
tutorials/04-low-memory-dropout _dropout _seeded_dropout
tutorials/05-layer-norm _layer_norm_fwd_fused _layer_norm_bwd_dx_fused _layer_norm_bwd_dwdb
tutorials/06-fused-attention _attn_fwd _attn_bwd_preprocess
tutorials/07-extern-functions asin_kernel
tutorials/08-grouped-gemm grouped_matmul_kernel
tutorials/09-persistent-matmul matmul_kernel_persistent
sage/causal quant_per_block_int8_kernel _attn_fwd
kmeans/euclid _euclid_assign_kernel_split_d
kmeans/cosine _cosine_assign_kernel_split_d
kmeans/update _centroid_update_kernel
kmeans/sorted _centroid_update_chunk_kernel
conch/silu _silu_and_mul_kernel
conch/rms _rms_norm_kernel
conch/gelu _gelu_tanh_and_mul_kernel
conch/gemma _gemma_rms_norm_inplace_kernel
conch/rotary _rotary_embedding_kernel
conch/int8 _static_scaled_int8_quant_kernel
conch/nms _create_iou_mask_kernel _nms_suppression_kernel
conch/cache _reshape_and_cache_kernel
conch/copy _copy_blocks_kernel
conch/pages _paged_attention_compute_splits_kernel _paged_attention_reduce_splits_kernel
lightllm/rms _rms_norm_fwd_fused
lightllm/rotary _rotary_kernel
lightllm/silu _silu_and_mul_kernel
lightllm/gelu _gelu_and_mul_kernel
lightllm/context _fwd_kernel_no_prompt_cache
lightllm/scores _fwd_kernel_token_att1
lightllm/splits _fwd_kernel_flash_decode_stage2
liger/dyt _dyt_fwd_kernel
liger/sparsemax _sparsemax_forward_kernel
liger/softmax _softmax_single_block_forward_kernel
liger/tvd _tv_distance_kernel
liger/relu _relu_squared_forward_kernel
liger/poly _poly_norm_forward_kernel
liger/llama4 _llama4_rope_kernel
liger/fused_add _fused_add_rms_norm_forward_kernel
liger/group_norm _group_norm_forward_kernel
liger/jsd _jsd_kernel
liger/kl_div _kldiv_kernel_forward
liger/geglu _geglu_tanh_forward_kernel
entmax _fwd_entmax
cce _cce_lse_forward_kernel _indexed_neg_dot_forward_kernel
xformers/select index_select_cat_fwd_kernel
torchao/fp8 triton_fp8_blockwise_act_quant_lhs_kernel
sinkhorn _c_transform_kernel_impl
mlstm mlstm_chunkwise__recurrent_fw_C_kernel
flaggems/mm mm_kernel_general
flaggems/argmax argmax_kernel_inner
flaggems/add add_func_kernel_rank_1
flaggems/rotary apply_rotary_pos_emb_kernel
flaggems/embedding embedding_kernel
flaggems/bmm bmm_kernel
flaggems/group_norm group_norm_kernel
flaggems/mv mv_kernel
flaggems/vector_norm l2_norm_kernel
flaggems/prod prod_kernel
flaggems/gather _gather_flaggems_jit_function
bitsandbytes/quantize8 quantize_8bit_blockwise_kernel
bitsandbytes/dequantize8 dequant_8bit_kernel
bitsandbytes/quantize4 quantize_nf4_blockwise_kernel
bitsandbytes/dequantize4 dequant_nf4_kernel
gemlite/int8 gemm_INT_kernel
fla/rotary rotary_embedding_kernel
fla/retention chunk_o_fwd_kernel
bm3d _match _normalize
colortransfer moments_part
crossentropy cross_entropy_kernel
multiarch/swiglu fused_rmsnorm_swiglu_kernel
multiarch/int8 matmul_int8_kernel
fla/gla fused_recurrent_fwd_kernel
fla/hgrn fused_recurrent_hgrn_fwd_kernel
fla/hgrn_chunk chunk_hgrn_fwd_kernel_o
fla/delta fused_recurrent_delta_rule_fwd_kernel
fla/gated_delta fused_recurrent_gated_delta_rule_fwd_kernel
fla/attention parallel_attn_fwd_kernel
fla/based parallel_based_fwd_kernel
fla/rwkv4 fused_recurrent_rwkv4_forward_kernel
fla/rwkv7 fused_addcmul_fwd_kernel
fla/conv causal_conv1d_fwd_coregrid_kernel
fla/shift token_shift_fwd_kernel_short
fla/rms layer_norm_fwd_kernel1
fla/gated_rms layer_norm_gated_fwd_kernel
fla/pooling mean_pooling_fwd_kernel
fla/softmax softmax_fwd_kernel
fla/logsumexp logsumexp_fwd_kernel
fla/inverse merge_16x16_to_64x64_inverse_kernel_npu
fla/kl kl_div_kernel
fla/logsigmoid logsigmoid_fwd_kernel
fla/sigmoid sigmoid_fwd_kernel
fla/matmul matmul_kernel
fla/pack packunpack_sequence_kernel
fla/l2norm l2norm_fwd_kernel
fla/cumsum chunk_global_cumsum_scalar_kernel
fla/simple_gla chunk_h_fwd_kernel chunk_o_fwd_kernel
liger/swiglu _swiglu_forward_kernel _swiglu_backward_kernel
liger/rms _rms_norm_forward_kernel _rms_norm_backward_kernel
liger/layer_norm _layer_norm_forward_kernel _layer_norm_backward_kernel
liger/cross_entropy liger_cross_entropy_kernel
liger/rope _triton_rope
liger/mask _mask_fwd_kernel
liger/attn_res _attn_res_fwd_kernel
liger/embedding embedding_forward_kernel embedding_backward_kernel
liger/selective _selective_log_softmax_kernel
flaggems/cumsum reduce_then_scan_root_scan_kernel_row
flaggems/softmax softmax_kernel_inner
flaggems/layer_norm layer_norm_persistent_kernel
flaggems/topk topk_stage1_kernel topk_stage2_kernel
flaggems/argmin argmin_kernel_opt_k1
flaggems/var_mean var_mean_welford_kernel
flaggems/nonzero nonzero_kernel
flaggems/index_select index_select_kernel
flaggems/triu triu_kernel
flaggems/conv2d conv2d_forward_kernel
flaggems/nll nll_loss_forward_kernel
flaggems/upsample upsample_nearest2d_kernel
flaggems/scaled_softmax scaled_softmax_forward_kernel
conch/bev _bev_pool_kernel
fla/linear_attn chunk_h_fwd_kernel
fla/rebased parallel_rebased_fwd_kernel
fla/kda fused_recurrent_kda_fwd_kernel_npu
fla/rwkv6 fused_recurrent_rwkv6_fwd_kernel
fla/stick parallel_stickbreaking_attn_fwd_kernel
liger/grpo _grpo_loss_fwd_kernel
liger/mhc _mhc_mm_norm_fwd_kernel
liger/geglu_back _geglu_tanh_backward_kernel
liger/modulated _modulated_rms_norm_forward_kernel
flaggems/weight_norm weight_norm_kernel_first
flaggems/avg_pool avg_pool2d_forward_kernel
flaggems/max_pool max_pool2d_forward_kernel
flaggems/addmm addmm_kernel
flaggems/mse kernel_1 kernel_2
flaggems/count count_nonzero_kernel
flaggems/log_softmax log_softmax_kernel
flaggems/amax amax_kernel
flaggems/mean mean_dim_kernel_inner
flaggems/batch_norm batch_norm_forward_kernel
moe/topk _fused_topk_softmax_fwd_kernel_2d
moe/gemm gmm_forward_kernel
lanczos weights horizontal vertical
maxsim _maxsim_fwd_kernel
chronicals/rms _rmsnorm_forward_kernel
chronicals/geglu _geglu_forward_kernel
chronicals/loss fused_cross_entropy_kernel
grouped_mm _grouped_mm_3d3d_kernel
mase/minifloat _extract_minifloat_component_kernel
mingru/log _parallel_scan_log_fwd_kernel
fla/lightning fused_recurrent_fwd_kernel
fla/comba fused_recurrent_comba_fwd_kernel
fla/attnres attnres_fwd_kernel
fla/dplr fused_recurrent_dplr_delta_rule_fwd_kernel
"""
"""Calls, each with the kernels of it that are tuned."""


def _cases(text: str) -> Iterator[Case]:
    for line in filter(None, text.splitlines()):
        call, *kernels = line.split()
        for kernel in kernels:
            yield Case(call, kernel, *_PACKAGES[call.partition("/")[0]])


CASES = tuple(_cases(_KERNELS))


def bench_programs(
    names: Sequence[str], *, progress: Callable[[str], None], tutorials: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Tune the kernels of the calls whose names begin with one of `names`, in their order, or all, one after the other.

    Yields the results so far after each, as a whole run takes an hour. `tutorials` is the folder of Triton's.
    """
    chosen = [case for name in names for case in CASES if case.call.startswith(name)] if names else CASES
    programs = {case: _program(case, tutorials) for case in chosen}
    ready = {case: program for case, program in programs.items() if program is not None}
    command = " ".join(["tilewise bench programs", *(["--tutorials FOLDER"] if tutorials else []), *names])
    body = {**header(command, "modelled", _DEVICE.partition(":")[2]), "trials": _TRIALS, "time_limit_s": _SECONDS}
    body["not_installed"] = sorted({case.package for case in programs.keys() - ready.keys()})
    rows: list[dict[str, Any]] = []
    for number, (case, program) in enumerate(ready.items(), 1):
        progress(f"{case.kernel}, {number} of {len(ready)}")
        rows.append(_row(case, *program))
        yield {**body, "rows": rows, "not_reached": len(ready) - number, "summary": summary(rows)}
    if not rows:
        yield {**body, "rows": rows, "not_reached": 0, "summary": summary(rows)}


def _program(case: Case, tutorials: Path | None) -> tuple[Path, list[str]] | None:
    """Return the program that launches a kernel with its arguments; None if it is not installed."""
    if case.module:
        return (_PROGRAM, [case.call]) if importlib.util.find_spec(case.module) is not None else None
    file = tutorials / f"{case.call.partition('/')[2]}.py" if tutorials else None
    return (file, []) if file and file.is_file() else None


def _row(case: Case, program: Path, arguments: Sequence[str]) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        known = {"TILEWISE_DATA": folder, "TILEWISE_DB": f"sqlite:///{folder}/tiles.db"}
        words = ["tune", f"{program}:{case.kernel}", "--program", "--device", _DEVICE, "--trials", str(_TRIALS)]
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "tilewise.cli", *words, "--json", "--", *arguments],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env={**os.environ, **known},
                check=False,
            )
        except subprocess.TimeoutExpired:
            found, message = "ended", f"not done in {_SECONDS} s"
        else:
            found, message = outcome(ended.returncode, ended.stderr)
    seconds = round(time.monotonic() - started, 1)
    row = {"call": case.call, "kernel": case.kernel, "package": case.package, "version": _version(case.package)}
    return {**row, "outcome": found, "seconds": seconds, "message": message}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path, or tutorials
        return "unknown"


def outcome(code: int, errors: str) -> tuple[str, str]:
    """Return what became of a tuning, and the line of the refusal, empty if there is none.

    `tuned`; `captured` if no spec was inferred; `inferred` if no config ran correctly; `not captured`.
    """
    lines = [line.removeprefix("tilewise: ") for line in errors.splitlines() if line.startswith("tilewise: ")]
    message = re.sub(r"/\S*/", "", lines[-1]) if lines else ""
    if code == 0:
        return "tuned", ""
    if any(line.startswith("the spec of ") for line in lines):
        return "inferred", message
    return "not captured" if "launches no" in message or "ended before" in message else "captured", message


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the number of kernels of each outcome."""
    found = [row["outcome"] for row in rows]
    return {"kernels": len(found), **{name: found.count(name) for name in sorted(set(found))}}
