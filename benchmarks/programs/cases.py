"""Kernels of other people's libraries, each with the call that launches it and the package that has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A call by its name, a kernel that it launches, the package on PyPI with its module, and the program's file."""

    call: str
    kernel: str
    package: str
    module: str
    program: str = "calls.py"


_PACKAGES = {
    "augment": ("triton-augment", "triton_augment"),
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "bm3d": ("bm3d-triton", "bm3d_triton"),
    "cce": ("cut-cross-entropy", "cut_cross_entropy"),
    "chalk": ("freesolo-chalk", "chalk"),
    "chronicals": ("chronicals", "chronicals"),
    "colortransfer": ("colortransfer-triton", "colortransfer_triton"),
    "conch": ("conch-triton-kernels", "conch"),
    "crossentropy": ("crossentropy-triton", "crossentropy_triton"),
    "entmax": ("adasplash", "adasplash"),
    "fla": ("fla-core", "fla"),
    "flaggems": ("flag-gems", "flag_gems"),
    "flashnn": ("flashnn", "flashnn"),
    "fps": ("torch-fps", "torch_fps"),
    "fskernels": ("fasterkernels", "fskernels"),
    "gemlite": ("gemlite", "gemlite"),
    "gptq": ("gptq-triton", "gptq_triton"),
    "grouped_mm": ("grouped-mm-bf16", "grouped_mm_bf16"),
    "gru": ("gru-qat", "gru_qat"),
    "kmeans": ("flash-kmeans", "flash_kmeans"),
    "lanczos": ("lanczos-triton", "lanczos_triton"),
    "liger": ("liger-kernel", "liger_kernel"),
    "lightllm": ("lightllm", "lightllm"),
    "mase": ("mase-triton", "mase_triton"),
    "maxsim": ("late-interaction-kernels", "late_interaction_kernels"),
    "mingru": ("mingru-scans", "mingru"),
    "mlm": ("flash-mlm", "flash_mlm"),
    "mlstm": ("mlstm-kernels", "mlstm_kernels"),
    "moe": ("moe-ops", "moe_ops"),
    "multiarch": ("cuda-triton-multiarch", "kernels"),
    "orda": ("orda-kernel", "orda_kernel"),
    "sage": ("sageattention", "sageattention"),
    "sinkhorn": ("flash-sinkhorn", "flash_sinkhorn"),
    "submodular": ("triton-submodular", "triton_submodular"),
    "torchao": ("torchao", "torchao"),
    "torchnorm": ("torchnorm", "torchnorm"),
    "transformer": ("triton-transformer", "triton_transformer"),
    "trinix": ("trinix", "trinix"),
    "tutorials": ("triton's tutorials", ""),
    "xformers": ("xformers", "xformers"),
    "xlstm": ("flash-xlstm-exp", "fsp"),
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


_SEEDED = """
submodular/lazy _kernel
flashnn/pages _paged_attn_w_mma_kernel
trinix/adam fused_adam_kernel
chalk/swiglu _swiglu_fwd_kernel
fskernels/attention _flash_attn_fwd_kernel
xlstm/intra mlstm_chunkwise__parallel_fw_Hintra_kernel
augment/contrast contrast_fast_kernel
fps/neighbours _fps_knn_single_kernel
orda/distilled ce_kl_fwdbwd_kernel
mlm/attention _mlm_main_kernel_auto_tile
torchnorm/layer_norm _layer_norm_bwd_kernel
gptq/matmul matmul4_kernel
gru/scan gru_scan_bwd_kernel
transformer/layer_norm layernorm_kernel_backward
flaggems/fp8 _per_token_group_quant_fp8_colmajor
flaggems/range _functional_sym_constrain_range_for_size_kernel
flaggems/unique global_cumsum_flat_kernel
flaggems/gradient_of_log_softmax log_softmax_backward_kernel
flaggems/baddbmm baddbmm_kernel
flaggems/gradient_of_group_norm group_norm_backward_kernel
fla/rwkv6_sums chunk_rwkv6_fwd_cumsum_kernel
fla/gradient_of_kl elementwise_mul_kernel
fla/mesa chunk_fwd_mesa_cg_dim64_kernel
fla/gradient_of_path parallel_path_bwd_intra_chunk_kernel
liger/gradient_of_grpo _grpo_loss_bwd_kernel
liger/experts _moe_router_scatter_kernel _fused_down_proj_kernel
liger/gradient_of_added_norm _fused_add_rms_norm_backward_kernel
"""
"""The same for the kernels of [seeded_calls.py](seeded_calls.py)."""

_DRAWN = """
fla/nsa parallel_nsa_fwd_kernel
fla/parallel_simple_gla parallel_simple_gla_fwd_kernel
fla/chunked_delta chunk_scaled_dot_kkt_fwd_kernel
flaggems/geglu_fused geglu_kernel
fla/cyclic _fused_recurrent_cyfa_decode_k_kernel
flaggems/consecutive global_cumsum_consecutive_kernel
flaggems/largest argmax_kernel_1
flaggems/logit logit_kernel
fla/gradient_of_gla chunk_gla_bwd_kernel_inter
fla/gradient_of_abc chunk_abc_bwd_kernel_V
liger/gradient_of_linear_jsd _element_mul_kernel
fla/gradient_of_gdn2 chunk_gdn2_bwd_kernel_wy_gate_part_npu
flaggems/instance_norm instance_norm_use_running_stats_kernel
fla/gradient_of_parallax parallel_parallax_bwd_kernel_dqr
"""
"""The same for the kernels of [drawn_calls.py](drawn_calls.py), in the order in which they were drawn."""


_DEVELOPED = """
flaggems/embedding_counts _embedding_dense_backward_count_kernel
flaggems/asinh asinh_kernel_
flaggems/product_of_all prod_kernel_result
flaggems/cumulated_columns add_base_sum_abc_kernel
flaggems/selected_back _select_backward_kernel
flaggems/counts output_counts_kernel
fla/ttt fused_chunk_ttt_linear_fwd_kernel
fla/split_states chunk_bwd_kernel_dh_split
fla/gradient_of_log_linear chunkwise_bwd_kernel_dv
fla/gradient_of_mesa chunk_mesa_net_h_kv_bwd_intra_kernel_dkv
fla/gradient_of_hgrn chunk_hgrn_bwd_kernel_o
fla/chunked_cyclic _chunk_cyfa_fused_readout_fwd_kernel
liger/gradient_of_ascend_group_norm _group_norm_reduce_param_grads_kernel
liger/gradient_of_softmax _softmax_single_block_backward_kernel
liger/gradient_of_loss_and_distance _fused_ce_tvd_backward_kernel
liger/gradient_of_poly _poly_norm_backward_kernel
liger/neighbours _sparse_neighborhood_qk_softmax_kernel
liger/sinkhorn _mhc_split_sinkhorn_fwd_kernel
flaggems/cumulated_largest add_base_max_kernel
flaggems/pooled_back max_pool2d_backward_kernel
flaggems/reflected reflection_pad2d_kernel
flaggems/random rand_kernel
flaggems/quantile quantile_bitonic_kernel
fla/householder chunk_cumprod_householder_fwd_kernel
fla/fused_based fused_chunk_based_fwd_kernel
fla/gradient_of_cyclic _chunk_cyfa_fused_readout_bwd_kernel
fla/gradient_of_gate gdn_gate_bwd_kernel
fla/recurrent_rwkv7 fused_recurrent_rwkv7_fwd_kernel
fla/gradient_of_layer_norm layer_norm_bwd_kernel
liger/wide_residual _attn_res_fwd_kernel_tiled
liger/wide_rms_norm _rms_norm_forward_tiled
liger/wide_group_norm _group_norm_forward_stats_kernel
liger/wide_poly _poly_norm_forward_kernel_npu
liger/rotary_of_three _triton_qwen2vl_mrope
liger/gradient_of_residual _attn_res_bwd_kernel
"""
"""The same for the kernels of [developed_calls.py](developed_calls.py)."""

_JUDGED = """
flaggems/sorted compute_global_hist_kernel
flaggems/normed_columns weight_norm_kernel_last
flaggems/chunk_output chunk_fwd_kernel_o
flaggems/schedule _prepare_pass1_kernel
fla/gradient_of_kda_gate kda_gate_bwd_kernel_npu
fla/gradient_of_attention parallel_attn_bwd_kernel_preprocess
fla/wall parallel_wall_attn_fwd_kernel
fla/gradient_of_halved_parallax parallel_parallax_bwd_kernel_preprocess
liger/gradient_of_streams _mhc_post_res_bwd_kernel
liger/wide_sparsemax _sparsemax_forward_tiled_kernel
liger/sequences _grpo_loss_fwd_kernel_seq
liger/gradient_of_neighbours _fused_neighborhood_attention_grad_k_kernel
"""
"""The same for the kernels of [judged_calls.py](judged_calls.py), in the order in which they were drawn."""


def _cases(text: str, program: str) -> Iterator[Case]:
    for line in filter(None, text.splitlines()):
        call, *kernels = line.split()
        for kernel in kernels:
            yield Case(call, kernel, *_PACKAGES[call.partition("/")[0]], program)


CASES = (
    *_cases(_KERNELS, "calls.py"),
    *_cases(_SEEDED, "seeded_calls.py"),
    *_cases(_DRAWN, "drawn_calls.py"),
    *_cases(_DEVELOPED, "developed_calls.py"),
    *_cases(_JUDGED, "judged_calls.py"),
)
