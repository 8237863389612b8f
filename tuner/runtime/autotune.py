"""`autotune`: triton.autotune's arguments, and a launch with what is stored instead of a search.

    from tilewise import autotune  # instead of: from triton import autotune

The kernel's spec is the one that a tuning of its program inferred and kept. A launch never tunes and is never stopped
by what is missing: then the program's first config is used, or Triton's own autotuner with `on_miss="tune"`.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.store import Store
from tilewise.errors import TilewiseError, UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec
from tilewise.settings import read_settings
from tilewise.tuner.inference.kept_specs import kept_spec
from tilewise.tuner.runtime.tuned import TunedFunction

__all__ = ["AutotunedFunction", "autotune", "autotuning"]

_log = logging.getLogger("tilewise.runtime")

_MISSES = ("default", "tune")


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

    - `on_miss`: for a shape without a result, launch a config of a near shape or the program's first (`default`), or
      let Triton time its configs (`tune`).
    - `source`: an exported file, a database or a server's URL; None is the configured database.
    - `device`: the device whose configs to use; default: the tensors'.

    Raises `UsageError` for another `on_miss`, or without configs.
    """
    if on_miss not in _MISSES:
        raise UsageError(f"on_miss is {on_miss!r}; expected {' or '.join(map(repr, _MISSES))}")
    if not configs:
        raise UsageError("autotune() got no configs; the first is the default of a launch")

    def decorate(function: Any) -> AutotunedFunction:
        return AutotunedFunction(function, configs, key, options, on_miss=on_miss, source=source, device=device)

    return decorate


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
    ) -> None:
        self.fn, self.configs, self.keys, self._options = function, list(configs), list(key), options
        self.arg_names: list[str] = list(function.arg_names)
        self._on_miss, self._source, self._device = on_miss, source, device
        self._opened = False
        self._spec: KernelSpec | None = None
        self._tuned: dict[tuple[Any, ...], TunedFunction] = {}
        self._own: Any = None
        self._told: set[str] = set()
        while not inspect.isfunction(function):
            function = function.fn
        self.__name__, self._file = function.__name__, Path(inspect.getsourcefile(function) or "")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch like `JITFunction.run`, which functions that wrap this one call."""
        return self._launch(grid, *args, **kwargs) if not warmup else self._first(grid, args, kwargs, warmup=True)

    @property
    def choices(self) -> list[Any]:
        """The choice for each shape so far, with its reason."""
        return [choice for tuned in self._tuned.values() for choice in tuned.choices]

    def _launch(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._opened:
            self._open()
        if self._spec is not None:
            try:
                tuned = self._for_flags(self._spec, args, kwargs)
                if self._on_miss == "default" or not tuned.choice(*args, **kwargs).is_guess:
                    return tuned[grid](*args, **kwargs)
            except TilewiseError as error:  # a dtype or a size outside the spec, an empty tensor
                self._tell(f"{self.__name__} launches its default: {error}")
        if self._on_miss == "tune":
            return self._triton().run(*args, grid=grid, warmup=False, **kwargs)
        return self._first(grid, args, kwargs)

    def _first(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any], *, warmup: bool = False) -> Any:
        """Launch the program's first config."""
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**kwargs, **self.configs[0].all_kwargs()})

    def _triton(self) -> Any:
        if self._own is None:
            own = importlib.import_module("triton.runtime.autotuner").Autotuner
            names = ("reset_to_zero", "restore_value")
            rest = {name: value for name, value in self._options.items() if name not in names}
            before = (self._options.get(name) for name in names)
            self._own = own(self.fn, self.arg_names, self.configs, self.keys, *before, **rest)
        return self._own

    def _open(self) -> None:
        """Find the kernel's spec, once. Without one, the kernel was never tuned on this machine."""
        self._opened = True
        try:
            file = kept_spec(self._file.resolve(), self.__name__, read_settings().data_folder)
            if file is None:
                self._tell(
                    f"{self.__name__} was never tuned; tilewise tune {self._file}:{self.__name__} --program does"
                )
                return
            self._spec = registry.load(f"{file}:SPEC")
        except TilewiseError as error:
            self._tell(f"{self.__name__} launches its default: {error}")

    def _for_flags(self, spec: KernelSpec, args: Sequence[Any], kwargs: dict[str, Any]) -> TunedFunction:
        """Return the launcher for the flags that a call passes: another value is another problem."""
        if not spec.flags:
            key: tuple[Any, ...] = ()
        else:
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = tuple(named.get(flag.name, flag.values[0]) for flag in spec.flags)
        if key not in self._tuned:
            flags = {flag.name: value for flag, value in zip(spec.flags, key, strict=True) if value != flag.values[0]}
            self._tuned[key] = TunedFunction(self.fn, spec, self._source, flags=flags, device=self._device, reset=False)
        return self._tuned[key]

    def _tell(self, text: str) -> None:
        """Log a warning, each once per kernel."""
        if text not in self._told:
            self._told.add(text)
            _log.warning("%s", text)


@contextmanager
def autotuning(**options: Any) -> Iterator[None]:
    """Have `triton.autotune` mean `autotune` with these options while the block runs."""
    triton: Any = importlib.import_module("triton")
    module: Any = importlib.import_module("triton.runtime.autotuner")
    before = triton.autotune, module.autotune

    def replaced(configs: Sequence[Any], key: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        if args:  # positional options, whose names depend on the release
            names = list(inspect.signature(before[1]).parameters)[2:]
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        return autotune(configs, key, **options, **kwargs)

    triton.autotune = module.autotune = replaced
    try:
        yield
    finally:
        triton.autotune, module.autotune = before
