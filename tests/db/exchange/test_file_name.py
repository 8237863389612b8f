"""Names of exported files from templates."""

from __future__ import annotations

import pytest

from tilewise.db.exchange.file_name import file_name, plain, scope_fields
from tilewise.db.records import Clock, Problem, Scope
from tilewise.errors import UsageError

PROBLEM = Problem("mm/a", {"M": 1, "N": 64, "K": 32}, "float16", {"causal": True, "bias": False, "act": "silu"})
SCOPE = Scope(PROBLEM, "a1", "NVIDIA H200", Clock.MEASURED, "cuda 13, triton 3.6.0, driver 5", 132)
FIELDS = {"N": "64", "empty": "", "causal": "True", "dtype": "int8"}


def test_every_template_may_use_the_fields_of_a_scope():
    assert scope_fields(SCOPE, "M") == {
        "causal": "True",
        "bias": "",
        "act": "silu",
        "N": "64",
        "K": "32",
        "kernel": "mm_a",
        "device": "NVIDIA_H200",
        "dtype": "float16",
        "dims": "N=64,K=32",
        "triton": "3_6_0",
    }
    assert scope_fields(SCOPE, "K")["dims"] == "M=1,N=64"


@pytest.mark.parametrize(
    ("toolchain", "version"),
    [("triton 3.6.0", "3_6_0"), ("a triton 10.2", "10_2"), ("triton 3", ""), ("mytriton 3.6.0", ""), ("", "")],
)
def test_the_version_of_triton_is_that_of_the_toolchain(toolchain, version):
    scope = Scope(PROBLEM, "a1", "H", Clock.MEASURED, toolchain, 1)
    assert scope_fields(scope, "M")["triton"] == version


def test_what_is_awkward_in_a_path_is_one_underscore():
    assert plain("a b/c\\d:*e") == "a_b_c_d_e"
    assert plain("A=1,b.c(d)[e]+f-g_é") == "A=1,b.c(d)[e]+f-g_é"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("N={N}.json", "N=64.json"),
        ("{N:,N=}.json", ",N=64.json"),
        ("a{empty:,x=}{unknown:_}b", "ab"),
        ("a{causal:_causal}", "a_causal"),
        ("a{causal:causal=}", "acausal=True"),
        ("a{dtype:_}", "a_int8"),
        ("folder/{N}", "folder/64"),
        ("plain", "plain"),
    ],
)
def test_a_prefix_stands_with_its_field_or_not_at_all(template, name):
    assert file_name(template, FIELDS) == name


@pytest.mark.parametrize("field", ["empty", "unknown"])
def test_a_field_that_a_name_needs_is_missed_by_its_name(field):
    with pytest.raises(UsageError) as refused:
        file_name(f"x{{{field}}}", FIELDS)
    assert str(refused.value) == (
        f"the name 'x{{{field}}}' needs {field}, which this problem does not have; it has N, causal, dtype"
    )


@pytest.mark.parametrize("template", ["", "/a", "a/", "a//b", "../a", "a/./b", ".", "a{", "a}b", "a\\b", "a\nb", "a\0"])
def test_a_name_outside_of_the_folder_is_refused(template):
    with pytest.raises(UsageError, match="is not a file's name; expected for example N="):
        file_name(template, FIELDS)
