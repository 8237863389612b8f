"""The sizes of a table: read from text, and put into shapes."""

import pytest

from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.errors import BadDimension, UsageError
from tilewise.kernels import registry
from tilewise.tuner.space.problem_checks import LARGEST
from tilewise.tuner.space.rungs import Rungs, parse_rungs


@pytest.mark.parametrize(
    ("text", "rungs"),
    [
        ("vllm", Rungs("M", LADDER)),
        ("sglang", Rungs("M", LADDER)),
        ("ROWS=vllm", Rungs("ROWS", LADDER)),
        ("M=1,2,4", Rungs("M", (1, 2, 4))),
        (" N = 64, 8 ,16", Rungs("N", (8, 16, 64))),
        (f"M={LARGEST}", Rungs("M", (LARGEST,))),
    ],
)
def test_rungs_are_a_tables_own_or_listed_and_ascend(text, rungs):
    assert parse_rungs(text) == rungs


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("tgi", UsageError, r"unknown table 'tgi'; expected vllm, sglang, or a dimension .* as in --rungs M=1,2,4,8"),
        ("M=tgi", UsageError, "unknown table 'tgi'"),
        ("", UsageError, "unknown table ''"),
        ("=4", UsageError, "unknown table '4'"),
        ("x" * 500, UsageError, f"unknown table '{'x' * 40}...'"),
        ("fla", UsageError, "tables of fla have no sizes of their own: .*; list those you need"),
        ("M=", BadDimension, f"rung '' of M is no size; expected whole numbers from 1 to {LARGEST}"),
        ("M=1,,2", BadDimension, "rung '' of M"),
        ("M=1,two", BadDimension, "rung 'two' of M"),
        ("M=0,1", BadDimension, "rung '0' of M"),
        ("M=-1", BadDimension, "rung '-1' of M"),
        ("M=1.5", BadDimension, "rung '1.5' of M"),
        (f"M={LARGEST + 1}", BadDimension, "is no size"),
        ("M=8,4,8", BadDimension, "rung M=8 is given twice"),
    ],
)
def test_text_that_names_no_rungs_gets_one_line(text, error, message):
    with pytest.raises(error, match=message) as caught:
        parse_rungs(text)
    assert "\n" not in str(caught.value)


def test_a_shape_is_taken_at_each_size():
    shape = {"N": 64, "bias": True}
    assert Rungs("M", (1, 8)).shapes(shape) == [{"N": 64, "bias": True, "M": 1}, {"N": 64, "bias": True, "M": 8}]
    with pytest.raises(BadDimension, match="dimension M is given in the shape and in the rungs; leave M=4 out"):
        Rungs("M", (1, 8)).shapes({"M": 4})


def test_a_kernel_without_the_dimension_is_told_how_to_name_its_own():
    Rungs("N", (1,)).check(registry.load("vector_add"))
    with pytest.raises(BadDimension, match=r"kernel vector_add has no dimension M .* it has N: .* --rungs N=vllm"):
        parse_rungs("vllm").check(registry.load("vector_add"))
