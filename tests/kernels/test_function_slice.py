"""Functions taken from programs that are not run."""

from __future__ import annotations

import sys

import pytest

from tilewise.errors import BadSpec
from tilewise.kernels.function_slice import function_slice, given_names, is_kernel, missing_names, package_of
from tilewise.kernels.source import function_hash

PROGRAM = """
from __future__ import annotations
import decorators as triton
import missing_module
from operator import add as plus

WIDTH = 3
UNUSED = undefined_name

def helper(x):
    return plus(x, WIDTH)

@triton.autotune(configs=absent, key=["n"])
@triton.heuristics({"EVEN": lambda args: missing_module.even(args)})
@triton.jit
def kernel(x):
    return helper(x)

raise SystemExit("the program ran")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "decorators.py").write_text("def jit(function):\n    function.jitted = True\n    return function\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    yield file
    sys.modules.pop("decorators", None)


def test_only_what_the_function_uses_is_run(program):
    names = {}
    exec(function_slice(program, "kernel"), names)
    assert names["kernel"](4) == 7 and names["kernel"].jitted
    assert "UNUSED" not in names and "missing_module" not in names


def test_names_of_the_function_itself_take_nothing_from_the_program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "jit = lambda function: function\nN = 2\n@jit\ndef kernel(q, n=N):\n    k = q\n    return k * n\n\n"
        "for k, q in launch():\n    kernel(q)\n"
    )
    names = {}
    exec(function_slice(file, "kernel"), names)
    assert names["kernel"](3) == 6


def test_a_missing_function_is_told(program):
    with pytest.raises(BadSpec, match="no function 'absent' at its top level"):
        function_slice(program, "absent")
    with pytest.raises(BadSpec, match="cannot be read"):
        function_slice(program.with_name("absent.py"), "kernel")


def test_a_kernel_is_told_from_other_names(program):
    assert is_kernel(program, "kernel")
    assert not is_kernel(program, "helper") and not is_kernel(program, "WIDTH")
    assert not is_kernel(program.with_name("absent.py"), "kernel")


def test_the_package_of_a_file(program):
    assert package_of(program) == (program.parent, "")
    inner = program.parent / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    assert package_of(inner / "module.py") == (program.parent, "outer.inner")


def test_the_hash_leaves_out_what_chooses_a_config(program):
    def hashed():
        names = {}
        exec(function_slice(program, "kernel"), names)
        return function_hash(names["kernel"])

    before = hashed()
    program.write_text(PROGRAM.replace("configs=absent", "configs=other"))
    assert hashed() == before
    program.write_text(PROGRAM.replace("@triton.autotune(configs=absent", "@autotune(configs=absent"))
    assert hashed() == before
    program.write_text(PROGRAM.replace("WIDTH = 3", "WIDTH = 4"))
    assert hashed() != before


def test_names_that_the_file_does_not_define_are_told(program):
    assert missing_names(program, "kernel") == set()
    program.write_text(PROGRAM.replace("plus(x, WIDTH)", "plus(given(x), WIDTH) + len(UNUSED)"))
    assert missing_names(program, "kernel") == {"given", "undefined_name"}


def test_decorators_that_are_called_on_the_function_are_left_out_too(program):
    program.write_text(
        "import decorators as triton\n"
        "def kernel(x):\n    return x\n"
        "kernel = triton.jit(kernel)\n"
        "kernel = triton.heuristics({'EVEN': absent})(kernel)\n"
        "kernel = absent()(kernel)\n"
        "kernel = triton.autotune(kernel, configs=absent)\n"
    )
    names = {}
    exec(function_slice(program, "kernel"), names)
    assert names["kernel"].jitted and names["kernel"](3) == 3


def test_a_constant_that_only_the_script_sets_is_in_the_slice(tmp_path):
    file = tmp_path / "script.py"
    main = 'if "__main__" == __name__:\n    WIDTH = 3\n    x = undefined_name\nelse:\n    y = undefined_name\n'
    file.write_text(f"def kernel(x, y):\n    return x * y * WIDTH\n\n{main}")
    names: dict[str, object] = {}
    exec(function_slice(file, "kernel"), names)
    assert names["kernel"](2, 5) == 30 and not {"x", "y"} & names.keys()
    assert missing_names(file, "kernel") == set()


def test_a_function_inside_another_takes_the_statements_around_it(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "jit = lambda function: function\nBASE = 1\n\n"
        "def build(count):\n    import operator\n    STEP = BASE + 1\n    helper = lambda x: operator.mul(x, STEP)\n\n"
        "    @jit\n    def kernel(x):\n        return helper(x)\n\n    return kernel\n"
    )
    names = {}
    exec(function_slice(file, "build.kernel"), names)
    assert names["kernel"](3) == 6
    program = {"__name__": "program"}
    exec(compile(file.read_text(), str(file), "exec"), program)
    assert function_hash(program["build"](1)) == function_hash(program["build"](2))


def test_a_function_that_uses_an_argument_of_the_one_around_it_is_refused(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("def build(step):\n    @jit\n    def kernel(x):\n        return x * step\n\n    return kernel\n")
    with pytest.raises(BadSpec, match="kernel uses step, given to a function around it"):
        function_slice(file, "build.kernel")
    assert given_names(file, "build.kernel") == {"step"}
    program = {"jit": lambda function: function, "__name__": "program"}
    exec(compile(file.read_text(), str(file), "exec"), program)
    with pytest.raises(BadSpec, match="uses step"):
        function_hash(program["build"](1))


def test_of_an_if_around_the_kernel_only_the_branch_with_it_is_run(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "jit = lambda function: function\n"
        "if absent.is_available():\n    @autotune(absent)\n    @jit\n    def kernel(x):\n        return x + 1\n\n"
        "    class Other(absent.Base):\n        pass\n"
        "else:\n    def kernel(*args):\n        raise RuntimeError\n"
    )
    names = {}
    exec(function_slice(file, "kernel"), names)
    assert names["kernel"](1) == 2 and "Other" not in names
