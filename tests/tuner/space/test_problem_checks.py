"""Problems and configs parsed from text, and a one-line error for invalid text."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.db.records import Question, shape_text
from tilewise.errors import BadConfig, BadDimension, UnknownDtype
from tilewise.kernels import registry
from tilewise.kernels.spec import Flag, Problem
from tilewise.tuner.space.problem_checks import LARGEST, make_problem, parse_config, parse_dims

SPEC = registry.load("row_reduce")


def refused(error, function, *arguments):
    with pytest.raises(error) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    return message


@given(st.dictionaries(st.from_regex("[A-Z][A-Z_]{0,5}", fullmatch=True), st.integers(-5, 2**40), min_size=1))
def test_sizes_are_read_as_they_are_written(dims):
    assert parse_dims(shape_text(dims)) == dims


def test_spaces_around_sizes_do_not_matter():
    assert parse_dims(" M = 1000 , N= 8192") == {"M": 1000, "N": 8192}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read '' as a dimension; write for example M=1000,N=8192"),
        ("M", "cannot read 'M' as a dimension"),
        ("1000,8192", "cannot read '1000' as a dimension"),
        ("=5", "cannot read '=5' as a dimension"),
        ("M=1000,", "cannot read '' as a dimension"),
        ("M=1,M=2", "dimension M is given twice"),
        ("M=", f"dimension M is ''; expected a whole number from 1 to {LARGEST}"),
        ("M=1.5", "dimension M is '1.5'"),
        ("M=1e3", "dimension M is '1e3'"),
        ("M=1_000", "dimension M is '1_000'"),
        ("M=--5", "dimension M is '--5'"),
        ("M=+5", "dimension M is '+5'"),
        ("M=0x10", "dimension M is '0x10'"),
        ("M=٣", "dimension M is '٣'"),
        ("M=²", "dimension M is '²'"),
        ("M=" + "9" * 5000, "dimension M is '9999"),
    ],
)
def test_text_that_is_no_dimension(text, message):
    assert refused(BadDimension, parse_dims, text).startswith(message)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({}, "kernel row_reduce needs M, N; M, N is missing"),
        ({"M": 5}, "kernel row_reduce needs M, N; N is missing"),
        ({"M": 5, "N": 5, "K": 5}, "kernel row_reduce has no dimension K; it has M, N"),
        ({"M": 0, "N": 5}, f"dimension M is 0; expected a whole number from 1 to {LARGEST}"),
        ({"M": -3, "N": 5}, "dimension M is -3;"),
        ({"M": 5, "N": LARGEST + 1}, f"dimension N is {LARGEST + 1};"),
        ({"M": 10**30, "N": 5}, "dimension M is 1000"),
        ({"M": True, "N": 5}, "dimension M is True;"),
        ({"M": 5.0, "N": 5}, "dimension M is 5.0;"),
        ({"M": "5", "N": 5}, "dimension M is '5';"),
        ({"M": "ten", "N": 5}, "dimension M is 'ten'; expected a whole number"),
    ],
)
def test_dimensions_that_cannot_be(dims, message):
    assert refused(BadDimension, make_problem, SPEC, dims, "float32").startswith(message)


def test_a_dtype_that_the_kernel_does_not_take():
    message = refused(UnknownDtype, make_problem, SPEC, {"M": 5, "N": 5}, "float64")
    assert message == "kernel row_reduce does not take 'float64'; it takes float32, float16, bfloat16"


def test_a_problem_keeps_the_kernels_order_of_dimensions():
    problem = make_problem(SPEC, {"N": LARGEST, "M": 1}, "float16")
    assert problem == Problem("row_reduce", {"M": 1, "N": LARGEST}, "float16")
    assert list(problem.dims) == ["M", "N"]


FLAGGED = dataclasses.replace(SPEC, flags=(Flag("causal", (False, True)), Flag("activation", ("none", "silu", "relu"))))


def test_flags_are_read_beside_sizes_and_their_defaults_left_out():
    shape = parse_dims("M=5,causal=TRUE,activation=silu,N=6")
    assert shape == {"M": 5, "causal": True, "activation": "silu", "N": 6}
    problem = make_problem(FLAGGED, shape, "float32")
    assert (problem.dims, problem.flags) == ({"M": 5, "N": 6}, {"causal": True, "activation": "silu"})
    assert [flag.of(problem) for flag in FLAGGED.flags] == [True, "silu"]
    usual = make_problem(FLAGGED, parse_dims("M=5,N=6,activation=none,causal=false"), "float32")
    assert usual == make_problem(SPEC, {"M": 5, "N": 6}, "float32")  # a kernel that gains a flag keeps its problems
    assert [flag.of(usual) for flag in FLAGGED.flags] == [False, "none"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"causal": 1}, "flag causal is 1; expected one of false, true"),
        ({"causal": "yes"}, "flag causal is 'yes'; expected one of false, true"),
        ({"activation": True}, "flag activation is true; expected one of 'none', 'silu', 'relu'"),
        ({"bias": True}, "kernel row_reduce has no dimension bias; it has M, N, and the flags causal, activation"),
    ],
)
def test_flags_that_cannot_be(flags, message):
    assert refused(BadDimension, make_problem, FLAGGED, {"M": 5, "N": 5, **flags}, "float32") == message


def test_a_problem_larger_than_the_memory_says_by_how_much(bowl):
    device = bowl.FormulaDevice()
    fits = make_problem(bowl.SPEC, {"M": 2**18}, "float32")
    device.check_memory(bowl.SPEC, fits)
    too_large = make_problem(bowl.SPEC, {"M": 2**30}, "float32")
    message = refused(BadDimension, device.check_memory, bowl.SPEC, too_large)
    assert message == "M=1073741824 needs 4.0 GiB of buffers; Bowl allows 0 GiB"


def test_a_config_is_read_with_the_types_of_its_values():
    config = parse_config("A=25, B = True,C=false,D=1.5,E=text,F=-3")
    assert config == {"A": 25, "B": True, "C": False, "D": 1.5, "E": "text", "F": -3}
    assert [type(value) for value in config.values()] == [int, bool, bool, float, str, int]


@pytest.mark.parametrize("text", ["", "A", "A=", "=1", "A=1,,B=2", "A=1,"])
def test_text_that_is_no_config(text):
    assert "as a parameter; write for example BLOCK_SIZE_M=25" in refused(BadConfig, parse_config, text)


def test_a_parameter_given_twice():
    assert refused(BadConfig, parse_config, "A=1,A=2") == "parameter A is given twice"


def test_trials_are_stored_under_all_that_makes_them_comparable(bowl):
    problem = make_problem(bowl.SPEC, {"M": 64}, "float32")
    stored = bowl.FormulaDevice().scope(bowl.SPEC, problem)
    assert (stored.kernel, stored.dims, stored.dtype) == ("bowl", {"M": 64}, "float32")
    assert (stored.device, stored.clock, stored.toolchain, stored.cores) == ("Bowl", "modelled", "formula 1", 8)
    assert len(stored.source_hash) == 16
    assert stored.question == Question(problem, "Bowl")
