"""An invalid spec is refused in one line that names the fault and the expected value."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from tilewise.errors import BadDimension, BadSpec
from tilewise.kernels.spec import Buffer, Constraint, KernelSpec, Launch, Parameter, Problem, Target, Tiling

PROBLEM = Problem("k", {"M": 4}, "float32")
TARGET = Target("ascend", "T", 4, 1024, 32, 100)
FIELDS = {
    "name": "k",
    "summary": "",
    "function": "somewhere:k",
    "dims": ("M",),
    "dtypes": ("float32",),
    "parameters": (),
    "buffers": lambda problem: {"x": Buffer((4,), "float32")},
    "scalars": lambda problem: {"M": 4, "eps": 0.5},
    "grid": lambda config, problem: (1,),
    "tiling": lambda config, problem: Tiling((), 0, 0),
    "reference": lambda inputs: {"out": torch.zeros(4)},
    "flops": lambda problem: 0,
    "default": lambda problem, target: {},
}


def a_spec(**changes):
    return KernelSpec(**FIELDS | changes)


def message(function, *given) -> str:
    with pytest.raises(BadSpec) as caught:
        function(*given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dims", "M", "dims of kernel k is 'M'; expected a tuple, each item a string"),
        ("dtypes", "float32", "dtypes of kernel k is 'float32'; expected a tuple"),
        ("dtypes", ("fp16", "float8"), "kernel k takes fp16, float8; known dtypes: float32"),
        ("parameters", [], "parameters of kernel k is []; expected a tuple, each item a Parameter"),
        ("constraints", Constraint("r", lambda c, p, t: True), "expected a tuple, each item a Constraint"),
        ("tiling", None, "tiling(config, problem) of kernel k is None; expected a function"),
        ("grid", (1,), "grid(config, problem) of kernel k is (1,); expected a function"),
    ],
)
def test_a_field_of_another_kind_is_refused_when_the_spec_is_made(field, value, text):
    assert text in message(lambda: a_spec(**{field: value}))


def test_a_parameter_and_a_constraint_take_functions():
    assert message(Parameter, "B", [1, 2]) == "values(problem, target) of parameter B is [1, 2]; expected a function"
    assert "has the role 'compile'; expected 'constexpr' or 'option'" in message(Parameter, "B", list, "compile")
    assert message(Constraint, "fits", True) == "the constraint 'fits' is True; expected a function"


ANSWERS = {
    "no mapping of buffers": ("buffers", [Buffer((4,), "float32")], "expected a Buffer for each name"),
    "unknown dtype": (
        "buffers",
        {"x": Buffer((4,), "fp32")},
        "returns x with the dtype 'fp32'; expected one of float32",
    ),
    "unknown role": (
        "buffers",
        {"x": Buffer((4,), "int8", "output")},
        "x with the role 'output'; expected in, out or inout",
    ),
    "shape of one number": ("buffers", {"x": Buffer(4, "int8")}, "x with the shape 4; expected a tuple of sizes"),
    "empty buffer": (
        "buffers",
        {"x": Buffer((0, 4), "int8")},
        "x with the shape (0, 4); expected a tuple of sizes from 1",
    ),
    "scalar in words": ("scalars", {"M": "4"}, "expected a number for each name"),
    "no programs": ("grid", (0,), "returns the grid (0,); expected a tuple of one to three whole numbers from 1"),
    "number of programs": ("grid", 4, "returns the grid 4; expected a tuple"),
    "half programs": ("grid", (1.5,), "returns the grid (1.5,)"),
    "four axes": ("grid", (1, 1, 1, 1), "returns the grid (1, 1, 1, 1)"),
    "no tiling": ("tiling", None, "returns None; expected a Tiling"),
    "one tensor": (
        "reference",
        torch.zeros(2),
        "returns tensor([0., 0.]); expected a torch tensor for each output's name",
    ),
    "numpy": ("reference", {"out": torch.zeros(2).numpy()}, "expected a torch tensor for each output's name"),
    "no count": ("flops", None, "returns None; expected a number"),
    "no default": ("default", None, "returns None; expected a value for each parameter"),
    "no configs": ("configs", None, "returns None; expected a list of configs"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_of_another_kind_is_refused_when_it_is_given(case):
    field, answer, text = ANSWERS[case]
    spec = a_spec(**{field: lambda *given: answer})
    said = message(getattr(spec, field), {}, PROBLEM)
    assert re.match(rf"{field}\([a-z, ]+\) of kernel k returns ", said)
    assert text in said


def test_launches_have_grids_too():
    spec = a_spec(function=("a", "b"), grid=None, launches=lambda config, problem: [Launch("a", (0,))])
    said = message(spec.plan, {}, PROBLEM)
    assert said.startswith(
        "launches(config, problem) of kernel k returns the grid (0,); expected a tuple of one to three"
    )


def test_a_parameter_gives_a_list_and_a_constraint_a_truth():
    assert "of parameter B returns None; expected a list" in message(
        Parameter("B", lambda p, t: None).values, PROBLEM, TARGET
    )
    assert "of parameter B returns 'abc'" in message(Parameter("B", lambda p, t: "abc").values, PROBLEM, TARGET)
    forgotten = Constraint("fits", lambda c, p, t: None)
    assert message(forgotten.holds, {}, PROBLEM, TARGET) == "the constraint 'fits' returns None; expected True or False"
    remainder = Constraint("even", lambda c, p, t: c["B"] % 2)
    assert (
        message(remainder.holds, {"B": 3}, PROBLEM, TARGET) == "the constraint 'even' returns 1; expected True or False"
    )
    assert Constraint("even", lambda c, p, t: np.int64(c["B"]) % 2 == 0).holds({"B": 4}, PROBLEM, TARGET)


def test_what_a_function_raises_is_told_with_its_line_and_its_config():
    constraint = Constraint("fits", lambda c, p, t: c["BLOCK"] > 1)
    line = constraint.holds.function.__code__.co_firstlineno
    said = message(constraint.holds, {"BLOCK_M": 4, "SUB": 2}, PROBLEM, TARGET)
    place = f"(test_validated_callback.py, line {line})"
    assert said == f"the constraint 'fits' raises KeyError: 'BLOCK' {place} where BLOCK_M=4, SUB=2"


def test_a_reference_that_raises_names_the_inputs_it_was_given():
    spec = a_spec(reference=lambda inputs: {"out": inputs["y"]})
    assert message(spec.reference, {"x": torch.zeros(1)}).endswith("where the inputs are x")


def test_an_error_of_torch_is_the_specs_on_a_cpu_and_may_be_the_devices_elsewhere():
    spec = a_spec(reference=lambda inputs: {"out": inputs["x"] @ inputs["x"]})
    assert "reference(inputs) of kernel k raises RuntimeError: " in message(spec.reference, {"x": torch.zeros(2, 3)})
    with pytest.raises(RuntimeError):
        spec.reference({"x": torch.zeros(2, 3, device="meta")})


def test_an_error_that_is_raised_on_purpose_stays_as_it_is():
    def buffers(problem):
        raise BadDimension("M is odd")

    with pytest.raises(BadDimension, match=r"^M is odd$"):
        a_spec(buffers=buffers).buffers(PROBLEM)


def test_specs_made_from_one_another_are_asked_once():
    spec = a_spec()
    assert dataclasses.replace(spec, origin="k").tiling is spec.tiling
