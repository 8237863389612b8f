"""`tuned`: a `triton.jit` function that is launched with the config that was found for its shape.

The drop-in for `triton.autotune`: the call is the same, but nothing is ever tuned or timed. The first launch of a shape
chooses (`choosing`), later ones find the choice in a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import BadSpec, UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.measure.launch import interpreted
from tilewise.tuner.runtime.call_signature import DimsOf, call_signature, dtype_argument
from tilewise.tuner.runtime.config_selector import WAIT_SECONDS, Choice, ConfigSelector
from tilewise.tuner.runtime.torch_custom_op import custom_op

__all__ = ["TunedFunction", "tuned"]


@renamed_keywords(cache="source", wait_seconds="timeout")
def tuned(
    spec: KernelSpec | str,
    source: str | Path | Store | None = None,
    *,
    dims: DimsOf | None = None,
    device: str | None = None,
    match: str = Match.PREDICTED,
    reset: bool = True,
    timeout: float = WAIT_SECONDS,
    explain: bool = False,
) -> Callable[[Any], TunedFunction]:
    """Decorate a `triton.jit` function: `kernel[grid](*args)` without the parameters that the spec tunes.

    - `spec`: the kernel's `KernelSpec`, of this one function, or a registered name.
    - `source`: an exported file, `sqlite:///tiles.db`, or a server's URL; None is the configured database.
    - `dims`: the dimension sizes of a call, from its arguments by name, where the spec's scalars and buffers do not
      tell them.
    - `device`: the device whose configs to use; only so are those of another chip taken. Default: that of the tensors.
    - `match`: how far a choice may relax (`Match`); beyond, the spec's default is launched.
    - `reset`: set outputs to the `initial` value that the spec gives them before each launch, as the tuner did. False
      leaves that to the caller.
    - `timeout`: seconds that the first launch of a shape may wait for a server.
    - `explain`: print each choice to stderr, besides logging it to `tilewise.runtime`.
    """
    loaded = registry.load(spec) if isinstance(spec, str) else spec
    if loaded.launches is not None:
        raise UsageError(f"kernel {loaded.name} takes several functions; call tilewise.Operator({loaded.name!r}, ..)")

    def decorate(function: Any) -> TunedFunction:
        return TunedFunction(
            function,
            loaded,
            source,
            dims=dims,
            device=device,
            match=match,
            reset=reset,
            timeout=timeout,
            explain=explain,
        )

    return decorate


class TunedFunction:
    """What `tuned` makes of a function: it is launched, and may be wrapped, as that is."""

    def __init__(
        self,
        function: Any,
        spec: KernelSpec,
        source: str | Path | Store | None,
        *,
        dims: DimsOf | None = None,
        reset: bool = True,
        **options: Any,
    ) -> None:
        _refuse_others(function)
        self.fn, self.spec = function, spec
        self.arg_names: list[str] = list(function.arg_names)
        self._run = function.run
        self._options = frozenset() if interpreted(function) else spec.options()
        self._tuned_names = frozenset(parameter.name for parameter in spec.parameters)
        self._dtype_argument = dtype_argument(spec)
        self._dims_of = dims
        self._reading = None if dims else call_signature(spec)
        self._key = self._reading.key_of(self.arg_names) if self._reading else self._key_by_user
        if missing := sorted(self._tuned_names - spec.options() - set(self.arg_names)):
            raise BadSpec(
                f"{spec.name} tunes {', '.join(missing)}, which the function does not take: is it the spec's?"
            )
        self._initials = _initials(spec) if reset else {}
        self._configs: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, set[tuple[Any, ...]]] = {}
        self.selector = ConfigSelector(spec, source, on_change=self._changed, **options)
        self._is_compiling: Callable[[], bool] = bool  # without torch nothing is
        if "torch" in sys.modules:
            import torch

            names = [name for name in self.arg_names if name not in self._tuned_names]
            self._operation = custom_op(spec, names, self._launch_on_spec_grid)
            if self._operation is not None:
                self._is_compiling = torch.compiler.is_compiling

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self._is_compiling():
            return self._operation  # type: ignore[no-any-return]
        return partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """As `JITFunction.run`, by which functions that wrap this one launch it."""
        return self._launch_by_name(grid, args, kwargs, warmup=warmup)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile what a launch with these arguments would run."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    @property
    def choices(self) -> list[Choice]:
        """What each shape so far is launched with, and why."""
        return list(self.selector.choices.values())

    def _launch_on_spec_grid(self, *args: Any, **kwargs: Any) -> None:
        """What `torch.compile` puts into its graph: a grid cannot be an argument there, so it is the spec's."""
        named = self._named(args, kwargs)
        *sizes, dtype, _ = self._key_of(named)
        dims = dict(zip(self.spec.dims, sizes, strict=True))
        problem = Problem(self.spec.name, dims, str(dtype).removeprefix("torch."))
        config = self._choice_of(named).config
        assert self.spec.grid is not None, "tuned() takes specs of one function, which have a grid"
        self._launch(tuple(self.spec.grid(config, problem)), *args, **kwargs)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            config = self._configs[self._key(args)]
        except (KeyError, IndexError):  # a new shape, or arguments by name
            return self._launch_by_name(grid, args, kwargs)
        if self._initials:
            self._reset(self._named(args, kwargs))
        return self._run(*args, grid=grid, warmup=False, **kwargs, **config)

    def _launch_by_name(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        named = self._named(args, kwargs)
        launch = partial(self._run, *args, grid=grid, warmup=warmup, **kwargs)
        config = self._configs.get(self._key_of(named))
        if not warmup:
            self._reset(named)
        if config is not None:
            return launch(**config)
        try:
            return launch(**self._choose(named))
        except Exception as error:
            instead = self.selector.instead(self._choice_of(named), error)
            if instead is None:
                raise
            self._changed(instead)
            return launch(**self._arguments(instead))

    def _choose(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The config for a call, kept for the next of its shape."""
        choice = self._choice_of(named)
        key = self._key_of(named)
        with self.selector.lock:  # under which a better answer would come
            self._keys.setdefault(choice.question.key, set()).add(key)
            self._configs[key] = arguments = self._arguments(self.selector.choices[choice.question.key])
        return arguments

    def _choice_of(self, named: Mapping[str, Any]) -> Choice:
        tensor = named[self._dtype_argument]
        *sizes, dtype, _ = self._key_of(named)
        dims = dict(zip(self.spec.dims, sizes, strict=True))
        return self.selector.choose(dims, str(dtype).removeprefix("torch."), tensor)

    def _changed(self, choice: Choice) -> None:
        """A better answer came later. One that is a guess is launched as a new shape's: it may not run here."""
        for key in self._keys.get(choice.question.key, ()):
            if choice.is_guess:
                self._configs.pop(key, None)
            else:
                self._configs[key] = self._arguments(choice)

    def _arguments(self, choice: Choice) -> dict[str, Any]:
        """The config as arguments of the function; Triton's interpreter knows no compile options."""
        kept = self._options | set(self.arg_names)
        config = {name: value for name, value in choice.config.items() if name in kept}
        return self._shared.setdefault(repr(config), config)  # few configs serve many shapes: they stay in the cache

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _key_of(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The same key as from positional arguments."""
        try:
            return self._key([named.get(name) for name in self.arg_names])
        except AttributeError as error:
            wanted = ", ".join(sorted({self._dtype_argument, *(self._reading.names if self._reading else ())}))
            raise UsageError(
                f"kernel {self.spec.name} is told its shape by {wanted}; one of them is missing"
            ) from error

    def _key_by_user(self, args: Sequence[Any]) -> tuple[Any, ...]:
        assert self._dims_of is not None
        named = dict(zip(self.arg_names, args, strict=False))
        sizes, tensor = self._dims_of(named), named[self._dtype_argument]
        return (*(sizes[name] for name in self.spec.dims), tensor.dtype, tensor.get_device())

    def _reset(self, named: Mapping[str, Any]) -> None:
        for name, value in self._initials.items():
            named[name].fill_(value)


def _refuse_others(function: Any) -> None:
    """Raises `UsageError` for what is no jitted function, and for one that chooses configs by itself."""
    name = getattr(function, "__name__", repr(function))
    if not hasattr(function, "arg_names") or not hasattr(function, "run"):
        raise UsageError(f"{name} is no triton.jit function; write @triton.jit between tuned(..) and it")
    wrapped = function
    while wrapped is not None:
        kind = type(wrapped).__name__
        if kind in ("Autotuner", "LibTuner", "TunedFunction"):
            raise UsageError(f"{name} is wrapped in {kind} already, which tuned(..) takes the place of: remove it")
        wrapped = getattr(wrapped, "fn", None)


def _initials(spec: KernelSpec) -> dict[str, float]:
    """The values from which outputs are accumulated into, by argument name."""
    problem = Problem(spec.name, dict.fromkeys(spec.dims, 64), spec.dtypes[0])
    return {name: b.initial for name, b in spec.buffers(problem).items() if b.initial is not None}
