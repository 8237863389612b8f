"""The parameters of FlagGems' operations, as named in `_nvidia/tune_configs.yaml` and `_ascend/tune_configs.yaml` of
FlagGems 5.0.2. Its loader takes whatever a file names, and the launch then fails."""

from __future__ import annotations

__all__ = ["PARAMETERS"]

_BY_PARAMETERS = {
    "": "batch_norm instancenorm layer_norm_persistent randperm",
    "BATCH_BLOCK_SIZE MN_BLOCK_SIZE": "triu_batch",
    "BLOCK_BATCH_SIZE BLOCK_COL_SIZE": "instance_norm_weight_bias_backward",
    "BLOCK_C BLOCK_D": "cross_entropy_loss",
    "BLOCK_CI_HK_WK BLOCK_CO BLOCK_NO": "conv2d_backward_weight",
    "BLOCK_H BLOCK_W": "replication_pad3d",
    "BLOCK_M": "argmax argmin",
    "BLOCK_M BLOCK_K": "mm_self_transpose",
    "BLOCK_M BLOCK_N": (
        "all amax any gated_activation gather index_select kron log_softmax max mean min mv naive_reduction prod "
        "scatter select_scatter sum var_mean vector_norm"
    ),
    "BLOCK_M BLOCK_N BLOCK_K": "argmin_split_k mm",
    "BLOCK_M BLOCK_N PRE_LOAD_V": "attention",
    "BLOCK_M1 BLOCK_N1 BLOCK_M2 BLOCK_N2": "attention_bwd",
    "BLOCK_N": "cross_entropy_loss_sum_and_scale",
    "BLOCK_NI_DO_HO_WO BLOCK_CO BLOCK_CI": "conv3d_forward",
    "BLOCK_NI_HO_WO BLOCK_CO BLOCK_CI": "conv2d_forward",
    "BLOCK_ROW_SIZE BLOCK_COL_SIZE": (
        "instance_norm_backward layer_norm_backward weight_bias_backward weight_norm_kernel weight_norm_kernel_first "
        "weight_norm_kernel_last"
    ),
    "BLOCK_SIZE": (
        "conj_physical count_nonzero index_add masked_fill masked_select nonzero upsample_nearest1d upsample_nearest2d "
        "upsample_nearest3d vstack"
    ),
    "BLOCK_SIZE BLOCK_SIZE_SUB": "masked_fill moe_sum",
    "BLOCK_SIZE0 BLOCK_SIZE1": "index index_put",
    "BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K": "addmm",
    "BLOCK_SIZE_ROWS BLOCK_SIZE_EXPERTS BLOCK_SIZE_EXPERTS_SUB": "topk_softmax",
    "BLOCK_X BLOCK_Y": "upsample_bicubic2d_aa",
    "M_BLOCK_SIZE N_BLOCK_SIZE": "triu",
    "R C": "select_scatter_inner",
    "TILE_K": "softmax softmax_non_inner",
    "TILE_M TILE_N TILE_K GROUP_M": "baddbmm bmm",
    "TILE_N": "instance_norm_loop layer_norm_loop rms_norm_loop softmax_inner",
}


def _by_operation() -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for parameters, operations in _BY_PARAMETERS.items():
        for operation in operations.split():
            found[operation] = (*found.get(operation, ()), tuple(parameters.split()))
    return found


PARAMETERS = _by_operation()
"""For each operation the parameters that it takes; several if vendors differ."""
