"""Tables of vLLM, as its `fused_moe.get_moe_configs` and `fp8_utils.get_w8a8_block_fp8_configs` look for them.

Names and rules are those of vLLM 0.33.0. With `VLLM_TUNED_CONFIG_FOLDER` it looks for tables of fused MoE in a folder
of the user's before its own. Hugging Face's `kernels` name theirs in the same way (`builder/triton-autotune` in its
documentation).
"""

from __future__ import annotations

import re

from tilewise.db.exchange.foreign.tables.read_table import read_table
from tilewise.db.exchange.foreign.tables.size_tables import Layout, Project, write_tables
from tilewise.db.exchange.format import Format

__all__ = ["VLLM", "VLLM_TABLES"]

_TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_DTYPES = ("fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32")
_REST = "device_name={device}{dtype:,dtype=}{block_shape:,block_shape=}.json"


def _device(name: str) -> str:
    return re.sub(r"[\s/]+", "_", name)


def _moe_device(name: str) -> str:
    """Return the device's name; all of the H200 family share one table."""
    text = _device(name)
    return "NVIDIA_H200" if "H200" in text.split("_") else text


VLLM_TABLES = Project(
    "vLLM",
    (
        Layout(
            ("E", "N"),
            f"E={{E}},N={{N}},{_REST}",
            dtypes=_DTYPES,
            arguments=_TILE,
            fixed={"SPLIT_K": 1},
            device=_moe_device,
        ),
        Layout(("N", "K"), f"N={{N}},K={{K}},{_REST}", blocks=True, dtypes=("fp8_w8a8",), arguments=_TILE),
        Layout((), f"{{dims}},{_REST}"),
    ),
    device=_device,
    block="[{},{}]",
    dtypes={"int8_w8a8": ""},  # its readers name it like 16-bit inputs
)

VLLM = Format(
    "vllm",
    "bests of one kernel as tables for vLLM and Hugging Face kernels, in a folder",
    write=lambda selection: write_tables(VLLM_TABLES, selection),
    read=lambda data, name, about, written: read_table(data, name, about),
    mark=r'^\s*\{\s*"([0-9]+|triton_version)"\s*:',
)
