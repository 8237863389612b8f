"""What a config moves through global memory, beside the least that the problem needs, and why it is more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.kernels.spec import Buffer, Config, KernelSpec, Problem

__all__ = ["traffic"]

_WORTH_A_WORD = 0.01
"""Of the least traffic: what a buffer may move beyond its need before it is named."""

_SMALL = 1 / 8
"""Of the largest buffer: an operand that programs share, rather than data that is passed over."""


def traffic(spec: KernelSpec, problem: Problem, config: Config, moved: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """`bytes`, `least_bytes`, their `ratio`, and `reasons`: a sentence for each buffer that moves more than it needs,
    the one that adds most first. `moved` is bytes read and written by buffer, over all launches."""
    least = spec.bytes(problem)
    buffers = {**spec.buffers(problem), **spec.scratch(config, problem)}
    scratch = spec.scratch(config, problem).keys()
    largest = max(buffer.bytes for buffer in buffers.values())
    extra = {name: _extra(buffers[name], *moved[name], scratch=name in scratch) for name in moved}
    worst = sorted((name for name in extra if extra[name] > _WORTH_A_WORD * least), key=lambda name: -extra[name])
    total = sum(read + written for read, written in moved.values())
    return {
        "bytes": total,
        "least_bytes": least,
        "ratio": round(total / least, 3),
        "reasons": [
            f"{name} is {_why(buffers[name], *moved[name], scratch=name in scratch, largest=largest)} "
            f"(+{extra[name] / least:.0%})"
            for name in worst
        ],
    }


def _extra(buffer: Buffer, read: int, written: int, *, scratch: bool) -> int:
    """Bytes beyond one read of an input and one write of an output."""
    needed = 0 if scratch else buffer.bytes * (2 if buffer.role == "inout" else 1)
    return read + written - needed


def _why(buffer: Buffer, read: int, written: int, *, scratch: bool, largest: int) -> str:
    if scratch:
        return "scratch between launches, written and read again"
    times = read / buffer.bytes
    if buffer.role != "in":
        stored = written / buffer.bytes
        return f"written {stored:.2f} times" + (f" and read {times:.2f} times" if read else "")
    if times < 1.5:
        return f"read {times:.2f} times: tiles overlap or reach over the edge"
    if buffer.bytes <= _SMALL * largest:
        return f"read {times:.0f} times: each program or sub-tile loads it again"
    return f"read {times:.1f} times: the kernel passes over the data more than once"
