"""Tables of SGLang, as its `fused_moe_triton_config.get_moe_configs` and `get_w8a8_block_fp8_configs` look for them.

Names and rules are those of SGLang 0.5.23. With `SGLANG_MOE_CONFIG_DIR` it looks for tables of fused MoE in a folder of
the user's instead of its own: in `configs/triton_3_6_0` for its Triton's version, and then for other versions, the
newest first. A table whose name ends in `_down` is for the second projection; without one the first's serves both.
"""

from __future__ import annotations

from tilewise.db.exchange.foreign.tables.size_tables import Layout, Project, write_tables
from tilewise.db.exchange.format import Format

__all__ = ["SGLANG", "SGLANG_TABLES"]

_TILE = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_DTYPES = ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32")
_REST = "device_name={device}{dtype:,dtype=}{block_shape:,block_shape=}"

SGLANG_TABLES = Project(
    "SGLang",
    (
        Layout(
            ("E", "N"),
            f"configs/triton_{{triton}}/E={{E}},N={{N}},{_REST}"
            "{per_channel_quant:,per_channel_quant=}{down:_down}.json",
            dtypes=_DTYPES,
            arguments=_TILE,
            optional=("USE_TMA",),
            fixed={"SPLIT_K": 1},
        ),
        Layout(
            ("N", "K"), f"N={{N}},K={{K}},{_REST}.json", blocks=True, dtypes=("fp8_w8a8", "int8_w8a8"), arguments=_TILE
        ),
        Layout((), f"{{dims}},{_REST}.json"),
    ),
    device=lambda name: name.replace(" ", "_"),
    block="[{}, {}]",
)

SGLANG = Format(
    "sglang",
    "the same as tables for SGLang, in folders by version of Triton",
    write=lambda selection: write_tables(SGLANG_TABLES, selection),
)
