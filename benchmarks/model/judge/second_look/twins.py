"""The specs of the kernels of the second look: buffers, arguments and grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewise.benchmarks.model.judge.second_look import element_kernels as element
from tilewise.benchmarks.model.judge.second_look import row_kernels as row
from tilewise.benchmarks.model.judge.twins import twin
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Problem, ceil_div

__all__ = [
    "AFFINE_RUNTIME",
    "AFFINE_STATIC",
    "CONV_BACKWARD",
    "CONV_FORWARD",
    "CONV_GATHER",
    "GATE_CUMSUM",
    "MIN_MIDDLE",
    "MIN_ROWS",
    "MSE_BACKWARD",
    "MSE_BACKWARD_BLOCKS",
    "NORM_BACKWARD",
    "NORM_CHANNEL",
    "PRELU_BACKWARD",
    "SLOT_MAPPING",
    "SMOOTH_L1_BACKWARD",
    "SMOOTH_L1_BACKWARD_BLOCKS",
    "STATE_GATHER",
    "TRANSPOSE_BLOCKS",
    "TRANSPOSE_TILES",
]

_Dims = Mapping[str, int]
_Shapes = Mapping[str, tuple[int, ...]]

_DTYPES = ("float32", "float16", "bfloat16")

_VECTOR_CORES = 48
"""Programs that the convolutions launch: the vector cores of the part that they were timed on."""


def _typed(spec: KernelSpec, **dtypes: str) -> KernelSpec:
    """Return a twin that takes bfloat16 too, with the dtypes of buffers that do not have the problem's."""

    def buffers(problem: Problem) -> Mapping[str, Buffer]:
        found = spec.buffers(problem)
        return {name: replace(buffer, dtype=dtypes.get(name, buffer.dtype)) for name, buffer in found.items()}

    return replace(spec, dtypes=_DTYPES, buffers=buffers)


def _passed(spec: KernelSpec, *names: str) -> KernelSpec:
    """Return a twin that passes these dims to its second function, which the first one does not take."""
    return replace(
        spec, scalars=lambda problem: {**spec.scalars(problem), **{name: problem.dims[name] for name in names}}
    )


def _launched(spec: KernelSpec, *grids: Callable[[_Dims], tuple[int, ...]]) -> KernelSpec:
    """Return a twin whose functions each have a grid of their own."""

    def launches(config: Config, problem: Problem) -> Sequence[Launch]:
        plan = spec.plan(config, problem)
        return [replace(each, grid=grid(problem.dims)) for each, grid in zip(plan, grids, strict=True)]

    return replace(spec, launches=launches)


def _loss(gradient: Callable[[_Dims], tuple[int, ...]]) -> Callable[[_Dims, Config], _Shapes]:
    return lambda dims, config: {
        "g_ptr": gradient(dims),
        **dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), (dims["n"],)),
    }


