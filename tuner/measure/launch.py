"""Binding of a spec's arguments to its Triton functions; the same for a GPU, an NPU and Triton's interpreter."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewise.errors import BadSpec
from tilewise.kernels.function_slice import function_slice, package_of
from tilewise.kernels.spec import Config, KernelSpec, Launch, Problem, Tensors, Value
from tilewise.kernels.validated_callback import raised
from tilewise.tuner.measure.tensor_descriptors import describers
from tilewise.tuner.stand_in.accelerator import accelerator_stand_in

__all__ = [
    "arguments_of",
    "compiled",
    "interpreted",
    "launch",
    "launcher",
    "load_function",
    "options_of",
    "provide_allocator",
    "resolve_function",
    "resolve_functions",
    "with_allocator",
]


def resolve_function(spec: KernelSpec, function: Any) -> Any:
    """Return one of the spec's `triton.jit` functions, imported now if the spec only names it; raises `BadSpec`."""
    resolved = _import(spec, function) if isinstance(function, str) else function
    if type(resolved).__name__ == "TunedFunction":  # the wrapped function is tuned
        resolved = resolved.fn
    if type(resolved).__name__ == "Autotuner":
        raise BadSpec(
            f"kernel {spec.name} is wrapped in triton.autotune; remove that: the spec's parameters replace it"
        )
    if not (hasattr(resolved, "run") and hasattr(resolved, "fn")) or not hasattr(resolved, "__getitem__"):
        name = getattr(resolved, "__name__", repr(resolved))
        raise BadSpec(f"kernel {spec.name} names {name}, not a triton.jit function; write @triton.jit above it")
    return resolved


def resolve_functions(spec: KernelSpec) -> tuple[Any, ...]:
    """Return all of the spec's functions; raises `BadSpec`."""
    return tuple(resolve_function(spec, function) for function in spec.functions())


def launcher(spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors) -> Callable[[], list[Any]]:
    """Return a function without arguments that makes the config's launches on these tensors (buffers and scratch).

    Everything is bound beforehand. The function returns each launch's result: a compiled kernel on a real device.
    """
    steps = [_bound(spec, problem, config, step, tensors) for step in spec.plan(config, problem)]
    return lambda: [step() for step in steps]


def launch(spec: KernelSpec, problem: Problem, config: Config, tensors: Tensors) -> None:
    """Make the config's launches once; on an accelerator they run asynchronously."""
    launcher(spec, problem, config, tensors)()


def compiled(spec: KernelSpec, problem: Problem, config: Config) -> Iterator[Any]:
    """Compile the config's kernels one by one without tensors or launches, as launches on aligned tensors would."""
    import torch
    from triton.runtime.jit import MockTensor

    buffers = {**spec.buffers(problem), **spec.scratch(config, problem)}
    dtypes = {name: getattr(torch, buffer.dtype) for name, buffer in buffers.items()}
    for step in spec.plan(config, problem):
        function = resolve_function(spec, step.function)
        arguments = arguments_of(spec, problem, config, step, dtypes, function)
        describe = describers(spec, problem, config, step, function)
        arguments |= {name: of(MockTensor(dtypes[name])) for name, of in describe.items()}
        with_defaults = {n: p.default for n, p in _parameters(function).items() if p.default is not p.empty} | arguments
        # only positional arguments may be dtypes
        ordered = [with_defaults[n] for n in _parameters(function) if n in with_defaults]
        yield function.warmup(*ordered, grid=step.grid, **options_of(spec, config))


def _bound(spec: KernelSpec, problem: Problem, config: Config, step: Launch, tensors: Tensors) -> Callable[[], Any]:
    function = resolve_function(spec, step.function)
    arguments = arguments_of(spec, problem, config, step, tensors, function)
    describe = describers(spec, problem, config, step, function)
    arguments |= {name: of(tensors[name]) for name, of in describe.items()}
    options = {} if interpreted(function) else options_of(spec, config)  # the interpreter has no compile options
    run = functools.partial(function[step.grid], **arguments, **options)
    return with_allocator(run) if step.descriptors else run


