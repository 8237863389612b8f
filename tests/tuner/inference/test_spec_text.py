"""An inferred spec's text, whole: of a copy as its program launches it, and of a product with everything, widened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewise.db.records import Problem
from tilewise.tuner.inference.division import AxisFit, Division
from tilewise.tuner.inference.expressions import Fit
from tilewise.tuner.inference.form import BufferForm, Form
from tilewise.tuner.inference.spec_text import _is_tuple, _literal, spec_text


def fit(text, *names):
    return Fit(text, frozenset(names))


M, N, K, BM, BK = (fit(name, name) for name in ("M", "N", "K", "BM", "BK"))

COPY = Form(
    "copy",
    [None],
    dims=["N"],
    buffers={"x": BufferForm((N,), None), "y": BufferForm((N,), None)},
    fits={"n": N},
    configs=[{"B": 256}, {"B": 1024}],
    constants=frozenset(["B"]),
    grid=[fit("ceil_div(N, B)", "N", "B")],
    problems=[Problem("copy", {"N": 1000}, "float16")],
    dtypes=["float16"],
)

PRODUCT = Form(
    "mm",
    [None, None],
    dims=["M", "N", "K"],
    buffers={
        "a": BufferForm((M, K), None),
        "b": BufferForm((K, N), "int8"),
        "i": BufferForm((M,), "int64", "between(0, 5)"),
        "c": BufferForm((M, N), None),
        "d": BufferForm((M,), None),
    },
    fits={"m": M, "stride": fit("M * N", "M", "N"), "WIDE": fit("next_power_of_two(K)", "K")},
    fixed={"eps": "1e-06", "OUT": "tl.float32", "none": "None"},
    flags={"causal": [False, True]},
    computed={"EVEN": fit("K % BK == 0", "K", "BK")},
    configs=[
        {"BM": 64, "BK": 32, "GROUP_M": 8, "fast": True, "num_warps": 4, "num_stages": 2},
        {"BM": 128, "BK": 32, "GROUP_M": 8, "fast": True, "num_warps": 8, "num_stages": 2},
    ],
    options=frozenset(["num_warps", "num_stages", "fast"]),
    imported={"helper": "lib:helper"},
    constants=frozenset(["WIDE", "BM", "BK", "OUT", "EVEN"]),
    grid=[fit("ceil_div(M, BM)", "M", "BM"), N],
    problems=[Problem("mm", {"M": 8, "N": 9, "K": 10}, "float32", {"causal": True})],
    dtypes=["float32", "float16"],
    notes=["A note."],
)

DIVISION = Division(
    axes=(AxisFit("M", M, BM, BM), AxisFit("K", K, K, BK), AxisFit("N", N, BM, BK)),
    streamed=fit("2 * BM", "BM"),
    tile=BM,
    resident=fit("4 * BM", "BM"),
    traffic=fit("7.0"),
    reductions=fit("2"),
    flops_an_element=12.5,
    elements=fit("M * N", "M", "N"),
    dot=(BM, BM, BK),
    alone=True,
    stores_tiles=False,
    moved_back=True,
    first_apart=True,
    in_place=True,
)

OF_COPY = '''\
"""copy of program.py, inferred from one launch.

Tuned as it stands by

    tilewise tune {this file}:SPEC -s N=1000 --dtype float16
"""

from tilewise.kernels.candidate_values import only_ascend
from tilewise.kernels.inferred import config_for
from tilewise.kernels.spec import Buffer, KernelSpec, Parameter, Tiling, ceil_div

CONFIGS = [
    {"B": 256},
    {"B": 1024},
]
"""Those of the program; the first is its default."""


def buffers(problem):
    N = problem.dims["N"]
    return {
        "x": Buffer((N,), problem.dtype),
        "y": Buffer((N,), problem.dtype, role="out"),
    }


def grid(config, problem):
    N = problem.dims["N"]
    B = config["B"]
    return (ceil_div(N, B),)


def reference(inputs):
    import torch

    x = inputs["x"]
    return {"y": x}


SPEC = KernelSpec(
    name="copy",
    summary="copy of program.py",
    function="a/program.py:copy",
    dims=("N",),
    dtypes=("float16",),
    parameters=(
        Parameter("B", lambda problem, target: [256, 1024]),
        Parameter("multibuffer", only_ascend(True, False), role="option"),
    ),
    buffers=buffers,
    scalars=lambda problem: {"n": problem.dims["N"]},
    grid=grid,
    tiling=lambda config, problem: Tiling((), 0, 0),
    reference=reference,
    flops=lambda problem: 0,
    default=lambda problem, target: config_for(target, CONFIGS[0]),
    inferred=True,
)
'''

OF_PRODUCT = '''\
"""mm of program.py, inferred from 2 launches.

