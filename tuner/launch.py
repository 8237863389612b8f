"""Binding a spec's arguments to its Triton function; the same for a GPU, an NPU and Triton's interpreter."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tilewise.errors import BadSpec
from tilewise.kernels.spec import Config, KernelSpec, Problem, Tensors

__all__ = ["launch", "launcher", "resolve_function", "warm_up"]


def resolve_function(spec: KernelSpec) -> Any:
    """The spec's `triton.jit` function, imported now if the spec only names it; raises `BadSpec`."""
    function = _import(spec) if isinstance(spec.function, str) else spec.function
    if type(function).__name__ == "Autotuner":
        raise BadSpec(
            f"kernel {spec.name} is wrapped in triton.autotune; remove that, the spec's parameters replace it"
        )
    if not (hasattr(function, "run") and hasattr(function, "fn")) or not hasattr(function, "__getitem__"):
        raise BadSpec(f"kernel {spec.name} names {function!r}, which is no triton.jit function")
    return function


def launcher(spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors) -> Callable[[], Any]:
    """A function without arguments that launches the config on these tensors, everything bound beforehand."""
    function = resolve_function(spec)
    arguments = _arguments(spec, problem, config, tensors, function)
    options = {} if _interpreted(function) else _options(spec, config)  # the interpreter knows no compile options
    return functools.partial(function[tuple(spec.grid(config, problem))], **arguments, **options)


def launch(spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors) -> None:
    """Launch the config once; on an accelerator it runs asynchronously."""
    launcher(spec, problem, config, tensors)()


def warm_up(spec: KernelSpec, problem: Problem, config: Config) -> Any:
    """Compile the config without tensors or a launch, as a launch on aligned tensors would; the compiled kernel."""
    import torch

    function = resolve_function(spec)
    dtypes = {name: getattr(torch, buffer.dtype) for name, buffer in spec.buffers(problem).items()}
    arguments = _arguments(spec, problem, config, dtypes, function)
    ordered = [arguments[name] for name in _parameters(function) if name in arguments]  # only these may be dtypes
    return function.warmup(*ordered, grid=tuple(spec.grid(config, problem)), **_options(spec, config))


def _import(spec: KernelSpec) -> Any:
    module, _, name = spec.function.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadSpec(
            f"kernel {spec.name} names its function {spec.function!r}, which does not import: {error}"
        ) from error


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    while hasattr(function, "fn"):  # a JITFunction, perhaps under triton.heuristics
        function = function.fn
    return inspect.signature(function).parameters


def _interpreted(function: Any) -> bool:
    while hasattr(function, "fn"):
        if type(function).__name__ == "InterpretedFunction":
            return True
        function = function.fn
    return False


def _options(spec: KernelSpec, config: Config) -> dict[str, Any]:
    return {name: config[name] for name in spec.options() if name in config}


def _arguments(spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors, function: Any) -> dict[str, Any]:
    """All of the function's arguments by name; raises `BadSpec` where spec and function do not match."""
    options = spec.options()
    constants = {name: value for name, value in config.items() if name not in options}
    arguments: dict[str, Any] = {**tensors, **spec.scalars(problem), **constants}
    wanted = _parameters(function)
    if unknown := sorted(arguments.keys() - wanted.keys()):
        raise BadSpec(f"kernel {spec.name} gives {', '.join(unknown)}, which its function does not take")
    needed = {name for name, parameter in wanted.items() if parameter.default is inspect.Parameter.empty}
    if missing := sorted(needed - arguments.keys() - _supplied(function)):
        raise BadSpec(f"kernel {spec.name} gives no {', '.join(missing)}, which its function takes")
    return arguments


def _supplied(function: Any) -> set[str]:
    """Names that triton.heuristics computes."""
    return set(getattr(function, "values", ()))
