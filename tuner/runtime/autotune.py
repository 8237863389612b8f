"""`autotune`: triton.autotune's arguments, and a launch with what is stored instead of a search.

    from tilewise import autotune  # instead of: from triton import autotune

The kernel's spec is the one that a tuning of its program inferred and kept. A launch never tunes and is never stopped
by what is missing: then the program's first config is used, or Triton's own autotuner with `on_miss="tune"`. With
`on_miss="record"`, the launch is kept, and `tilewise tune FILE:KERNEL --program --recorded` tunes it later.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.exchange.launchable import launch_of
from tilewise.db.store import Store
from tilewise.errors import TilewiseError, UsageError
from tilewise.kernels import registry
from tilewise.kernels.definitions import nesting_of
from tilewise.kernels.spec import KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.capture.kept_launches import keep_launch
from tilewise.tuner.capture.recorder import MOST_CALLS, Recorder
from tilewise.tuner.inference.kept_specs import keep_spec, kept_spec
from tilewise.tuner.measure.launch import interpreted
from tilewise.tuner.runtime.current_device import is_capturing
from tilewise.tuner.runtime.shared_choices import shared_choices
from tilewise.tuner.runtime.torch_custom_op import uncompiled
from tilewise.tuner.runtime.tuned import TunedFunction, names_of

__all__ = ["AutotunedFunction", "autotune", "autotuning"]

_log = logging.getLogger("tilewise.runtime")

_MISSES = ("default", "tune", "record")


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    *,
    on_miss: str = "default",
    source: str | Path | Store | None = None,
    device: str | None = None,
    **options: Any,
) -> Callable[[Any], AutotunedFunction]:
    """Decorate a `triton.jit` function as `triton.autotune(configs, key, **options)` does, to launch stored configs.

    - `on_miss`: for a shape without a result, launch a config of a near shape or the program's first (`default`), and
      keep the launch to be tuned later (`record`), or let Triton time its configs (`tune`).
    - `source`: an exported file, a database or a server's URL; None is the configured database.
    - `device`: the device whose configs to use; default: the tensors'.

    Raises `UsageError` for another `on_miss`, or without configs.
    """
    if on_miss not in _MISSES:
        raise UsageError(f"on_miss is {on_miss!r}; expected {', '.join(map(repr, _MISSES[:-1]))} or {_MISSES[-1]!r}")
    if not configs:
        raise UsageError("autotune() got no configs; the first is the default of a launch")

    def decorate(function: Any) -> AutotunedFunction:
        return AutotunedFunction(function, configs, key, options, on_miss=on_miss, source=source, device=device)

    return decorate


class _Launcher(TunedFunction):
    """A `tuned` function that leaves to its owner what it has no stored config for."""

    def __init__(self, owner: AutotunedFunction, spec: KernelSpec, source: str | Path | Store | None, **how: Any):
        super().__init__(owner.fn, spec, source, **how)
        self._owner = owner

    def _launch_by_name(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        try:
            if self.choice(*args, **kwargs).is_guess and not self._owner.guesses(grid, args, kwargs):
                return self._owner.launch_by_triton(grid, args, kwargs)
            return super()._launch_by_name(grid, args, kwargs, warmup=warmup)
        except TilewiseError as error:  # a dtype or a size outside the spec, an empty tensor
            return self._owner.launch_refused(grid, args, kwargs, error)


class AutotunedFunction:
    """A function decorated with `autotune`, launched like one under `triton.autotune`."""

    def __init__(
        self,
        function: Any,
        configs: Sequence[Any],
        key: Sequence[str],
        options: dict[str, Any],
        *,
        on_miss: str,
        source: str | Path | Store | None,
        device: str | None,
        spec: KernelSpec | None = None,
    ) -> None:
        """`spec` is the one to use instead of that which a tuning kept."""
        self.fn, self.configs, self.keys, self._options = function, list(configs), list(key), options
        self.reset_to_zero, self.restore_value = (options.get(name) for name in ("reset_to_zero", "restore_value"))
        self.arg_names: list[str] = list(function.arg_names)
        self._on_miss, self._source, self._device = on_miss, source, device
        self._opened = spec is not None
        self._spec = spec
        self._only: _Launcher | None = None
        """The launcher for all calls, of a kernel without flags."""
        self._tuned: dict[tuple[Any, ...], _Launcher] = {}
        self._own: Any = None
        self._in_graphs: dict[str, Any] = {}
        """The function with one config, under Triton's own autotuner, by that config."""
        self._told: set[str] = set()
        self._recorder, self._recorded, self._kept = Recorder(), set[str](), 0
        while not inspect.isfunction(function):
            function = function.fn
        self.__name__, self.__qualname__, self.__module__ = names_of(self.fn)
        self._nesting = nesting_of(function)
        self._file = Path(inspect.getsourcefile(function) or "")
        self._is_compiling, self._uncompiled = uncompiled(self._launch, self.__name__)

    def __reduce__(self) -> str:
        """Pickle and copy the function as Python does one of its own: by its name."""
        return self.__qualname__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if self._only is not None:
            return self._only[grid]
        return partial(self._uncompiled if self._is_compiling() else self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch like `JITFunction.run`, which functions that wrap this one call."""
        return self[grid](*args, **kwargs) if not warmup else self._first(grid, args, kwargs, warmup=True)

    @property
    def choices(self) -> list[Any]:
        """The choice for each shape so far, with its reason."""
        return [choice for tuned in self._tuned.values() for choice in tuned.choices]

    def guesses(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a launch without a stored config of its own takes a guess, and record the launch if asked."""
        if self._on_miss == "record":
            self._record(grid, args, kwargs)
        return self._on_miss != "tune"

    def launch_refused(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: TilewiseError) -> Any:
        """Launch what the spec does not take with the program's first config, or by Triton's autotuner."""
        self._tell(f"{self.__name__} launches its default: {error}")
        return self._launch_unknown(grid, args, kwargs)

    def launch_by_triton(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with Triton's own autotuner."""
        return self.by_triton().run(*args, grid=grid, warmup=False, **kwargs)

    def by_triton(self) -> Any:
        """Return the function under Triton's own autotuner."""
        if self._own is None:
            self._own = self._under_triton(self.configs, self.keys, self._options)
        return self._own

    def in_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the function under Triton's own autotuner for a graph of torch's that these arguments trace.

        It has one config, so that nothing is timed: the stored one or, where sizes are symbols or the spec refuses the
        call, the program's first. With `on_miss="tune"` and nothing stored it has all of the program's.
        """
        config = self._for_graph(args, kwargs)
        if config is None:
            return self.by_triton()
        key = repr(config.all_kwargs())
        if key not in self._in_graphs:
            rest = {name: value for name, value in self._options.items() if name != "prune_configs_by"}
            self._in_graphs[key] = self._under_triton([config], [], rest)
        return self._in_graphs[key]

    def _for_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the config for a launch in a graph; None if Triton is to choose."""
        if not self._opened:
            self._open()
        known = None
        try:
            if self._spec is not None:
                if _is_symbolic([*args, *kwargs.values()]):
                    raise UsageError("sizes are symbols in a compiled graph; torch.compile(dynamic=False) has numbers")
                choice = self._for_flags(self._spec, args, kwargs).choice(*args, **kwargs)
                known = None if choice.is_guess and self._on_miss == "tune" else choice.config
        except TilewiseError as error:
            self._tell(f"{self.__name__} launches its default: {error}")
        if known is not None:
            return _triton_config(known)
        return None if self._on_miss == "tune" else self.configs[0]

    def _under_triton(self, configs: Sequence[Any], keys: Sequence[str], options: Mapping[str, Any]) -> Any:
        own = importlib.import_module("triton.runtime.autotuner").Autotuner
        names = ("reset_to_zero", "restore_value")
        rest = {name: value for name, value in options.items() if name not in names}
        return own(self.fn, self.arg_names, configs, keys, *(options.get(name) for name in names), **rest)

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._opened:
            self._open()
        if self._spec is None:
            return self._launch_unknown(grid, args, kwargs)
        try:
            tuned = self._for_flags(self._spec, args, kwargs)
        except TilewiseError as error:  # a flag has a value that the spec does not know
            return self.launch_refused(grid, args, kwargs, error)
        return tuned[grid](*args, **kwargs)

    def _launch_unknown(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.guesses(grid, args, kwargs):
            return self._first(grid, args, kwargs)
        return self.launch_by_triton(grid, args, kwargs)

    def _record(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a launch to be tuned later, each once per process."""
        key = repr([(v.shape, v.dtype) if hasattr(v, "shape") else v for v in (*args, *kwargs.values())])
        if key in self._recorded or len(self._recorded) >= MOST_CALLS or is_capturing():
            return
        self._recorded.add(key)
        self._recorder.launched(self, grid, args, kwargs)
        for kernel in self._recorder.kernels:
            try:
                if len(kernel.calls) > self._kept:
                    keep_launch(kernel, read_settings().data_folder)
                    self._kept = len(kernel.calls)
            except TilewiseError as error:
                self._tell(f"launches of {self.__name__} are not recorded: {error}")
            for reason in kernel.left_out:
                self._tell(f"a launch of {self.__name__} is not recorded: {reason}")

    def _first(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        """Launch the program's first config."""
        config = self.configs[0].all_kwargs()
        if interpreted(self.fn):  # it has no compile options
            config = {name: value for name, value in config.items() if name in self.arg_names}
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**kwargs, **config})

    def _open(self) -> None:
        """Find the kernel's spec, once. Without one, the kernel was never tuned on this machine."""
        self._opened = True
        try:
            file = self._agreed_spec(kept_spec(self._file.resolve(), self._nesting, read_settings().data_folder))
            if file is None:
                self._tell(
                    f"{self.__name__} was never tuned; tilewise tune {self._file}:{self._nesting} --program does"
                )
                return
            self._spec = registry.load(f"{file}:SPEC")
        except TilewiseError as error:
            self._tell(f"{self.__name__} launches its default: {error}")

    def _agreed_spec(self, own: Path | None) -> Path | None:
        """Return the file of the spec that all ranks of the job use: a node may lack it, or have another."""
        choices = shared_choices()
        if not choices.are_shared:
            return own
        place, here = f'"{self._file.resolve()}:{self._nesting}"', f'"FILE:{self._nesting}"'  # nodes may differ in it
        text = None if own is None else own.read_text().replace(place, here)
        agreed = choices.agreed_spec(self._source_text(), text)
        if agreed == text:
            return own
        if agreed is None:
            raise UsageError("the rank that launched it first has no spec of it; copy TILEWISE_DATA there")
        return keep_spec(agreed.replace(here, place), self.__name__, read_settings().cache_folder)

    def _source_text(self) -> str:
        function = self.fn
        while not inspect.isfunction(function):
            function = function.fn
        return inspect.getsource(function)

    def _for_flags(self, spec: KernelSpec, args: Sequence[Any], kwargs: dict[str, Any]) -> _Launcher:
        """Return the launcher for the flags that a call passes: another value is another problem."""
        key: tuple[Any, ...] = ()
        if spec.flags:
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = tuple(named.get(flag.name, flag.values[0]) for flag in spec.flags)
        if key not in self._tuned:
            flags = {flag.name: value for flag, value in zip(spec.flags, key, strict=True) if value != flag.values[0]}
            how: dict[str, Any] = {"flags": flags, "device": self._device, "reset": False}
            self._tuned[key] = _Launcher(self, spec, self._source, **how)
        if not spec.flags:
            self._only = self._tuned[key]
        return self._tuned[key]

    def _tell(self, text: str) -> None:
        """Log a warning, each once per kernel."""
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)


class _Wrapped:
    """A kernel that `torch.library.wrap_triton` puts into a graph when it is called, and its config is known."""

    def __init__(self, kernel: AutotunedFunction, wrap: Callable[[Any], Any]) -> None:
        self._kernel, self._wrap = kernel, wrap

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self._wrap(self._kernel.in_graph(args, kwargs))[grid](*args, **kwargs)

        return launch

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        return self[grid](*args, **kwargs)


def _is_symbolic(values: Sequence[Any]) -> bool:
    """Return whether a number or a tensor's size is a symbol of torch's."""
    numbers = [number for value in values for number in (getattr(value, "shape", None) or [value])]
    return any(type(number).__name__ in ("SymInt", "SymFloat", "SymBool") for number in numbers)


def _triton_config(config: Mapping[str, Any]) -> Any:
    arguments, options = launch_of(config)
    return importlib.import_module("triton").Config(arguments, **options)


@contextmanager
def autotuning(**options: Any) -> Iterator[None]:
    """Have `triton.autotune` mean `autotune` with these options while the block runs.

    `torch.library.wrap_triton` then takes such a function. In a graph it is Triton's own, as torch knows no other, with
    the one config that was chosen for the shapes that the graph was traced with.
    """
    triton: Any = importlib.import_module("triton")
    module: Any = importlib.import_module("triton.runtime.autotuner")
    library: Any = importlib.import_module("torch.library")
    before = triton.autotune, module.autotune
    wrap: Any = getattr(library, "wrap_triton", None)

    def replaced(configs: Sequence[Any], key: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        if args:  # positional options, whose names depend on the release
            names = list(inspect.signature(before[1]).parameters)[2:]
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        return autotune(configs, key, **options, **kwargs)

    def wrapped(kernel: Any) -> Any:
        if not isinstance(kernel, AutotunedFunction):
            return wrap(kernel)
        own = kernel.by_triton()
        return kernel if wrap(own) is own else _Wrapped(kernel, wrap)  # torch wraps only what it puts into a graph

    triton.autotune = module.autotune = replaced
    if wrap is not None:
        library.wrap_triton = wrapped
    try:
        yield
    finally:
        triton.autotune, module.autotune = before
        if wrap is not None:
            library.wrap_triton = wrap
