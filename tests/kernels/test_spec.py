"""Derived values and checks of the contract's records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import ITEM_BYTES, Axis, Buffer, KernelSpec, Launch, Problem, Tiling, ceil_div

small = st.integers(1, 60)


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_ceil_div_is_the_least_number_of_pieces(a, b):
    assert ceil_div(a, b) * b >= a > (ceil_div(a, b) - 1) * b


@given(size=small, block=small, step=small)
def test_an_axis_counts_what_loops_over_it_would(size, block, step):
    axis = Axis("M", size, block, step)
    assert axis.programs == len(range(0, size, block))
    first = range(min(block, size))
    trips = [first[i : i + step] for i in range(0, len(first), step)]
    assert axis.trips == len(trips)
    assert axis.tail == step - len(trips[-1])


def test_a_tiling_multiplies_its_axes():
    tiling = Tiling((Axis("M", 1000, 25, 4), Axis("N", 8192, 8192, 2048)), 0, 0)
    assert (tiling.programs, tiling.trips) == (40, 7 * 4)


@pytest.mark.parametrize(("dtype", "size"), ITEM_BYTES.items())
def test_a_buffer_knows_its_bytes(dtype, size):
    assert Buffer((3, 5), dtype).bytes == 15 * size
    assert Problem("k", {"M": 1}, dtype).item_bytes == size


def a_spec(**changes):
    fields = {
        "name": "k",
        "summary": "",
        "function": "somewhere:k",
        "dims": ("M",),
        "dtypes": ("float32",),
        "parameters": (),
        "buffers": lambda problem: {},
        "scalars": lambda problem: {},
        "grid": lambda config, problem: [problem.dims["M"], 2],
        "tiling": lambda config, problem: Tiling((), 0, 0),
        "reference": lambda inputs: {},
        "flops": lambda problem: 0,
        "default": lambda problem, target: {},
    }
    return KernelSpec(**fields | changes)


def test_the_least_traffic_counts_a_buffer_that_is_read_and_written_twice():
    buffers = {"a": Buffer((4,), "float32"), "b": Buffer((4,), "float16", "out"), "c": Buffer((4,), "int8", "inout")}
    assert a_spec(buffers=lambda problem: buffers).bytes(Problem("k", {"M": 4}, "float32")) == 16 + 8 + 2 * 4


def test_a_kernel_of_one_function_launches_it_over_its_grid():
    plan = a_spec().plan({}, Problem("k", {"M": 3}, "float32"))
    assert plan == (Launch("somewhere:k", (3, 2)),)


def test_a_kernel_of_several_functions_launches_what_it_says():
    launches = [Launch("somewhere:a", (4,)), Launch("somewhere:b", (1,), {"LAST": True})]
    spec = a_spec(function=("somewhere:a", "somewhere:b"), grid=None, launches=lambda config, problem: launches)
    assert spec.plan({}, Problem("k", {"M": 3}, "float32")) == tuple(launches)
    assert spec.functions() == ("somewhere:a", "somewhere:b")


@pytest.mark.parametrize(
    "changes",
    [{"grid": None}, {"launches": lambda config, problem: []}, {"function": ("somewhere:a", "somewhere:b")}],
    ids=["neither", "both", "several functions and one grid"],
)
def test_grid_and_launches_exclude_each_other(changes):
    with pytest.raises(BadSpec, match="kernel k needs one function and a grid"):
        a_spec(**changes)


def test_options_are_told_from_arguments():
    assert registry.load("row_reduce").options() == {"multibuffer", "num_warps", "num_stages"}
