"""A launch on a host without an accelerator, by Triton's interpreter.

It has a process of its own, a fork: the interpreter changes Triton's functions for good, and a kernel may store beyond
its tensors or never end. Only what it stores in its tensors comes back.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import importlib
import mmap
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.tuner.capture.closures import closures_kept
from tilewise.tuner.workers.worker import describe

__all__ = ["NotInterpreted", "interpret"]

_MOST_BYTES = 1 << 28
"""Memory of all tensors of a launch: more would take the interpreter longer than its time limit."""

_WAITED_SECONDS = 60.0
"""Wall-clock time of a launch, beside its processor time, after which it is taken to wait for nothing."""


class NotInterpreted(Exception):
    """A launch that the interpreter did not finish in `seconds`; the text says why, in a few words."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


def interpret(
    function: Callable[..., Any], arguments: Mapping[str, Any], grid: Sequence[int], *, seconds: float
) -> float:
    """Run a jitted function over the grid and return the processor seconds that it took.

    Raises `NotInterpreted` if it fails or takes longer than `seconds`; then its tensors are as they were.
    """
    tensors: dict[int, int] = {}
    for tensor in (value for value in arguments.values() if hasattr(value, "data_ptr")):
        tensors[tensor.data_ptr()] = max(_bytes(tensor), tensors.get(tensor.data_ptr(), 0))
    if sum(tensors.values()) > _MOST_BYTES:
        raise NotInterpreted(f"its tensors take more than {_MOST_BYTES >> 20} MiB")
    with mmap.mmap(-1, max(1, sum(tensors.values()))) as results:
        used = _in_fork(lambda: _run(function, arguments, grid, tensors, results), seconds)
        _copy(tensors, results, back=True)
    return used


def _bytes(tensor: Any) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(last + 1) * int(tensor.element_size())


def _copy(tensors: Mapping[int, int], shared: mmap.mmap, *, back: bool = False) -> None:
    """Copy the bytes of tensors to shared memory, one after the other, or back."""
    start = ctypes.c_char.from_buffer(shared)
    place = ctypes.addressof(start)
    for pointer, size in tensors.items():
        ctypes.memmove(*((pointer, place) if back else (place, pointer)), size)
        place += size
    del start  # the memory cannot be closed before


def _in_fork(work: Callable[[], None], seconds: float) -> float:
    """Do some work in a fork of this process; return its processor seconds."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        _end_child(work, tells, seconds)
    os.close(tells)
    reason = None
    try:
        if select.select([told], [], [], _WAITED_SECONDS + seconds)[0]:
            reason = os.read(told, 1 << 12).decode(errors="replace")
    finally:
        os.close(told)
        if reason is None:
            os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    used = usage.ru_utime + usage.ru_stime
    if reason is None:
        raise NotInterpreted("it waits for what never comes", used)
    if reason != _DONE:
        raise NotInterpreted(reason or _ending(status, seconds), used)
    return used


_DONE = "\0"
"""Told by the child when its work is done; anything else is the reason why it is not."""


def _ending(status: int, seconds: float) -> str:
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended == signal.SIGPROF:
        return f"it takes longer than {seconds:g} s"
    return f"it ended by {signal.Signals(ended).name}" if ended else "it ended without a word"


def _end_child(work: Callable[[], None], tells: int, seconds: float) -> None:
    """Do the work and end this process, without anything that its parent would do at its end."""
    text = "it failed"
    try:
        faulthandler.disable()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process when the timer sends it
        signal.setitimer(signal.ITIMER_PROF, seconds)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        work()
        text = _DONE
    except BaseException as error:
        text = describe(error) or type(error).__name__
    finally:
        os.write(tells, text.encode()[: 1 << 12])
        os._exit(0)


def _run(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    grid: Sequence[int],
    tensors: Mapping[int, int],
    results: mmap.mmap,
) -> None:
    """Interpret a launch and copy what its tensors hold then."""
    importlib.import_module("torch").set_num_threads(1)  # the pool's threads are not in a fork
    interpreter = importlib.import_module("triton.runtime.interpreter")
    for name, value in (("create_masked_store", 1), ("create_atomic_rmw", 2)):
        setattr(interpreter.InterpreterBuilder, name, _as_wide(interpreter, name, value))

    @functools.cache
    def interpreted(function: Any) -> Any:
        function.__globals__.setdefault("range", _range_of_scalars(interpreter))
        return interpreter.InterpretedFunction(function)

    language = importlib.import_module("triton.language")
    language.dtype.value = property(lambda self: self)  # compiled functions get a dtype as a constant
    interpreter.InterpreterBuilder.get_int1_ty = lambda self: language.int1  # lacking in 3.2
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    jit.__call__ = lambda self, *args, **kwargs: interpreted(self.fn)(*args, **kwargs)
    with closures_kept():
        interpreted(function).run(**arguments, grid=tuple(grid), warmup=False)
    _copy(tensors, results)


def _range_of_scalars(interpreter: Any) -> Callable[..., Any]:
    """Return `range` with the scalars over which compiled loops run: the interpreter's would run over plain numbers."""
    return lambda *bounds: map(interpreter._implicit_cvt, range(*bounds))


def _as_wide(interpreter: Any, name: str, value: int) -> Callable[..., Any]:
    """Return a method of the interpreter that writes its argument `value` as wide as Triton's type: NumPy's running
    sums of 32-bit integers have 64 bits."""
    method = getattr(interpreter.InterpreterBuilder, name)

    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = args[value]
        handle.data = handle.data.astype(interpreter._get_np_dtype(handle.dtype), copy=False)
        return method(self, *args, **kwargs)

    return write
