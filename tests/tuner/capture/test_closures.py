"""Kernels inside functions, under Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.tuner.capture.closures import closures_kept

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tilewise.tuner.capture.interpreter import interpret  # noqa: E402
from tilewise.tuner.measure.launch import load_function  # noqa: E402

PROGRAM = """
import triton
import triton.language as tl

def made(factor):
    @triton.jit
    def scaled(x):
        return x * factor

    @triton.jit
    def kernel(x):
        tl.store(x, scaled(tl.load(x)))

    return kernel

two, three = made(2), made(3)
"""


def test_each_kernel_sees_the_variables_around_it(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    x = torch.ones(1, dtype=torch.int64)
    for name in ("two", "three", "two"):
        interpret(load_function(file, name).fn, {"x": x}, (1,), seconds=5)
    assert x.tolist() == [12]


def test_the_interpreter_is_as_before_when_the_block_ends():
    from triton.runtime.interpreter import FunctionRewriter

    before = FunctionRewriter._compile_and_exec
    with closures_kept():
        assert FunctionRewriter._compile_and_exec is not before
    assert FunctionRewriter._compile_and_exec is before
