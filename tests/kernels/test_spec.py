"""Derived values and checks of the contract's records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import ITEM_BYTES, Axis, Buffer, Flag, KernelSpec, Launch, Problem, Target, Tiling, ceil_div

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


@pytest.mark.parametrize(
    ("family", "cores", "found"), [("ascend", 40, 20), ("ascend", 1, 1), ("ascend", 3, 1), ("nvidia", 132, 132)]
)
def test_an_ascend_part_has_a_cube_core_for_two_vector_cores_and_a_gpu_one_kind_of_core(family, cores, found):
    assert Target(family, "a part", cores, 1 << 16, 32, 65535).matrix_cores == found


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


def test_a_strided_buffer_counts_its_elements_and_spans_what_lies_between():
    rows = Buffer((4, 6), "float16", strides=(10, 1))
    assert (rows.bytes, rows.span, rows.span_bytes) == (48, 36, 72)
    assert Buffer((4, 6), "float16", strides=(1, 4)).span == 24


@pytest.mark.parametrize("strides", [(1, 1), (6,), (3, 2), (0, 1), [6, 1]])
def test_strides_of_which_two_elements_share_a_place_are_refused(strides):
    spec = a_spec(buffers=lambda problem: {"x": Buffer((4, 6), "float32", strides=strides)})
    with pytest.raises(BadSpec, match=r"x with the strides .*; expected a tuple, with which no two elements overlap"):
        spec.buffers(Problem("k", {"M": 1}, "float32"))


@pytest.mark.parametrize("strides", [(0, 1), (-6, 1)])
def test_the_stride_of_an_axis_of_one_element_is_at_least_1_too(strides):
    spec = a_spec(buffers=lambda problem: {"x": Buffer((1, 6), "float32", strides=strides)})
    with pytest.raises(BadSpec, match="x with the strides"):
        spec.buffers(Problem("k", {"M": 1}, "float32"))


def test_a_gather_counts_the_bytes_that_it_reads():
    buffers = {"table": Buffer((1000, 8), "float32", moved_bytes=320), "out": Buffer((10, 8), "float32", "out")}
    assert a_spec(buffers=lambda problem: buffers).bytes(Problem("k", {"M": 1}, "float32")) == 320 + 320


@pytest.mark.parametrize(
    "values", [(False,), (True, 2), ("a", "a"), ("1st", "b"), ("a", True), ["a", "b"], ("true", "no")]
)
def test_a_flag_is_two_truth_values_or_words(values):
    with pytest.raises(BadSpec, match=r"flag f has the values .*; expected \(False, True\), or words"):
        Flag("f", values)


def test_a_reference_may_take_the_problem_for_its_flags():
    problem = Problem("k", {"M": 1}, "float32", {"causal": True})
    plain = a_spec(reference=lambda inputs: {name: _Tensor(inputs["x"]) for name in ("out",)})
    flagged = a_spec(reference=lambda inputs, problem: {"out": _Tensor((inputs["x"], problem.flags["causal"]))})
    assert plain.reference_of(problem)({"x": 3})["out"].value == 3
    assert flagged.reference_of(problem)({"x": 3})["out"].value == (3, True)


class _Tensor:
    requires_grad = False

    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("name", ["dtype", "device", "match", "toolchain"])
@pytest.mark.parametrize("fields", [lambda name: {"dims": (name,)}, lambda name: {"flags": (Flag(name, ("a", "b")),)}])
def test_a_name_that_a_query_needs_is_neither_a_dimension_nor_a_flag(name, fields):
    with pytest.raises(BadSpec, match=f"kernel k has {name} as a dimension or flag, which a REST query needs; rename"):
        a_spec(**fields(name))


def test_a_name_is_a_dimension_or_a_flag():
    with pytest.raises(BadSpec, match="kernel k has M as a dimension and as a flag; rename one"):
        a_spec(flags=(Flag("M", (False, True)),))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": [1, 2]}, r"metrics of kernel k are \[1, 2\]; expected a function for each name"),
        ({"dtypes": ("float32", "fp8", "int4")}, "kernel k takes fp8, int4; known dtypes: float32, float16"),
    ],
)
def test_fields_of_another_kind_are_refused(changes, message):
    with pytest.raises(BadSpec, match=message):
        a_spec(**changes)


@pytest.mark.parametrize(
    ("field", "arguments", "returned", "message"),
    [
        ("constants", (None,), {"A": [1]}, "expected a number, a string, a truth value or None for each name"),
        ("fill", ({}, None, None), 1, "expected nothing"),
        ("matrix_dtype", (None,), "fp8", "expected one of float32"),
        *((("grid"), ({}, None), grid, "the grid .*; expected a tuple of one to three whole numbers from 1")
          for grid in ((), (1, 1, 1, 1), (0,), (1, -1), (1.0,), 3, None)),
        *(("buffers", (None,), {"x": Buffer(shape, "float32")}, "x with the shape .*; expected a tuple of sizes from 1")
          for shape in ([3, 5], (0,), (3, 2.0), (-1,))),
        ("buffers", (None,), {"x": Buffer((1,), "fp8")}, "x with the dtype 'fp8'; expected one of float32, float16"),
        ("buffers", (None,), {"x": Buffer((1,), "int8", "io")}, "x with the role 'io'; expected in, out or inout"),
        ("buffers", (None,), {"x": (1,)}, "expected a Buffer for each name"),
        ("buffers", (None,), [Buffer((1,), "int8")], "expected a Buffer for each name"),
        ("scalars", (None,), {"a": "1"}, "expected a number for each name"),
        ("scalars", (None,), [1], "expected a number for each name"),
        ("scratch", ({}, None), {"x": 1}, "expected a Buffer for each name"),
        ("tiling", ({}, None), (), "expected a Tiling"),
        ("flops", (None,), "1", "expected a number"),
        ("default", (None, None), [1], "expected a value for each parameter"),
        ("configs", (None, None), {"A": 1}, "expected a list of configs"),
        ("reference", ({},), {"out": 1}, "expected a torch tensor for each output's name"),
        ("reference", ({},), [1], "expected a torch tensor for each output's name"),
    ],
)  # fmt: skip
def test_what_functions_return_is_checked(field, arguments, returned, message):
    spec = a_spec(**{field: lambda *given: returned})
    with pytest.raises(BadSpec, match=message):
        getattr(spec, field)(*arguments)


@pytest.mark.parametrize("launches", [[1], {}, [Launch("somewhere:a", ())], [Launch("a:b", (1,)), Launch("a:b", (0,))]])
def test_launches_are_checked_with_their_grids(launches):
    spec = a_spec(function=("somewhere:a", "somewhere:b"), grid=None, launches=lambda config, problem: launches)
    with pytest.raises(BadSpec, match=r"expected (a list of Launch|a tuple of one to three whole numbers from 1)"):
        spec.plan({}, Problem("k", {"M": 1}, "float32"))


@pytest.mark.parametrize(
    ("field", "arguments", "returned"),
    [
        ("grid", ({}, None), (1, 2, 3)),
        ("grid", ({}, None), [1]),
        ("buffers", (None,), {"x": Buffer((1, 7), "bool", "inout", strides=(9, 1))}),
        ("buffers", (None,), {"x": Buffer((2, 1, 3), "int8", "out", strides=(3, 1, 1))}),
        ("buffers", (None,), {"x": Buffer((4, 6), "int8", strides=(6, 1))}),
        ("scalars", (None,), {"a": 1, "b": 2.5}),
        ("constants", (None,), {"A": 1, "B": "x", "C": True, "D": None}),
        ("matrix_dtype", (None,), "int8"),
        ("flops", (None,), 1.5),
    ],
)
def test_valid_results_are_returned_as_they_are(field, arguments, returned):
    assert getattr(a_spec(**{field: lambda *given: returned}), field)(*arguments) == returned


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