def with_allocator(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the launch of a function that makes tensor descriptors, with memory for them."""

    def launched(**arguments: Any) -> Any:
        provide_allocator()
        return run(**arguments)

    return launched


def provide_allocator() -> None:
    """Give the memory of tensor descriptors to Triton in this thread, unless the program has set an allocator itself.

    Triton keeps its allocator per thread, and has none at first.
    """
    from triton.runtime import _allocation

    if isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        _allocation.set_allocator(_scratch_memory)


def _scratch_memory(size: int, alignment: int, stream: int | None) -> Any:
    """Allocate bytes on the current GPU; torch's allocator aligns them to 512, and reuses them in stream order."""
    import torch

    return torch.empty(size, dtype=torch.int8, device="cuda")


def _import(spec: KernelSpec, function: str) -> Any:
    module, _, name = function.rpartition(":")
    if module.endswith(".py"):
        return load_function(Path(module), name, tuple(sorted(spec.imported.items())))
    try:
        return _at(function)
    except (ImportError, AttributeError) as error:
        raise BadSpec(f"kernel {spec.name} names its function {function!r}, which does not import: {error}") from error


def _at(place: str) -> Any:
    """Import `package.module:name`, `package.module:Class.name` or `package.module`."""
    module, _, name = place.partition(":")
    imported = importlib.import_module(module)
    return operator.attrgetter(name)(imported) if name else imported


@functools.cache
def load_function(path: Path, name: str, imported: tuple[tuple[str, str], ...] = ()) -> Any:
    """Return a `triton.jit` function of a user's program without running the program; raises `BadSpec`.

    `name` is `outer.inner` for one inside another function.
    `imported` are names that its file lacks or that a function around it was given, with their places,
    `package.module:name` or `package.module`. Where Triton has no driver, a stand-in answers for it, which modules
    with autotuners need to be imported.
    """
    code, (root, package) = function_slice(path, name, [known for known, _ in imported]), package_of(path)
    module = ModuleType(f"{package}.{path.stem}" if package else path.stem)
    vars(module).update(__file__=str(path), __package__=package)
    sys.path.insert(0, str(root))
    try:
        with accelerator_stand_in():
            vars(module).update({known: _at(place) for known, place in imported})
            exec(code, vars(module))
    except Exception as error:
        raise BadSpec(f"{path}: {name} cannot be loaded: {raised(error, str(path))}") from error
    finally:
        sys.path.remove(str(root))
    function = getattr(module, name.rpartition(".")[2])
    while type(function).__name__ in ("Autotuner", "Heuristics"):  # of a definition below an `if`, which is run whole
        function = function.fn
    return importlib.import_module("triton").jit(function) if inspect.isfunction(function) else function


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    while hasattr(function, "fn"):  # a JITFunction, perhaps under triton.heuristics
        function = function.fn
    return inspect.signature(function).parameters


def interpreted(function: Any) -> bool:
    while hasattr(function, "fn"):
        if type(function).__name__ == "InterpretedFunction":
            return True
        function = function.fn
    return False


def options_of(spec: KernelSpec, config: Config) -> dict[str, Any]:
    """Return the config's compile options, without those that are 0: the compiler decides about them."""
    return {name: config[name] for name in spec.options() if name in config and not _is_zero(config[name])}


def _is_zero(value: Value) -> bool:
    return value == 0 and not isinstance(value, bool)


def arguments_of(
    spec: KernelSpec, problem: Problem, config: Config, step: Launch, tensors: Tensors, function: Any
) -> dict[str, Any]:
    """Return all of the function's arguments by name; raises `BadSpec` if spec and function do not match.

    The only function of a spec takes every buffer, scalar and constexpr parameter; one of several takes those it needs.
    """
    options = spec.options()
    constants = {name: value for name, value in config.items() if name not in options}
    fixed = spec.constants(problem)
    arguments: dict[str, Any] = {**tensors, **spec.scalars(problem), **fixed, **constants, **step.constants}
    wanted = _parameters(function)
    unknown = sorted(arguments.keys() - wanted.keys())
    if unknown and spec.launches is None:
        raise BadSpec(f"kernel {spec.name} passes {', '.join(unknown)}, which its function does not take")
    needed = {name for name, parameter in wanted.items() if parameter.default is inspect.Parameter.empty}
    if missing := sorted(needed - arguments.keys() - _supplied(function)):
        raise BadSpec(f"kernel {spec.name} does not pass {', '.join(missing)}, which its function requires")
    return {name: value for name, value in arguments.items() if name in wanted}


def _supplied(function: Any) -> set[str]:
    """Return the names of the arguments that triton.heuristics computes."""
    return set(getattr(function, "values", ()))