def _blocks(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (ceil_div(dims["n"], int(config["BLOCK_SIZE"])),)


def _turned(dims: _Dims, config: Config) -> _Shapes:
    return {"x_ptr": (dims["COLS"], dims["ROWS"]), "out_ptr": (dims["ROWS"], dims["COLS"])}


def _tiles(config: Config, dims: _Dims) -> tuple[int, ...]:
    across = dims["COLS"] // (int(config["BLOCK_COLS"]) * int(config["TILES"]))
    return (dims["ROWS"] // int(config["BLOCK_ROWS"]) * across,)


def _affine(function: Any) -> KernelSpec:
    return twin(
        function,
        ("ROWS", "COLS", "ROW_STRIDE", "STRIDE"),
        lambda dims, config: {"x_ptr": (dims["ROWS"], dims["ROW_STRIDE"]), "out_ptr": (dims["ROWS"], dims["COLS"])},
        lambda config, dims: (
            ceil_div(dims["ROWS"], int(config["BLOCK_M"])),
            ceil_div(dims["COLS"], int(config["BLOCK_N"])),
        ),
    )


def _channels(dims: _Dims, **more: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the buffers of a batch normalisation's gradient: rows of channels, then what each channel has."""
    whole = (dims["N"], dims["C"], dims["S"])
    each = dict.fromkeys(("mean_ptr", "var_ptr", "w_ptr", "gw_ptr", "gb_ptr"), (dims["C"],))
    return {"g_ptr": whole, "x_ptr": whole, **each, **more, "out_ptr": whole}


def _groups(dims: _Dims) -> tuple[int, ...]:
    return (dims["C"], dims["GROUPS"])


def _conv(dims: _Dims, *matrices: str) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(matrices, (dims["B"], dims["T"], dims["D"]))


MSE_BACKWARD = _typed(
    twin(element.mse_backward_kernel, ("n",), _loss(lambda dims: (dims["n"],)), _blocks, {"factor": 1e-7})
)
MSE_BACKWARD_BLOCKS = _typed(
    twin(
        element.mse_backward_blocks_kernel,
        ("n", "COUNT"),
        _loss(lambda dims: (dims["n"],)),
        _blocks,
        {"reduction": 1},
    )
)
SMOOTH_L1_BACKWARD = _typed(
    twin(element.smooth_l1_backward_kernel, ("n",), _loss(lambda dims: (1,)), _blocks, {"inverse": 1e-7})
)
SMOOTH_L1_BACKWARD_BLOCKS = _typed(
    twin(element.smooth_l1_backward_blocks_kernel, ("n", "COUNT"), _loss(lambda dims: (1,)), _blocks)
)
TRANSPOSE_TILES = _typed(twin(element.transpose_tiles_kernel, ("ROWS", "COLS"), _turned, _tiles))
TRANSPOSE_BLOCKS = _typed(
    twin(
        element.transpose_blocks_kernel,
        ("M", "N", "X_ROW", "X_COL", "OUT_ROW", "OUT_COL"),
        lambda dims, config: {"x_ptr": (dims["M"], dims["N"]), "out_ptr": (dims["N"], dims["M"])},
        lambda config, dims: (
            ceil_div(dims["N"], int(config["BLOCK_M"])),
            ceil_div(dims["M"], int(config["BLOCK_N"])),
        ),
    )
)
AFFINE_RUNTIME = _affine(element.affine_runtime_kernel)
AFFINE_STATIC = _affine(element.affine_static_kernel)
STATE_GATHER = _typed(
    twin(
        element.state_gather_kernel,
        ("SLOTS", "N", "H", "K", "V", "HKV", "VK"),
        lambda dims, config: {
            "cache_ptr": (dims["SLOTS"], dims["H"], dims["V"], dims["K"]),
            "index_ptr": (dims["N"],),
            "has_ptr": (dims["N"],),
            "out_ptr": (dims["N"], dims["H"], dims["K"], dims["V"]),
        },
        lambda config, dims: (dims["N"], dims["H"], ceil_div(dims["V"], int(config["BLOCK_V"]))),
    ),
    index_ptr="int64",
    has_ptr="int32",
)
CONV_GATHER = _typed(
    twin(
        element.conv_gather_kernel,
        ("SLOTS", "N", "SIZE", "SLOT"),
        lambda dims, config: {
            "cache_ptr": (dims["SLOTS"], dims["SLOT"]),
            "index_ptr": (dims["N"],),
            "local_ptr": (dims["N"],),
            "out_ptr": (dims["N"], dims["SIZE"]),
        },
        lambda config, dims: (dims["N"], ceil_div(dims["SIZE"], int(config["BLOCK_SIZE"]))),
        {"pad": -1},
    ),
    index_ptr="int32",
    local_ptr="int32",
)
SLOT_MAPPING = _typed(
    twin(
        element.slot_mapping_kernel,
        ("TOKENS", "MOST", "REQUESTS", "TABLE_ROW", "PAGE"),
        lambda dims, config: {
            "starts_ptr": (dims["REQUESTS"] + 1,),
            "positions_ptr": (dims["TOKENS"],),
            "table_ptr": (dims["REQUESTS"], dims["TABLE_ROW"]),
            "out_ptr": (dims["MOST"],),
        },
        lambda config, dims: (dims["REQUESTS"] + 1, ceil_div(dims["MOST"], int(config["BLOCK_SIZE"]))),
    ),
    starts_ptr="int32",
    positions_ptr="int32",
    table_ptr="int32",
    out_ptr="int64",
)

PRELU_BACKWARD = _passed(
    _typed(
        twin(
            row.prelu_backward_kernel,
            ("n", "TRIPS", "PARTS", "BLOCK_PARTS"),
            lambda dims, config: {
                **dict.fromkeys(("g_ptr", "x_ptr"), (dims["n"],)),
                **dict.fromkeys(("w_ptr", "gw_ptr"), (1,)),
                "parts_ptr": (dims["PARTS"],),
                "out_ptr": (dims["n"],),
            },
            lambda config, dims: (dims["PARTS"],),
            then=row.prelu_total_kernel,
        ),
        parts_ptr="float32",
    ),
    "PARTS",
)
NORM_BACKWARD = _launched(
    _typed(
        twin(
            row.norm_sums_kernel,
            ("N", "C", "S", "GROUPS", "PER", "ROW", "CHANNEL"),
            lambda dims, config: _channels(dims, sums_ptr=_groups(dims), products_ptr=_groups(dims)),
            lambda config, dims: _groups(dims),
            {"eps": 1e-5, "count": 1e6},
            then=row.norm_apply_kernel,
        ),
        sums_ptr="float32",
        products_ptr="float32",
    ),
    _groups,
    _groups,
)
NORM_CHANNEL = _typed(
    twin(
        row.norm_channel_kernel,
        ("N", "C", "S", "ROW", "CHANNEL"),
        lambda dims, config: _channels(dims),
        lambda config, dims: (dims["C"],),
        {"eps": 1e-5, "count": 1e6},
    )
)
MIN_ROWS = _typed(
    twin(
        row.min_rows_kernel,
        ("M", "N"),
        lambda dims, config: {"x_ptr": (dims["M"], dims["N"]), "out_ptr": (dims["M"],)},
        lambda config, dims: (ceil_div(dims["M"], int(config["BLOCK_M"])),),
    )
)
MIN_MIDDLE = _typed(
    twin(
        row.min_middle_kernel,
        ("B", "M", "N"),
        lambda dims, config: {"x_ptr": (dims["B"], dims["M"], dims["N"]), "out_ptr": (dims["B"], dims["N"])},
        lambda config, dims: (dims["B"], ceil_div(dims["N"], int(config["BLOCK_N"]))),
    )
)
GATE_CUMSUM = _typed(
    twin(
        row.gate_cumsum_kernel,
        ("T", "H", "D", "SEQUENCES", "CHUNKS"),
        lambda dims, config: {
            "g_ptr": (dims["T"], dims["H"], dims["D"]),
            "a_ptr": (dims["H"],),
            "bias_ptr": (dims["H"], dims["D"]),
            "starts_ptr": (dims["SEQUENCES"] + 1,),
            "chunks_ptr": (dims["CHUNKS"], 2),
            "out_ptr": (dims["T"], dims["H"], dims["D"]),
        },
        lambda config, dims: (dims["CHUNKS"], dims["H"]),
        {"bound": -5.0},
    ),
    a_ptr="float32",
    bias_ptr="float32",
    starts_ptr="int64",
    chunks_ptr="int64",
    out_ptr="float32",
)
CONV_FORWARD = _typed(
    twin(
        row.conv_forward_kernel,
        ("B", "T", "D", "W", "CHUNKS", "BLOCKS"),
        lambda dims, config: {
            **_conv(dims, "x_ptr", "linear_ptr"),
            "w_ptr": (dims["W"], dims["D"]),
            "bias_ptr": (dims["D"],),
            **_conv(dims, "out_ptr"),
        },
        lambda config, dims: (_VECTOR_CORES,),
    )
)
CONV_BACKWARD = _typed(
    twin(
        row.conv_backward_kernel,
        ("B", "T", "D", "W", "BLOCKS", "CHUNKS", "EACH"),
        lambda dims, config: {
            **_conv(dims, "x_ptr", "linear_ptr", "dy_ptr"),
            "w_ptr": (dims["W"], dims["D"]),
            "dw_ptr": (dims["CHUNKS"] + dims["B"], dims["W"], dims["D"]),
            "db_ptr": (dims["CHUNKS"] + dims["B"], dims["D"]),
            **_conv(dims, "out_ptr"),
        },
        lambda config, dims: (_VECTOR_CORES,),
        {"OFFSET": 0},
    ),
    dw_ptr="float32",
    db_ptr="float32",
)