Tuned as it stands by

    tilewise tune {this file}:SPEC -s M=8,N=9,K=10,causal=True --dtype float32

A note.
"""

import triton.language as tl

from tilewise.kernels.candidate_values import only_ascend, only_nvidia
from tilewise.kernels.inferred import around, between, config_for, next_power_of_two
from tilewise.kernels.spec import Axis, Buffer, Dot, Flag, KernelSpec, Launch, Parameter, Tiling, ceil_div

CONFIGS = [
    {
        "BM": 64,
        "BK": 32,
        "GROUP_M": 8,
        "fast": True,
        "num_warps": 4,
        "num_stages": 2,
    },
    {
        "BM": 128,
        "BK": 32,
        "GROUP_M": 8,
        "fast": True,
        "num_warps": 8,
        "num_stages": 2,
    },
]
"""Those of the program; the first is its default."""


def buffers(problem):
    M, N, K = problem.dims["M"], problem.dims["N"], problem.dims["K"]
    return {
        "a": Buffer((M, K), problem.dtype),
        "b": Buffer((K, N), "int8"),
        "i": Buffer((M,), "int64", draw=between(0, 5)),
        "c": Buffer((M, N), problem.dtype, role="out"),
        "d": Buffer((M,), problem.dtype, role="inout"),
    }


def grid(config, problem):
    M, N = problem.dims["M"], problem.dims["N"]
    BM = config["BM"]
    return (ceil_div(M, BM), N)


def launches(config, problem):
    K = problem.dims["K"]
    BK = config["BK"]
    return [Launch(FUNCTION, grid(config, problem), {"EVEN": K % BK == 0})]


def tiling(config, problem):
    M, N, K = problem.dims["M"], problem.dims["N"], problem.dims["K"]
    BM, BK = config["BM"], config["BK"]
    return Tiling(
        (Axis("M", M, BM, BM), Axis("K", K, K, BK), Axis("N", N, BM, BK)),
        streamed_bytes=2 * BM,
        resident_bytes=4 * BM,
        traffic=7.0,
        reductions=2,
        moved_back=True,
        first_apart=BM > BK,
        in_place=True,
        dot=Dot(BM, BM, BK, stages=config.get("num_stages", 1), group=config["GROUP_M"], alone=True),
    )


def flops(problem):
    M, N = problem.dims["M"], problem.dims["N"]
    return round(12.5 * M * N)


def reference(inputs):
    import torch

    a, b, i, d = inputs["a"], inputs["b"], inputs["i"], inputs["d"]
    return dict(zip(("c", "d"), torch.mm(a, b, i, d), strict=True))


FUNCTION = "program.py:mm"

SPEC = KernelSpec(
    name="mm",
    summary="mm of program.py",
    function=(FUNCTION,),
    dims=("M", "N", "K"),
    dtypes=("float32", "float16"),
    flags=(Flag("causal", (False, True)),),
    parameters=(
        Parameter("BM", lambda problem, target: around(64, 128)),
        Parameter("BK", lambda problem, target: around(32)),
        Parameter("GROUP_M", lambda problem, target: around(8)),
        Parameter("fast", lambda problem, target: [True], role="option"),
        Parameter("num_warps", only_nvidia(1, 2, 4, 8, 16), role="option"),
        Parameter("num_stages", only_nvidia(1, 2, 3, 4), role="option"),
        Parameter("multibuffer", only_ascend(True, False), role="option"),
    ),
    buffers=buffers,
    scalars=lambda problem: {
        "m": problem.dims["M"],
        "stride": problem.dims["M"] * problem.dims["N"],
        "eps": 1e-06,
    },
    constants=lambda problem: {
        "WIDE": next_power_of_two(problem.dims["K"]),
        "OUT": tl.float32,
        "none": None,
        "causal": problem.flags.get("causal", False),
    },
    launches=launches,
    tiling=tiling,
    matrix_dtype=lambda problem: problem.dtype,
    reference=reference,
    flops=flops,
    default=lambda problem, target: config_for(target, CONFIGS[0]),
    imported={"helper": "lib:helper"},
    inferred=True,
)
'''


def copy(**changes):
    return spec_text(replace(COPY, **changes), Path("a/program.py"), {"y": 'role="out"'}, None, widen=False)


def test_a_copy_has_the_configs_of_its_program():
    found = spec_text(COPY, Path("a/program.py"), {"y": 'role="out"'}, None, widen=False, reference="x")
    assert found == OF_COPY


def test_a_product_has_its_division_its_flags_and_what_triton_computes():
    roles = {"c": 'role="out"', "d": 'role="inout"'}
    found = spec_text(PRODUCT, Path("program.py"), roles, DIVISION, widen=True, reference="torch.mm", multiplies=True)
    assert found == OF_PRODUCT


@pytest.mark.parametrize(
    ("configs", "listed"),
    [
        ([{"B": 1, "C": 1}, {"B": 2, "C": 2}], True),
        ([{"B": 1, "C": 1}, {"B": 2, "C": 1}], False),
        ([{"B": b, "C": c} for b in (1, 2) for c in (3, 4, 5)], False),
        ([{"B": 1, "num_warps": 4}, {"B": 2, "num_warps": 8}], True),
        ([{"B": 1, "num_warps": w, "num_stages": s} for w, s in ((4, 1), (4, 2), (8, 1), (8, 2))], False),
    ],
)
def test_configs_are_listed_unless_they_are_every_combination(configs, listed):
    assert ("configs=lambda problem, target: configs_for(target, CONFIGS)" in copy(configs=configs)) == listed


@pytest.mark.parametrize(("length", "lines"), [(64, 1), (65, 4)])
def test_a_dictionary_of_up_to_80_characters_stands_in_one_line(length, lines):
    """Beside the digits, 16: of `"a": 1` and `"bc": `, each with a comma and a space after it."""
    fixed = {"a": "1", "bc": "2" * length}
    text = copy(fits={}, fixed=fixed).partition("scalars=lambda problem: ")[2]
    assert text.partition("},\n")[0].count("\n") + 1 == lines


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((16, 64), "around(16, 64)"),
        ((2,), "around(2)"),
        ((1, 2), "[1, 2]"),
        ((16, 48), "[16, 48]"),
        ((True,), "[True]"),
        (("x",), '["x"]'),
    ],
)
def test_powers_of_two_are_widened(values, text):
    form = replace(COPY, configs=[{"B": value} for value in values])
    found = spec_text(form, Path("program.py"), {}, None, widen=True)
    assert f'Parameter("B", lambda problem, target: {text}),' in found
    assert 'Parameter("num_warps", only_nvidia(1, 2, 4, 8, 16), role="option")' in found
    assert '"num_warps": 4, "num_stages": 3}' in found


def test_a_whole_number_of_operations_is_multiplied_as_it_is():
    division = replace(DIVISION, flops_an_element=12.0, traffic=fit("1.0"), reductions=fit("0"), dot=None)
    found = spec_text(PRODUCT, Path("program.py"), {}, division, widen=False)
    assert "    return 12 * M * N\n" in found
    assert not any(word in found for word in ("traffic=", "reductions=", "Dot(", "matrix_dtype"))


def test_several_outputs_are_a_tuple_with_or_without_parentheses():
    for expression in ("a + 1, b", "(a + 1, b)"):
        roles = {"c": 'role="out"', "d": 'role="out"'}
        text = spec_text(PRODUCT, Path("program.py"), roles, DIVISION, widen=True, reference=expression)
        (line,) = [line.strip() for line in text.splitlines() if "dict(zip(" in line]
        assert eval(line.removeprefix("return "), {"a": 1, "b": 5}) == {"c": 2, "d": 5}


@pytest.mark.parametrize(
    ("expression", "found"), [("a, b", True), ("(a, b)", True), ("f(a, b)", False), ("a +", False), ("", False)]
)
def test_only_a_tuple_on_its_own_is_several_outputs(expression, found):
    assert _is_tuple(expression) is found


def test_text_is_written_as_it_reads():
    assert _literal('a "word"') == '"a \\"word\\""'
    assert _literal("größe") == '"größe"'
    assert (_literal(True), _literal(1.5)) == ("True", "1.5")
