"""Launches that are interpreted where there is no accelerator, as a program chooses others by what they store."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from pathlib import Path

import pytest

from tilewise.tuner.capture import interpreter
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


# One launch, in a fork of this process


def burn():
    while True:
        pass


@pytest.mark.parametrize(
    ("work", "seconds", "reason"),
    [
        (lambda: time.sleep(60), 0.05, "it waits for what never comes"),
        (burn, 0.05, "it takes longer than 0.05 s"),
        (os.abort, 1.0, "it ended by SIGABRT"),
        (lambda: os._exit(0), 1.0, "it ended without a word"),
        (lambda: int("x"), 1.0, "invalid literal for int() with base 10: 'x'"),
        (lambda: (_ for _ in ()).throw(KeyboardInterrupt), 1.0, "KeyboardInterrupt"),
    ],
)
def test_work_in_a_fork_that_does_not_end_well_says_how(monkeypatch, work, seconds, reason):
    monkeypatch.setattr(interpreter, "_WAITED_SECONDS", 0.2 if "never comes" in reason else 30.0)
    with pytest.raises(NotInterpreted) as failed:
        interpreter._in_fork(work, seconds)
    assert str(failed.value) == reason
    assert 0 <= failed.value.seconds < 1
    assert work is not burn or failed.value.seconds >= 0.05


def test_work_in_a_fork_that_is_done_tells_the_processor_time_that_it_took():
    assert 0 <= interpreter._in_fork(lambda: None, 5.0) < 1
    assert NotInterpreted("no reason").seconds == 0.0


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (signal.SIGPROF, "it takes longer than 2.5 s"),
        (signal.SIGSEGV, "it ended by SIGSEGV"),
        (0, "it ended without a word"),
    ],
)
def test_an_end_is_told_by_its_signal(status, told):
    assert interpreter._ending(status, 2.5) == told


class Tensor:
    """Memory of so many numbers of 4 bytes, from a place on."""

    def __init__(self, pointer, shape, strides):
        self.shape, self._pointer, self._strides = shape, pointer, strides

    def data_ptr(self):
        return self._pointer

    def stride(self):
        return self._strides

    def element_size(self):
        return 4


@pytest.mark.parametrize(
    ("shape", "strides", "size"),
    [
        ((10,), (1,), 40),
        ((2, 3), (3, 1), 24),
        ((2, 3), (8, 1), 44),
        ((2, 3), (0, 1), 12),
        ((4,), (2,), 28),
        ((), (), 4),
    ],
)
def test_a_tensor_takes_memory_up_to_its_last_element(shape, strides, size):
    assert interpreter._bytes(Tensor(0, shape, strides)) == size


@pytest.mark.parametrize(("most", "is_taken"), [(60, True), (59, False)])
def test_memory_of_all_tensors_is_limited_and_counted_once(monkeypatch, most, is_taken):
    seen = []
    monkeypatch.setattr(interpreter, "_MOST_BYTES", most)
    monkeypatch.setattr(interpreter, "_in_fork", lambda work, seconds: seen.append(seconds) or 0.25)
    monkeypatch.setattr(interpreter, "_copy", lambda tensors, results, back: seen.append((tensors, len(results), back)))
    whole, part, other = Tensor(64, (10,), (1,)), Tensor(64, (3,), (1,)), Tensor(4096, (5,), (1,))
    arguments = {"x": part, "y": whole, "z": part, "n": 10, "w": other}
    if not is_taken:
        with pytest.raises(NotInterpreted, match="its tensors take more than 0 MiB"):
            interpret(None, arguments, (1,), seconds=3.0)
        return
    assert interpret(None, arguments, (1,), seconds=3.0) == 0.25
    assert seen == [3.0, ({64: 40, 4096: 20}, 60, True)]


def test_bytes_of_tensors_are_copied_to_shared_memory_and_back():
    first, second = ctypes.create_string_buffer(b"abcd", 4), ctypes.create_string_buffer(b"xyz", 3)
    tensors = {ctypes.addressof(first): 4, ctypes.addressof(second): 3}
    with mmap.mmap(-1, 7) as shared:
        interpreter._copy(tensors, shared)
        assert shared[:] == b"abcdxyz"
        shared[:] = b"ABCDXYZ"
        interpreter._copy(tensors, shared, back=True)
    assert (first.raw, second.raw) == (b"ABCD", b"XYZ")
