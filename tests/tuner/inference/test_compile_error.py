"""A front end's refusal, told with the line of the kernel, or quoted from a function that it calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.inference.compile_error import describe_at_source

SOURCE = "def kernel(x):\n    y = x + 1\n    y %= 0\n"
FILE = f"import triton\n\n\n@triton.jit\n{SOURCE}\n\nOTHER = 1\n"


class CompilationError(Exception):
    """Of the front end's form: the function's source, and the node that it refuses."""

    def __init__(self, text, line, source=SOURCE):
        super().__init__(text)
        self.src, self.node = source, SimpleNamespace(lineno=line)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "kernel.py").write_text(FILE)
    return tmp_path / "kernel.py"


def test_a_line_of_the_kernel_is_told_by_its_number_in_the_file(file):
    assert describe_at_source(CompilationError("no remainder of 0", 3), file) == "kernel.py:7: no remainder of 0"
    assert describe_at_source(CompilationError("not a kernel", 1), file).startswith("kernel.py:5: ")


@pytest.mark.parametrize("quote", ['"', "'"])
def test_the_repr_of_another_error_is_told_as_its_kind_and_text(file, quote):
    error = CompilationError(f"ValueError({quote}it's odd{quote})", 2)
    assert describe_at_source(error, file) == "kernel.py:6: ValueError: it's odd"


def test_a_line_of_a_function_elsewhere_is_quoted(file):
    error = CompilationError("call failed", 2)
    error.__cause__ = CompilationError("deeper", 2)
    error.__cause__.__cause__ = CompilationError("deepest", 2, "def helper(x):\n    return x.odd\n")
    assert describe_at_source(error, file) == "`return x.odd`: deepest"
    error.__cause__.__cause__.__cause__ = ValueError("why")  # no line of its own
    assert describe_at_source(error, file) == "`return x.odd`: why"


def test_an_error_without_a_place_is_told_by_its_kind_unless_it_is_of_a_value(file):
    assert describe_at_source(ValueError("it is odd"), file) == "it is odd"
    assert describe_at_source(KeyError("M"), file).startswith("KeyError: ")
    assert describe_at_source(CompilationError("nowhere", 0), file) == "CompilationError: nowhere"
