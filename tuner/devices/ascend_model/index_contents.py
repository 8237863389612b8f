"""The integers by which a config's launches decide what to do: offsets of groups, routing of tokens, lengths.

A kernel whose loops or branches depend on them takes a time that does too. It is timed on those that its spec draws.
Those that a launch makes for a later one, such as a sorted routing, come from executing the launch's compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tilewise.kernels.spec import Buffer, Config, KernelSpec, Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.global_memory import buffers_of, written_arguments
from tilewise.tuner.devices.ascend_model.executor.hazards import Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import POISON, Array, Fault
from tilewise.tuner.devices.ascend_model.executor.mixed import executor_of
from tilewise.tuner.devices.ascend_model.executor.verification import stored
from tilewise.tuner.devices.ascend_model.ir.hivm import Function
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES
from tilewise.tuner.measure.draws import Way, draw
from tilewise.tuner.measure.verify import SEED

if TYPE_CHECKING:
    import torch

__all__ = ["IndexContents"]

_INTEGERS = ("int32", "int64")

_DRAWN_BYTES = 64 << 20
"""Size up to which a buffer is really there while the spec draws its integers; of larger ones all elements are one."""


_MADE: dict[tuple[str, str, str], dict[str, Array]] = {}
"""Buffers that launches made, by the spec's origin, the problem and the launch: most configs of a problem share it."""

_MOST_MADE = 64


class IndexContents:
    """The contents of a config's integer buffers, found when they are first asked for.

    `functions` is the compiled code of its launches, in order.
    """

    def __init__(self, spec: KernelSpec, problem: Problem, config: Config, functions: Sequence[Function]) -> None:
        self._spec, self._problem, self._config, self._functions = spec, problem, config, functions

    def of(self, index: int) -> Sequence[Array | None]:
        """Return the contents of a launch's buffers in the order of its arguments, None for what nobody knows."""
        launch = self._spec.plan(self._config, self._problem)[index]
        sizes, _ = toolchain.arguments(self._spec, self._problem, self._config, launch)
        return [self._known.get(name) for name in sizes]

    @cached_property
    def _known(self) -> dict[str, Array]:
        """Return the contents by name: those drawn, then those that launches make of nothing else."""
        known = self._drawn()
        scratch = self._spec.scratch(self._config, self._problem)
        for launch, function in zip(self._spec.plan(self._config, self._problem), self._functions, strict=True):
            sizes, scalars = toolchain.arguments(self._spec, self._problem, self._config, launch)
            names = buffers_of(function, list(sizes))
            written = {
                names[at] for half in function.halves() for at in written_arguments(half) if at in names
            } - known.keys()
            made = {name: scratch[name] for name in written if name in scratch}
            if not written or set(sizes) - known.keys() != made.keys() or not all(map(_holds_integers, made.values())):
                continue
            key = (self._spec.origin, str(self._problem), str(launch))
            if key not in _MADE or not self._spec.origin:
                if len(_MADE) >= _MOST_MADE:
                    _MADE.clear()
                buffers = {name: known[name] if name in known else _poisoned(made[name]) for name in sizes}
                _execute(function, buffers, scalars, launch.grid)
                _MADE[key] = {name: buffers[name] for name in made}
            known |= _MADE[key]
        return known

    def _drawn(self) -> dict[str, Array]:
        import torch

        generator = torch.Generator().manual_seed(SEED)
        buffers = {name: each for name, each in self._spec.buffers(self._problem).items() if each.role != "out"}
        tensors = {name: _empty(buffer) for name, buffer in buffers.items()}
        # without a spec's word on them, integers are as random as any number, and the time would be too
        chosen = {name for name, buffer in buffers.items() if self._spec.fill is not None or buffer.draw is not None}
        integers = [name for name, buffer in buffers.items() if name in chosen and _holds_integers(buffer)]
        for name in integers:
            draw(tensors[name], buffers[name], generator, Way.NORMAL, {})
        if self._spec.fill is not None:
            self._spec.fill(tensors, self._problem, generator)
        return {name: stored(tensors[name]) for name in integers}


def _execute(
    function: Function, buffers: dict[str, Array], scalars: Sequence[int | float], grid: Sequence[int]
) -> None:
    executor = executor_of(function, ON_CHIP_BYTES["ub"], order=Unordered)
    try:
        executor.run(buffers, scalars, grid)
    except Fault as fault:
        raise UnknownOperation(f"{function.name}, on which a later launch depends, fails: {fault}") from fault


def _holds_integers(buffer: Buffer) -> bool:
    return buffer.dtype in _INTEGERS and buffer.span_bytes <= _DRAWN_BYTES


def _empty(buffer: Buffer) -> torch.Tensor:
    import torch

    dtype = getattr(torch, buffer.dtype)
    if buffer.span_bytes > _DRAWN_BYTES:
        return torch.empty(1, dtype=dtype).expand(buffer.shape)
    strides = buffer.strides or torch.empty(buffer.shape, device="meta").stride()
    return torch.empty_strided(buffer.shape, strides, dtype=dtype)


def _poisoned(buffer: Buffer) -> Array:
    import torch

    contents: Array = stored(torch.empty(buffer.span, dtype=getattr(torch, buffer.dtype)))
    contents.view("uint8").fill(POISON)
    return contents
