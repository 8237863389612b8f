"""Kernels called with tensors alone: the config is looked up and the spec makes the launches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.records import Flags
from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Buffer, KernelSpec, Problem
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.measure.launch import arguments_of, interpreted, options_of, resolve_function, with_allocator
from tilewise.tuner.measure.tensor_descriptors import describers, with_descriptors
from tilewise.tuner.runtime.call_signature import NO_FLAGS, signature_from_buffers
from tilewise.tuner.runtime.config_selector import WAIT_SECONDS, Choice, ConfigSelector
from tilewise.tuner.runtime.torch_custom_op import custom_op
from tilewise.tuner.space.problem_checks import checked_flags

__all__ = ["Operator"]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The launch plan of a shape: required buffers, initial values, scratch to allocate, and the steps."""

    buffers: Mapping[str, Buffer]
    initials: Mapping[str, float]
    scratch: Mapping[str, tuple[tuple[int, ...], Any]]
    steps: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...]


def _is_laid_out(tensor: Any, buffer: Buffer) -> bool:
    if buffer.strides is None:
        return bool(tensor.is_contiguous())
    given = zip(tensor.shape, tensor.stride(), buffer.strides, strict=True)
    return all(size == 1 or stride == wanted for size, stride, wanted in given)


class Operator:
    """A kernel to call with tensors, outputs included, in the order of the spec's buffers or by name.

    They are contiguous, or have the strides that the spec gives. See `tuned` for the parameters; `flags` are those of
    all calls. Each call resets the outputs that the kernel accumulates into to their initial values and allocates
    scratch buffers. It raises `UsageError` for tensors that do not make a problem of the kernel. `torch.compile` sees a
    call as one operation.

        softmax = tilewise.Operator("softmax", "configs.json")
        softmax(x, out)
    """

    @renamed_keywords(cache="source", wait_seconds="timeout")
    def __init__(
        self,
        spec: KernelSpec | str,
        source: str | Path | Store | None = None,
        *,
        flags: Flags = NO_FLAGS,
        device: str | None = None,
        match: str = Match.PREDICTED,
        timeout: float = WAIT_SECONDS,
        explain: bool = False,
    ) -> None:
        self.spec = registry.load(spec) if isinstance(spec, str) else spec
        self._flags = checked_flags(self.spec, flags)
        self._signature = signature_from_buffers(self.spec, self._flags)
        probe = Problem(self.spec.name, dict.fromkeys(self.spec.dims, 64), self.spec.dtypes[0], self._flags)
        self.arguments = tuple(self.spec.buffers(probe))
        self._key = self._signature.key_of(self.arguments)
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._keys: dict[str, set[tuple[Any, ...]]] = {}
        self._selector = ConfigSelector(
            self.spec,
            source,
            device=device,
            match=match,
            timeout=timeout,
            explain=explain,
            on_change=self._changed,
        )
        self._is_compiling: Callable[[], bool] = bool  # always False without torch
        if "torch" in sys.modules:
            import torch

            self._operation = custom_op(self.spec, self.arguments, self._call, self._flags, place="operator")
            self._is_compiling = torch.compiler.is_compiling

    @property
    def choices(self) -> list[Choice]:
        """The choice for each shape so far, with its reason."""
        return list(self._selector.choices.values())

    def __call__(self, *tensors: Any, **named: Any) -> None:
        given = {**dict(zip(self.arguments, tensors, strict=False)), **named}
        if len(tensors) > len(self.arguments) or given.keys() != set(self.arguments):
            raise UsageError(f"kernel {self.spec.name} must be called with the tensors {', '.join(self.arguments)}")
        ordered = [given[name] for name in self.arguments]
        (self._operation if self._is_compiling() else self._call)(*ordered)

    def _call(self, *ordered: Any) -> None:
        given = dict(zip(self.arguments, ordered, strict=True))
        plan = self._plans.get(self._key_of(ordered))
        if plan is not None:
            self._launch(plan, given)
        else:
            self._launch_first(ordered, given)

    def _launch(self, plan: _Plan, given: dict[str, Any]) -> None:
        for name, buffer in plan.buffers.items():
            if tuple(given[name].shape) != buffer.shape or not _is_laid_out(given[name], buffer):
                layout = "contiguous" if buffer.strides is None else f"with the strides {buffer.strides}"
                raise UsageError(
                    f"kernel {self.spec.name}: {name} is {tuple(given[name].shape)}; expected {buffer.shape}, {layout}"
                )
        for name, value in plan.initials.items():
            given[name].fill_(value)
        for name, (shape, dtype) in plan.scratch.items():
            given[name] = given[self.arguments[0]].new_empty(shape, dtype=dtype)
        for run, wanted in plan.steps:
            run(**{name: given[name] for name in wanted})

    def _launch_first(self, ordered: Sequence[Any], given: dict[str, Any]) -> None:
        """Launch a shape for the first time, or with a guess that came later; fall back to the default if it fails."""
        key, choice, plan = self._planned(ordered)
        try:
            self._launch(plan, given)
        except Exception as error:
            instead = self._selector.instead(choice, error)
            if instead is None:
                raise
            self._plans[key] = plan = self._plan(instead)
            self._launch(plan, given)

    def _key_of(self, ordered: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return self._key(ordered)
        except IndexError as error:
            raise UsageError(f"kernel {self.spec.name}: a tensor has too few dimensions") from error

    def _planned(self, ordered: Sequence[Any]) -> tuple[tuple[Any, ...], Choice, _Plan]:
        """Choose a config for the shape; return the shape's key, the choice and its launch plan."""
        key = self._key_of(ordered)
        *values, dtype, _ = key
        dims = {**dict(zip(self.spec.dims, values, strict=True)), **self._flags}
        choice = self._selector.choose(dims, str(dtype).removeprefix("torch."), ordered[0])
        with self._selector.lock:  # a better answer is installed under this lock
            self._keys.setdefault(choice.question.key, set()).add(key)
            choice = self._selector.choices[choice.question.key]
            self._plans[key] = plan = self._plan(choice)
        return key, choice, plan

    def _changed(self, choice: Choice) -> None:
        for key in self._keys.get(choice.question.key, ()):
            if choice.is_guess:
                self._plans.pop(key, None)
            else:
                self._plans[key] = self._plan(choice)

    def _plan(self, choice: Choice) -> _Plan:
        import torch

        spec, config = self.spec, choice.config
        problem = choice.question.problem
        buffers, scratch = spec.buffers(problem), spec.scratch(config, problem)
        steps = []
        for step in spec.plan(config, problem):
            function = resolve_function(spec, step.function)
            values = arguments_of(spec, problem, config, step, dict.fromkeys([*buffers, *scratch]), function)
            wanted = tuple(name for name in values if name in buffers or name in scratch)
            fixed = {name: value for name, value in values.items() if name not in wanted}
            options = {} if interpreted(function) else options_of(spec, config)
            run: Callable[..., Any] = partial(function.run, grid=step.grid, warmup=False, **fixed, **options)
            describe = describers(spec, problem, config, step, function)
            run = with_descriptors(run, describe) if describe else run
            steps.append((with_allocator(run) if step.descriptors else run, wanted))
        return _Plan(
            buffers=buffers,
            initials={name: buffer.initial for name, buffer in buffers.items() if buffer.initial is not None},
            scratch={name: (buffer.shape, getattr(torch, buffer.dtype)) for name, buffer in scratch.items()},
            steps=tuple(steps),
        )
