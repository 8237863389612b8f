"""The specs of the kernels of the first look: buffers, arguments and grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewise.benchmarks.model.judge.first_look import element_kernels as element
from tilewise.benchmarks.model.judge.first_look import loss_kernels as loss
from tilewise.benchmarks.model.judge.first_look import row_kernels as row
from tilewise.benchmarks.model.judge.twins import twin
from tilewise.kernels.spec import Config, ceil_div

__all__ = [
    "ARGMIN_MIDDLE",
    "AVERAGE_1D",
    "AVERAGE_2D",
    "COSINE",
    "ELU",
    "GROUP_NORM",
    "HARD_SIGMOID",
    "HARD_TANH",
    "HINGE",
    "HUBER",
    "KL_DIV",
    "L2_NORM",
    "LEAKY_RELU",
    "LOG_SOFTMAX",
    "MATRIX_VECTOR",
    "MAX_MIDDLE",
    "MIN_MIDDLE",
    "MSE",
    "NEW_GELU",
    "PRODUCT_MIDDLE",
    "REVERSE_CUMSUM",
    "RMS_CHANNELS",
    "SELU",
    "SOFTPLUS",
    "SWISH",
    "TRIPLET",
    "WHOLE_NORM",
]

_Dims = Mapping[str, int]
_Shapes = Mapping[str, tuple[int, ...]]


def _same(dims: _Dims, config: Config) -> _Shapes:
    return dict.fromkeys(("x_ptr", "out_ptr"), tuple(dims.values()))


def _middle(out: str = "out_ptr") -> Callable[[_Dims, Config], _Shapes]:
    return lambda dims, config: {"x_ptr": (dims["B"], dims["M"], dims["N"]), out: (dims["B"], dims["N"])}


def _loss(dims: _Dims, config: Config) -> _Shapes:
    return {**dict.fromkeys(("x_ptr", "y_ptr"), tuple(dims.values())), "out_ptr": (1,)}


def _blocks(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (ceil_div(dims["n"], int(config["BLOCK_SIZE"])),)


def _columns(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (dims["B"], ceil_div(dims["N"], int(config["BLOCK_SIZE_N"])))


def _cores(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (int(config["NUM_CORES"]),)


def _rows(config: Config, dims: _Dims) -> tuple[int, ...]:
    return (dims["B"],)


LEAKY_RELU = twin(element.leaky_relu_kernel, ("n",), _same, _blocks)
SWISH = twin(element.swish_kernel, ("n",), _same, _cores)
SELU = twin(element.selu_kernel, ("n",), _same, _blocks)
HARD_SIGMOID = twin(element.hard_sigmoid_kernel, ("n",), _same, _blocks)
SOFTPLUS = twin(element.softplus_kernel, ("n",), _same, _blocks)
ELU = twin(element.elu_kernel, ("n",), _same, _blocks)
HARD_TANH = twin(element.hard_tanh_kernel, ("n",), _same, _blocks)
NEW_GELU = twin(element.new_gelu_kernel, ("n",), _same, _cores)

LOG_SOFTMAX = twin(row.log_softmax_kernel, ("B", "N"), _same, _rows)
RMS_CHANNELS = twin(
    row.rms_channels_kernel,
    ("B", "F", "D"),
    _same,
    lambda config, dims: (dims["B"], ceil_div(dims["D"], int(config["BLOCK_SIZE_D1D2"]))),
)
L2_NORM = twin(row.l2_norm_kernel, ("B", "D"), _same, _rows)
GROUP_NORM = twin(
    row.group_norm_kernel,
    ("B", "C", "HW", "G"),
    lambda dims, config: dict.fromkeys(("x_ptr", "out_ptr"), (dims["B"], dims["C"], dims["HW"])),
    _cores,
)
WHOLE_NORM = twin(row.whole_norm_kernel, ("B", "N"), _same, _cores)
MAX_MIDDLE = twin(row.max_middle_kernel, ("B", "M", "N"), _middle(), _columns)
MIN_MIDDLE = twin(
    row.min_middle_kernel,
    ("B", "M", "N"),
    _middle(),
    lambda config, dims: (dims["B"] * ceil_div(dims["N"], int(config["BLOCK_SIZE_N"])),),
)
PRODUCT_MIDDLE = twin(row.product_middle_kernel, ("B", "M", "N"), _middle(), _columns)
ARGMIN_MIDDLE = twin(
    row.argmin_middle_kernel,
    ("B", "M", "N"),
    _middle("index_ptr"),
    lambda config, dims: (int(config["PARALLEL_NUM"]),),
)
REVERSE_CUMSUM = twin(
    row.reverse_cumsum_kernel,
    ("B", "N", "stride"),
    lambda dims, config: dict.fromkeys(("x_ptr", "out_ptr"), (dims["B"], dims["N"])),
    _cores,
)
MATRIX_VECTOR = twin(
    row.matrix_vector_kernel,
    ("M", "K"),
    lambda dims, config: {"a_ptr": (dims["M"], dims["K"]), "b_ptr": (dims["K"],), "out_ptr": (dims["M"],)},
    lambda config, dims: (ceil_div(dims["M"], int(config["BLOCK_M"])),),
)
AVERAGE_2D = twin(
    row.average_2d_kernel,
    ("BC", "H", "W", "OUT_H", "OUT_W", "SIZE"),
    lambda dims, config: {
        "x_ptr": (dims["BC"], dims["H"], dims["W"]),
        "out_ptr": (dims["BC"], dims["OUT_H"], dims["OUT_W"]),
    },
    _cores,
)
AVERAGE_1D = twin(
    row.average_1d_kernel,
    ("BC", "L", "OUT", "SIZE", "STRIDE"),
    lambda dims, config: {"x_ptr": (dims["BC"], dims["L"]), "out_ptr": (dims["BC"], dims["OUT"])},
    _cores,
)

KL_DIV = twin(
    loss.kl_div_kernel,
    ("B", "N"),
    lambda dims, config: {
        **dict.fromkeys(("x_ptr", "y_ptr"), (dims["B"], dims["N"])),
        "sums_ptr": (dims["B"],),
        "out_ptr": (1,),
    },
    _rows,
    then=loss.mean_kernel,
)
TRIPLET = twin(
    loss.triplet_kernel,
    ("B", "D"),
    lambda dims, config: {
        **dict.fromkeys(("a_ptr", "p_ptr", "n_ptr"), (dims["B"], dims["D"])),
        "losses_ptr": (dims["B"],),
        "out_ptr": (1,),
    },
    lambda config, dims: (20,),
)
MSE = twin(loss.mse_kernel, ("n",), _loss, _blocks)
HUBER = twin(loss.huber_kernel, ("n",), _loss, _cores)
COSINE = twin(loss.cosine_kernel, ("B", "D"), _loss, _cores)
HINGE = twin(loss.hinge_kernel, ("B", "D"), _loss, _cores)
