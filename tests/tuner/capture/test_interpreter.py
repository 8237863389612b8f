"""Launches that are interpreted where there is no accelerator, as a program chooses others by what they store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.tuner.capture.interpreter import NotInterpreted, interpret
from tilewise.tuner.capture.program import Ending, Program, run_program
from tilewise.tuner.capture.recorder import recording

pytest.importorskip("triton")

PROGRAM = """
import torch, triton
import triton.language as tl

@triton.jit
def doubled(x):
    return x * 2

@triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def count(x, sums, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(x + at, mask=at < n, other=0)
    tl.store(sums + at, tl.cumsum(doubled(found), 0), mask=at < n)
    tl.atomic_add(total, tl.sum(found, 0))

@triton.jit
def fill(out, sums, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(sums + at, mask=at < n, other=0).to(tl.float32), mask=at < n)

x = torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.int32, device="cuda")
sums, total = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device="cuda")
count[lambda meta: (triton.cdiv(6, meta["BLOCK"]),)](x, sums, total, 6)
out = torch.zeros(int(total), device="cuda")
fill[(1,)](out, sums, int(total), BLOCK=8)
assert float(out.sum()) == 0.0  # it stores no integers
assert type(tl.sum).__name__ == "JITFunction"  # this process keeps what compiles
"""

ENDLESS = """
import torch, triton
import triton.language as tl

@triton.jit
def endless(x):
    while tl.load(x) == 0:
        tl.store(x, 0)

@triton.jit
def beyond(x):
    tl.store(x + (1 << 40), 1)

@triton.jit
def wrong(x):
    tl.store(x, 5)
    tl.store(x, x.no_such_thing)
"""


def test_a_launch_has_the_sizes_and_values_that_an_earlier_kernel_computes(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with recording() as recorder:
        assert run_program(Program(str(file)), ()) == Ending()
    kernels = {kernel.name: kernel for kernel in recorder.kernels}
    assert [kernel.not_interpreted for kernel in recorder.kernels] == ["", ""]
    filled = kernels["fill"].calls[0].arguments
    assert filled["n"] == 4 and filled["out"].shape == (4,)
    assert filled["sums"].values == (2, 2, 4, 6, 0, 2)  # of the first config, which has blocks of 4


def test_a_launch_that_fails_crashes_or_does_not_end_leaves_its_tensors_and_says_why(tmp_path: Path):
    torch = pytest.importorskip("torch")
    from tilewise.tuner.measure.launch import load_function

    file = tmp_path / "endless.py"
    file.write_text(ENDLESS)
    x = torch.zeros(1, dtype=torch.int32)
    reasons = {"endless": "longer than 0.2 s", "beyond": "SIGSEGV", "wrong": "no_such_thing"}
    for name, reason in reasons.items():
        with pytest.raises(NotInterpreted, match=reason):
            interpret(load_function(file, name).fn, {"x": x}, (1,), seconds=0.2)
    assert int(x) == 0


COMPILED = """
import triton
import triton.language as tl

@triton.jit
def counted(x, n):
    for i in range(0, n):
        tl.store(x + i, (i * 2).to(tl.int64))

@triton.jit
def bits(dtype):
    width: tl.constexpr = dtype.value.primitive_bitwidth
    return width

@triton.jit
def measured(x):
    tl.store(x, bits(x.dtype.element_ty))
    tl.store(x + 1, tl.full([], 1, tl.int1).to(tl.int64))

@triton.jit
def inner(x):
    return x.no_such_thing

@triton.jit
def outer(x):
    tl.store(x, inner(x))
"""


def test_loops_run_over_scalars_and_dtypes_have_values_as_in_compiled_code(tmp_path: Path):
    torch = pytest.importorskip("torch")
    from tilewise.tuner.measure.launch import load_function

    file = tmp_path / "compiled.py"
    file.write_text(COMPILED)
    x = torch.zeros(4, dtype=torch.int64)
    interpret(load_function(file, "counted").fn, {"x": x, "n": 4}, (1,), seconds=5)
    assert x.tolist() == [0, 2, 4, 6]
    interpret(load_function(file, "measured").fn, {"x": x}, (1,), seconds=5)
    assert x.tolist() == [64, 1, 4, 6]
    with pytest.raises(NotInterpreted, match=r"^'tensor' object has no attribute 'no_such_thing'$"):
        interpret(load_function(file, "outer").fn, {"x": x}, (1,), seconds=5)
