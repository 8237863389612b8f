"""`tuned`: a `triton.jit` function launched with the config that was found for its shape.

A drop-in for `triton.autotune`: the call is the same, but nothing is tuned or timed. The first launch of a shape
chooses its config (`config_selector`); later ones find the choice in a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.records import Flags
from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import BadSpec, UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.measure.launch import interpreted
from tilewise.tuner.runtime.call_signature import NO_FLAGS, DimsOf, call_signature, dtype_argument
from tilewise.tuner.runtime.config_selector import WAIT_SECONDS, Choice, ConfigSelector
from tilewise.tuner.runtime.torch_custom_op import custom_op, uncompiled
from tilewise.tuner.space.problem_checks import checked_flags

__all__ = ["TunedFunction", "tuned"]


@renamed_keywords(cache="source", wait_seconds="timeout")
def tuned(
    spec: KernelSpec | str,
    source: str | Path | Store | None = None,
    *,
    dims: DimsOf | None = None,
    flags: Flags = NO_FLAGS,
    device: str | None = None,
    match: str = Match.PREDICTED,
    reset: bool = True,
    timeout: float = WAIT_SECONDS,
    explain: bool = False,
) -> Callable[[Any], TunedFunction]:
    """Decorate a `triton.jit` function: `kernel[grid](*args)` without the parameters that the spec tunes.

    - `spec`: the `KernelSpec` of this function, or a registered name.
    - `source`: an exported file, `sqlite:///tiles.db`, or a server's URL; None is the configured database.
    - `dims`: a function from the call's arguments by name to its dims; needed if the spec's scalars and buffers do not
      hold them.
    - `flags`: the flags of all problems that the function is launched for (`{"causal": True}`).
    - `device`: the device whose configs to use, the only way to use those of another chip. Default: the tensors'.
    - `match`: how far a choice may relax (`Match`). Beyond that, the spec's default is launched.
    - `reset`: before each launch, set outputs to the `initial` value that the spec gives them, as the tuner did. False
      leaves that to the caller.
    - `timeout`: seconds that the first launch of a shape may wait for a server.
    - `explain`: print each choice to stderr, in addition to the log (`tilewise.runtime`).

    Raises `UsageError` for a kernel that takes several functions.
    """
    loaded = registry.load(spec) if isinstance(spec, str) else spec
    if loaded.launches is not None:
        raise UsageError(f"kernel {loaded.name} takes several functions; use tilewise.Operator({loaded.name!r}, ..)")

    def decorate(function: Any) -> TunedFunction:
        return TunedFunction(
            function,
            loaded,
            source,
            dims=dims,
            flags=flags,
            device=device,
            match=match,
            reset=reset,
            timeout=timeout,
            explain=explain,
        )

    return decorate


class TunedFunction:
    """A function decorated with `tuned`. It is launched, and can be wrapped, like the original."""

    def __init__(
        self,
        function: Any,
        spec: KernelSpec,
        source: str | Path | Store | None,
        *,
        dims: DimsOf | None = None,
        flags: Flags = NO_FLAGS,
        reset: bool = True,
        **options: Any,
    ) -> None:
        _check_function(function)
        self.fn, self.spec = function, spec
        self.__name__, self.__qualname__, self.__module__ = names_of(function)
        self.arg_names: list[str] = list(function.arg_names)
        self._run = function.run
        self._options = frozenset() if interpreted(function) else spec.options()
        self._tuned_names = frozenset(parameter.name for parameter in spec.parameters)
        self._flags = checked_flags(spec, flags)
        self._dtype_argument = dtype_argument(spec, self._flags)
        self._dims_of = dims
        self._signature = None if dims else call_signature(spec, self._flags)
        self._key = self._signature.key_of(self.arg_names) if self._signature else self._key_by_user
        read = (*self._signature.names, self._signature.tensor) if self._signature else ()
        self._last = max((self.arg_names.index(name) for name in read), default=-1)
        """The last positional argument that the key is read from."""
        self._keys_by_name: dict[tuple[Any, ...], Callable[..., tuple[Any, ...]]] = {}
        """Functions to the key for calls that pass some of these by name, by the number of the others and the names."""
        if missing := sorted(self._tuned_names - spec.options() - set(self.arg_names)):
            raise BadSpec(
                f"{spec.name} tunes {', '.join(missing)}, which the function does not take; pass its own spec"
            )
        self._initials = _initials(spec, self._flags) if reset else {}
        self._configs: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, set[tuple[Any, ...]]] = {}
        self.selector = ConfigSelector(spec, source, on_change=self._changed, **options)
        self._is_compiling, self._uncompiled = uncompiled(self._launch, self.__name__)
        self._operation: Any = None
        if "torch" in sys.modules:
            names = [name for name in self.arg_names if name not in self._tuned_names]
            grid = ("SymInt[] grid", "bool follows")
            place = f"{self.__module__}:{self.__qualname__}"
            self._operation = custom_op(spec, names, self._launch_from_graph, self._flags, place=place, first=grid)
            self._sample = _sample_config(spec, self._flags)

    def __reduce__(self) -> str:
        """Pickle and copy the function as Python does one of its own: by its name."""
        return self.__qualname__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self._is_compiling():
            return partial(self._uncompiled if self._operation is None else self._put_into_graph, grid)
        return partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch like `JITFunction.run`, which functions that wrap this one call."""
        return self._launch_by_name(grid, args, kwargs, warmup=warmup)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile the kernel that a launch with these arguments would run."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def choice(self, *args: Any, **kwargs: Any) -> Choice:
        """Return the choice for a launch with these arguments, without launching."""
        return self._choice_of(self._named(args, kwargs))

    @property
    def choices(self) -> list[Choice]:
        """The choice for each shape so far, with its reason."""
        return list(self.selector.choices.values())

    def _put_into_graph(self, grid: Any, *args: Any, **kwargs: Any) -> None:
        """Add a launch to the graph of `torch.compile`, where a grid is whole numbers: one that follows from the config
        has those of a sample, by which the spec's own grid is checked."""
        follows = callable(grid)
        sizes = grid({**self._named(args, kwargs), **self._sample}) if follows else grid
        self._operation(sizes if isinstance(sizes, (tuple, list)) else (sizes,), follows, *args, **kwargs)

    def _launch_from_graph(self, grid: Sequence[int], follows: bool, *args: Any, **kwargs: Any) -> None:
        """Launch on the caller's grid or, if it follows from the config, on the spec's, which must be the same."""
        if not follows:
            self._launch(tuple(grid), *args, **kwargs)
            return
        named = self._named(args, kwargs)
        *values, dtype, _ = self._key_of(named)
        dims = dict(zip(self.spec.dims, values, strict=True))
        problem = Problem(self.spec.name, dims, str(dtype).removeprefix("torch."), self._flags)
        sample, own = self._spec_grid(self._sample, problem), self._spec_grid(self._choice_of(named).config, problem)
        if _whole(sample) != _whole(grid):
            raise UsageError(
                f"{self.__name__} is launched over another grid than its spec's ({_times(grid)}, not "
                f"{_times(sample)}), which a compiled graph cannot compute; launch it outside torch.compile"
            )
        self._launch(own, *args, **kwargs)

    def _spec_grid(self, config: Mapping[str, Any], problem: Problem) -> tuple[int, ...]:
        (launch,) = self.spec.plan(config, problem)
        return launch.grid

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > self._last:
                config = self._configs[self._key(args)]
            else:
                config = self._configs[self._keys_by_name[len(args), *kwargs](args, kwargs)]
        except (KeyError, IndexError, AttributeError):  # a new shape, a new way to call, an argument that is no tensor
            return self._launch_by_name(grid, args, kwargs)
        if self._initials:
            self._reset(self._named(args, kwargs))
        return self._run(*args, grid=grid, warmup=False, **kwargs, **config)

    def _launch_by_name(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        named = self._named(args, kwargs)
        if self._signature is not None and len(args) <= self._last and len(self._keys_by_name) < _MOST_WAYS:
            key = self._signature.key_of_call(self.arg_names, len(args), tuple(kwargs))
            if key is not None:
                self._keys_by_name[len(args), *kwargs] = key
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
        """Choose the config for a call, and store it for later calls of the same shape."""
        choice = self._choice_of(named)
        key = self._key_of(named)
        with self.selector.lock:  # a better answer is installed under this lock
            self._keys.setdefault(choice.question.key, set()).add(key)
            self._configs[key] = arguments = self._arguments(self.selector.choices[choice.question.key])
        return arguments

    def _choice_of(self, named: Mapping[str, Any]) -> Choice:
        tensor = named[self._dtype_argument]
        *values, dtype, _ = self._key_of(named)
        dims = dict(zip(self.spec.dims, values, strict=True))
        return self.selector.choose({**dims, **self._flags}, str(dtype).removeprefix("torch."), tensor)

    def _changed(self, choice: Choice) -> None:
        """Install a better answer. A guess is launched like a new shape's config, because it may not run here."""
        for key in self._keys.get(choice.question.key, ()):
            if choice.is_guess:
                self._configs.pop(key, None)
            else:
                self._configs[key] = self._arguments(choice)

    def _arguments(self, choice: Choice) -> dict[str, Any]:
        """Return the config as arguments of the function, without compile options for Triton's interpreter."""
        kept = self._options | set(self.arg_names)
        config = {name: value for name, value in choice.config.items() if name in kept}
        # few configs serve many shapes: sharing keeps their arguments in the CPU cache
        return self._shared.setdefault(repr(config), config)

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _key_of(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a call, the same as from positional arguments."""
        try:
            return self._key([named.get(name) for name in self.arg_names])
        except AttributeError as error:
            wanted = ", ".join(sorted({self._dtype_argument, *(self._signature.names if self._signature else ())}))
            raise UsageError(
                f"kernel {self.spec.name}: an argument is missing; its shape is read from {wanted}"
            ) from error

    def _key_by_user(self, args: Sequence[Any]) -> tuple[Any, ...]:
        assert self._dims_of is not None
        named = dict(zip(self.arg_names, args, strict=False))
        dims, tensor = self._dims_of(named), named[self._dtype_argument]
        return (*(dims[name] for name in self.spec.dims), tensor.dtype, tensor.get_device())

    def _reset(self, named: Mapping[str, Any]) -> None:
        for name, value in self._initials.items():
            named[name].fill_(value)


_MOST_WAYS = 64
"""Ways to call a function, by the order of its keywords, that are as fast as positional calls."""


def _check_function(function: Any) -> None:
    """Raise `UsageError` unless this is a jitted function that does not choose configs itself."""
    name = getattr(function, "__name__", repr(function))
    if not hasattr(function, "arg_names") or not hasattr(function, "run"):
        raise UsageError(f"{name} is not a triton.jit function; write @triton.jit between tuned(..) and the function")
    wrapped = function
    while wrapped is not None:
        kind = type(wrapped).__name__
        if kind in ("Autotuner", "LibTuner", "TunedFunction"):
            raise UsageError(f"{name} is wrapped in {kind} already; remove that, tuned(..) replaces it")
        wrapped = getattr(wrapped, "fn", None)


def names_of(function: Any) -> tuple[str, str, str]:
    """Return the name, qualified name and module of a jitted function."""
    while getattr(function, "fn", None) is not None:
        function = function.fn
    name = getattr(function, "__name__", "kernel")
    return name, getattr(function, "__qualname__", name), getattr(function, "__module__", "__main__")


def _sample_config(spec: KernelSpec, flags: Flags) -> dict[str, Any]:
    """Return some values of the parameters: a grid that follows from a config is compared by them."""
    problem = Problem(spec.name, dict.fromkeys(spec.dims, 64), spec.dtypes[0], flags)
    targets = known_target("Ascend910B4", 40), known_target("NVIDIA H200", 132)
    values = {p.name: [value for target in targets for value in p.values(problem, target)] for p in spec.parameters}
    return {name: found[0] for name, found in values.items() if found}


def _whole(grid: Sequence[int]) -> tuple[int, ...]:
    """Return all three sizes of a grid."""
    return (*grid, 1, 1, 1)[:3]


def _times(grid: Sequence[int]) -> str:
    return "x".join(map(str, grid))


def _initials(spec: KernelSpec, flags: Flags) -> dict[str, float]:
    """Return the initial values of outputs that are accumulated into, by argument name."""
    problem = Problem(spec.name, dict.fromkeys(spec.dims, 64), spec.dtypes[0], flags)
    return {name: b.initial for name, b in spec.buffers(problem).items() if b.initial is not None}
