"""Source lines of compiled code: keeping them does not change the program, and each operation has its line."""

from pathlib import Path

import pytest

from tilewise.kernels import registry
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.ir.hivm import parse
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place, without_locations

KERNELS = Path(registry.__file__).resolve().parent / "jit"


@pytest.fixture(scope="module")
def located(cache_folder, target):
    """The first launch of a kernel's default config: its program without and with lines, and its operations."""

    def compile_both(name, dims):
        from tilewise.kernels.spec import Problem

        spec = registry.load(name)
        problem = Problem(name, dims, "float32")
        config = spec.default(problem, target)
        launch = spec.plan(config, problem)[0]
        codes = []
        for locations in (False, True):
            linalg = toolchain.lower(spec, problem, config, launch, target.name, locations=locations)
            options = {"config": {}, "cache_folder": cache_folder, "locations": locations}
            codes.append(toolchain.compile_linalg(linalg, target.name, **options).code)
        code, operations = without_locations(codes[1])
        return parse(codes[0]), parse(code), operations

    return compile_both


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("row_reduce", {"M": 1000, "N": 8192}),
        ("softmax", {"M": 256, "N": 1000}),
        ("batch_norm", {"N": 4, "C": 8, "HW": 64}),
    ],
)
def test_keeping_the_lines_changes_no_operation(name, dims, located):
    plain, with_lines, operations = located(name, dims)
    assert with_lines == plain
    assert [operation for operation, _ in operations] == [op.name for op in plain.body.walk()]


def test_what_a_kernel_does_is_placed_on_the_line_that_says_so(located):
    _, _, operations = located("row_reduce", {"M": 1000, "N": 8192})
    lines = {name: {place.text for other, place in operations if other == name and place} for name, _ in operations}
    assert lines["hivm.hir.vreduce"] == {"tl.store(out_ptr + rows, tl.sum(total, axis=1), mask=rows < end)"}
    assert len(lines["hivm.hir.load"]) == 2
    assert all("tl.load(" in line for line in lines["hivm.hir.load"])
    assert any("tl.sigmoid" in line for line in lines["hivm.hir.vexp"])  # a library call has the caller's line
    assert {Path(place.file).resolve().parent for _, place in operations if place} == {KERNELS}


def test_a_location_inside_a_call_is_the_innermost_that_is_no_librarys():
    code = """#loc1 = loc("/p/inner.py":7:1)
#loc2 = loc("/p/outer.py":9:2)
#loc3 = loc(callsite(#loc1 at #loc2))
#loc4 = loc("kernel.mlir":3:3)
"builtin.module"() ({
  "func.func"() <{hacc.entry}> ({
  ^bb0(%a: i32 loc("/p/outer.py":1:0)):
    "scf.if"(%a) ({
      "x.nested"(%a) {text = "a (b) loc"} : (i32) -> () loc(#loc3)
    }, {
    }) : (i32) -> () loc(#loc4)
    %b = "x.last"() : () -> i32 loc("/p/outer.py":11:0)
  }) : () -> () loc(#loc2)
}) : () -> () loc(#loc2)
"""
    stripped, operations = without_locations(code)
    assert operations == [
        ("scf.if", None),
        ("x.nested", Place("/p/inner.py", 7)),
        ("x.last", Place("/p/outer.py", 11)),
    ]
    assert "#loc" not in stripped
    assert 'loc("' not in stripped
    assert '{text = "a (b) loc"}' in stripped


def test_a_line_of_a_file_that_is_gone_has_no_text():
    place = Place("/nowhere/kernel.py", 3)
    assert (place.text, str(place)) == ("", "kernel.py:3")
