"""A config's traffic through global memory, the least that the problem needs, and the reasons for the excess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewise.kernels.spec import Buffer, Config, KernelSpec, Problem

__all__ = ["traffic"]

_NOTABLE_EXCESS = 0.01
"""Excess traffic of a buffer, as a share of the least traffic, above which it gets a reason."""

_SMALL = 1 / 8
"""Share of the largest buffer up to which an input counts as an operand that programs share, not as streamed data."""


def traffic(spec: KernelSpec, problem: Problem, config: Config, moved: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Return `bytes`, `least_bytes`, their `ratio`, and `reasons`.

    `reasons` has one sentence per buffer that moves more than it needs, largest excess first. `moved` maps each buffer
    to its bytes read and written over all launches.
    """
    least = spec.bytes(problem)
    buffers = {**spec.buffers(problem), **spec.scratch(config, problem)}
    scratch = spec.scratch(config, problem).keys()
    largest = max(buffer.bytes for buffer in buffers.values())
    extra = {name: _extra(buffers[name], *moved[name], scratch=name in scratch) for name in moved}
    worst = sorted((name for name in extra if extra[name] > _NOTABLE_EXCESS * least), key=lambda name: -extra[name])
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
    """Return the bytes beyond one read of an input and one write of an output; all bytes of scratch."""
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
        return f"read {times:.2f} times: tiles overlap or extend past the edge"
    if buffer.bytes <= _SMALL * largest:
        return f"read {times:.0f} times: each program or sub-tile loads it again"
    return f"read {times:.1f} times: the kernel passes over the data more than once"
