"""A recorder of the Triton kernels that a program launches.

All of Triton's launchers are called as `kernel[grid](..)`, which one method of their base class turns into a launch:
it is replaced while the program runs. On a host without an accelerator nothing is launched; elsewhere the launch
follows as usual.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tilewise.db.records import Value
from tilewise.errors import BadSpec, UsageError
from tilewise.kernels.definitions import nesting_of
from tilewise.kernels.function_slice import given_names, missing_names, unknown_arguments
from tilewise.tuner.capture.calls import Argument, Call, CapturedKernel, TensorArgument, TritonDtype
from tilewise.tuner.capture.interpreter import NotInterpreted, interpret
from tilewise.tuner.capture.stores import stored_arguments
from tilewise.tuner.stand_in.accelerator import accelerator_stand_in
from tilewise.tuner.workers.worker import describe

__all__ = ["MOST_CALLS", "Recorder", "recording"]

MOST_CALLS = 64
"""Different calls kept of one kernel: enough to tell its dimensions apart; a benchmark may make thousands."""

_MOST_TELLING, _MOST_VALUES = 1 << 16, 64
"""Elements of a tensor whose values are kept: of truths and integers that rise or all differ, and of others."""

_LAUNCH_SECONDS, _ALL_SECONDS = 10.0, 30.0
"""Processor time for the interpretation of a launch, and of all of a program: most take less than one second."""

_MOST_READ = 1 << 24
"""Elements of a tensor whose range is looked at."""

_WIDENED = ("uint16", "uint32", "uint64", "bool")
"""Integers of which torch finds no range."""

_AMD_OPTIONS = frozenset({"matrix_instr_nonkdim", "waves_per_eu", "kpack", "allow_flush_denorm", "schedule_hint"})
"""Options that only AMD's compiler takes: programs give them wherever the device is not NVIDIA's."""

_DEFAULT_OPTIONS = {"num_ctas": 1, "num_buffers_warp_spec": 0, "num_consumer_groups": 0, "reg_dec_producer": 0}
_DEFAULT_OPTIONS |= {"reg_inc_consumer": 0, "force_simt_template": False, "enable_linearize": False}
"""Options that a `triton.Config` always has, with the values that ask for nothing."""


class Recorder:
    """The kernels launched so far, by file and name.

    `skips_launches`: they are not launched here. Those that store integers or truths are interpreted, as a program may
    choose later launches by these.
    """

    def __init__(self) -> None:
        self._kernels: dict[tuple[Path, str], CapturedKernel] = {}
        self._functions: dict[tuple[Path, str], list[Any]] = {}
        self._seconds_left = _ALL_SECONDS
        self.skips_launches = False

    @property
    def kernels(self) -> list[CapturedKernel]:
        return list(self._kernels.values())

    def launched(self, launcher: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record one launch. One that cannot be read is left out, with a reason."""
        chain = _Chain(launcher)
        kernel = self._kernel(chain, args, kwargs)
        if kernel is None or len(kernel.calls) >= MOST_CALLS:
            return
        try:
            call, passed = chain.call(grid, args, kwargs)
        except _Unreadable as error:
            reason = str(error)
        except Exception as error:  # of the program's grid, heuristics or pruning
            reason = f"a launch could not be read: {type(error).__name__}: {describe(error)}"
        else:
            kernel.add(call)
            if self.skips_launches:
                self._interpret(kernel, chain.function.fn, call, passed)
            return
        if reason not in kernel.left_out:
            kernel.left_out.append(reason)

    def _interpret(self, kernel: CapturedKernel, function: Any, call: Call, passed: Mapping[str, Any]) -> None:
        """Interpret a launch that stores integers, with its first config, unless one of the kernel failed before."""
        stored = stored_arguments(function)
        whole = any(name in stored and "float" not in tensor.dtype for name, tensor in call.tensors.items())
        if kernel.not_interpreted or not whole:
            return
        seconds = min(_LAUNCH_SECONDS, self._seconds_left)
        try:
            if seconds < 1:
                raise NotInterpreted(f"launches before it took {_ALL_SECONDS:.0f} s")
            self._seconds_left -= interpret(function, passed, call.grids[0], seconds=seconds)
        except NotInterpreted as error:
            self._seconds_left -= error.seconds
            kernel.not_interpreted = str(error)

    def _kernel(self, chain: _Chain, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CapturedKernel | None:
        if chain.function is None:
            return None
        function = chain.function.fn
        file = inspect.getsourcefile(function)
        if file is None:
            return None
        key = Path(file).resolve(), nesting_of(function)
        if key not in self._kernels:
            self._kernels[key], self._functions[key] = chain.kernel(*key), [function]
            chain.read_hooks(self._kernels[key], args, kwargs)
        known = self._kernels[key]
        if function not in self._functions[key]:
            if (imported := chain.kernel(*key).imported) != known.imported:
                others = ", ".join(sorted(name for name in imported if imported[name] != known.imported.get(name)))
                known.left_out.append(f"launches of it with another {others} are left out")
                return None
            self._functions[key].append(function)
        return known


class _Unreadable(Exception):
    """A launch with an argument that a spec cannot hold; the text says which."""


class _Chain:
    """The wrappers around a jitted function, outermost first: libraries', an autotuner, heuristics, the function."""

    def __init__(self, launcher: Any) -> None:
        self.tuner: Any = None
        self.heuristics: list[Any] = []
        self.function: Any = None
        while launcher is not None and not inspect.isfunction(launcher):
            if hasattr(launcher, "configs") and hasattr(launcher, "keys"):
                self.tuner = launcher
            elif isinstance(getattr(launcher, "values", None), Mapping):
                self.heuristics.append(launcher)
            elif hasattr(launcher, "params"):
                self.function = launcher
            launcher = getattr(launcher, "fn", None)

    def kernel(self, file: Path, nesting: str) -> CapturedKernel:
        params, tuner = self.function.params, self.tuner
        found = CapturedKernel(
            nesting.rpartition(".")[2],
            file,
            tuple(p.name for p in params),
            frozenset(p.name for p in params if p.is_constexpr),
            tuple(getattr(tuner, "keys", ())),
            tuple(getattr(tuner, "reset_to_zero", None) or ()),
            tuple(getattr(tuner, "restore_value", None) or ()),
            nesting=nesting,
        )
        self._look_up_names(found)
        kinds = {p.kind: p.name for p in inspect.signature(self.function.fn).parameters.values()}
        if name := kinds.get(inspect.Parameter.VAR_KEYWORD, ""):
            found.obstacles.append(f"it takes **{name}, as kernels of Triton 1 do and those of later ones may not")
        return found

    def read_hooks(self, kernel: CapturedKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Take the tensors that the configs' hooks set to zero as those of `reset_to_zero`; hooks that do more are an
        obstacle."""
        tuner, given = self.tuner, {**dict(zip(self.function.arg_names, args, strict=False)), **kwargs}
        hooks = [
            (config.pre_hook, config.all_kwargs())
            for config in getattr(tuner, "configs", ())
            if getattr(config, "pre_hook", None)
        ]
        hooks += [(partial(tuner.pre_hook, reset_only=False), {})] if _has_own_hook(tuner) else []
        zeroed: set[str] = set()
        for hook, config in hooks:
            found = _zeroed(hook, {**given, **config})
            if found is None:
                kernel.obstacles.append("it has a pre_hook that does more than set tensors to zero")
                return
            zeroed |= found
        kernel.reset_to_zero = (*kernel.reset_to_zero, *sorted(zeroed - set(kernel.reset_to_zero)))

    def _look_up_names(self, kernel: CapturedKernel) -> None:
        """Find the places of the names that the program has set in the kernel's file, or given to functions around."""
        known, around = self.function.fn.__globals__, inspect.getclosurevars(self.function.fn).nonlocals
        try:
            missing = missing_names(kernel.file, kernel.nesting) & known.keys()
            given = given_names(kernel.file, kernel.nesting)
        except BadSpec as error:
            kernel.obstacles.append(str(error))
            return
        places = {name: _place(name, known[name]) for name in sorted(missing)}
        places |= {name: _place(name, around[name]) if name in around else "" for name in sorted(given)}
        kernel.imported = {name: place for name, place in places.items() if place}
        nowhere = {name for name, place in places.items() if not place}
        if names := sorted(nowhere - given):
            kernel.obstacles.append(
                f"it uses {', '.join(names)}, which {kernel.file.name} does not define; import or define it there"
            )
        if unknown := nowhere & given:
            kernel.obstacles.append(unknown_arguments(kernel.file, kernel.nesting, unknown))

    def call(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, dict[str, Any]]:
        """Return a launch, and the arguments that the function gets with its first config."""
        params = self.function.params
        named = {p.name: p.default for p in params if p.default is not inspect.Parameter.empty}
        named |= {**dict(zip((p.name for p in params), args, strict=False)), **kwargs}
        configs = self._configs(args, kwargs)
        computed = [self._computed({**named, **config}) for config in configs]
        named |= self._taken_as_constants(computed)
        metas = [{**named, **config, **more} for config, more in zip(configs, computed, strict=True)]
        for config, more in zip(
            configs, computed, strict=True
        ):  # compile options that heuristics choose are no arguments
            options = {name: more.pop(name) for name in [*more] if name not in self.function.arg_names}
            config.update(_without_defaults(options))
        tuned = {name for config in (*configs, *computed) for name in config}
        given = {p.name: _read(p.name, named[p.name]) for p in params if p.name in named and p.name not in tuned}
        passed = {n: v for n, v in kwargs.items() if n not in given and n not in tuned and n in _PASSED_OPTIONS}
        call = Call(
            given,
            tuple({**passed, **config} for config in configs),
            tuple(_grid(grid, meta) for meta in metas),
            tuple({name: _constant(name, value) for name, value in more.items()} for more in computed),
        )
        return call, {p.name: metas[0][p.name] for p in params if p.name in metas[0]}

    def _computed(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return the constants that heuristics compute; each sees those before it."""
        found: dict[str, Any] = {}
        for wrapper in self.heuristics:
            for name, function in wrapper.values.items():
                found[name] = function({**named, **found})
        return found

    def _taken_as_constants(self, computed: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Take away the constants that heuristics give whatever the arguments are: the program might pass them."""
        found: dict[str, Any] = {}
        for name, function in ((n, f) for wrapper in self.heuristics for n, f in wrapper.values.items()):
            with suppress(Exception):  # it reads arguments
                value = function({})
                if name in self.function.arg_names and all(values[name] == value for values in computed):
                    found[name] = value
        for values in computed:
            for name in found:
                del values[name]
        return found

    def _configs(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the autotuner's configs, for a call without those that the program prunes."""
        if self.tuner is None:
            return [{}]
        configs = self.tuner.configs
        prune = getattr(self.tuner, "early_config_prune", None)
        if prune is not None and kwargs is not None:
            configs = prune(configs, dict(zip(self.tuner.arg_names, args, strict=False)), **kwargs)
        foreign = _AMD_OPTIONS.difference(self.function.arg_names)
        return [{n: v for n, v in _values(config).items() if n not in foreign} for config in configs]


def _has_own_hook(tuner: Any) -> bool:
    """Return whether the program gave the autotuner a function to call before each run."""
    return bool(getattr(tuner, "user_defined_pre_hook", False))


def _zeroed(hook: Callable[[dict[str, Any]], Any], given: Mapping[str, Any]) -> set[str] | None:
    """Return the names of the tensors that a hook sets to zero, called on copies full of ones; None if it does more."""
    torch = importlib.import_module("torch")
    copies, seen = dict(given), dict[str, Any]()
    try:
        copies |= {name: torch.ones_like(value) for name, value in given.items() if isinstance(value, torch.Tensor)}
        seen |= copies
        hook(seen)
    except Exception:  # it wants other arguments, such as tensor descriptors
        return None
    changed = {n for n, v in copies.items() if isinstance(v, torch.Tensor) and not bool((v == 1).all())}
    only_zero = all(not bool(copies[name].any()) for name in changed)
    is_same = seen.keys() == copies.keys() and all(seen[name] is value for name, value in copies.items())
    return changed if only_zero and is_same else None


def _place(name: str, value: Any) -> str:
    """Return the module that a value is, or `module:name` of one that has it; empty if there is none."""
    if inspect.ismodule(value):
        return value.__name__
    own = getattr(value, "__module__", ""), getattr(getattr(value, "fn", value), "__qualname__", name)
    for module, known in (own, *((module, name) for module in list(sys.modules))):
        with suppress(AttributeError):  # it is defined inside a function, or the module lacks the name
            if module != "__main__" and module and _attribute(sys.modules.get(module), known) is value:
                return f"{module}:{known}"
    return ""


def _attribute(module: Any, known: str) -> Any:
    """Return an attribute, `Class.name` too, that looking at does not make."""
    for part in known.split("."):
        module = inspect.getattr_static(module, part)
        module = module.__func__ if isinstance(module, staticmethod) else module
    return module


_PASSED_OPTIONS = {"num_warps", "num_stages", "multibuffer", "maxnreg", "num_ctas"}
"""Compile options that a program may pass in a launch."""


def _values(config: Any) -> dict[str, Any]:
    return _without_defaults(config.all_kwargs())


def _without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    return {n: v for n, v in given.items() if n not in _DEFAULT_OPTIONS or v != _DEFAULT_OPTIONS[n]}


def _grid(grid: Any, named: Mapping[str, Any]) -> tuple[int, ...]:
    sizes = grid(dict(named)) if callable(grid) else grid
    return tuple(int(size) for size in (sizes if isinstance(sizes, Sequence) else (sizes,)))


def _constant(name: str, value: Any) -> Value:
    if isinstance(value, (bool, int, float, str)):
        return value
    raise _Unreadable(f"{name}={value!r:.40} is computed by triton.heuristics; a spec takes numbers, words and truths")


def _read(name: str, value: Any) -> Argument:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if all(hasattr(value, part) for part in ("stride", "shape", "data_ptr", "element_size")):
        return _tensor(name, value)
    module, kind = type(value).__module__, type(value).__name__
    if kind == "constexpr" and module.startswith("triton."):
        return _read(name, value.value)
    if kind == "dtype" and module.startswith("triton."):
        return TritonDtype(f"tl.{_TRITON_NAMES.get(str(value), str(value))}")
    raise _Unreadable(f"{name} is a {kind}; a spec takes tensors, numbers, words and truth values")


_TRITON_NAMES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def _tensor(name: str, tensor: Any) -> TensorArgument:
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    dtype = str(tensor.dtype).removeprefix("torch.")
    if 0 in shape:
        raise _Unreadable(f"{name} is empty in a launch, which is left out")
    if any(stride < 0 for stride in strides):
        raise _Unreadable(f"{name} has a negative stride")
    torch = importlib.import_module("torch")
    whole = isinstance(tensor, torch.Tensor) and not tensor.is_floating_point() and not tensor.is_complex()
    memory = _memory(tensor) if any(not stride and size > 1 for size, stride in zip(shape, strides, strict=True)) else 0
    if not whole or tensor.numel() > _MOST_READ or tensor.device.type == "meta":
        return TensorArgument(shape, strides, dtype, memory=memory)
    flat = tensor.flatten().long() if dtype in _WIDENED else tensor.flatten()
    low, high = (int(end) for end in flat.aminmax())
    truths, is_wrapped = dtype == "bool", dtype == "uint64" and low < 0
    if is_wrapped or (truths and not high):  # false as allocated, perhaps for a kernel that is not launched here
        return TensorArgument(shape, strides, dtype, memory=memory)
    is_kept = low < high and flat.numel() <= (_MOST_TELLING if truths or _is_telling(flat) else _MOST_VALUES)
    return TensorArgument(shape, strides, dtype, low, high, tuple(flat.tolist()) if is_kept else None, memory)


def _is_telling(flat: Any) -> bool:
    """Return whether random integers would hardly do: these rise, as offsets do, or all differ, as places to write."""
    return bool((flat[1:] >= flat[:-1]).all()) or (flat.numel() <= _MOST_TELLING and len(flat.unique()) == len(flat))


def _memory(tensor: Any) -> int:
    """Return the elements from a tensor's first to the end of its memory, 0 for one that is not torch's."""
    storage = getattr(tensor, "untyped_storage", None)
    return storage().nbytes() // tensor.element_size() - tensor.storage_offset() if storage else 0


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record every launch of this process while the block runs.

    Without an accelerator, nothing is launched, and a stand-in answers the program's questions about devices. Raises
    `UsageError` under Triton's interpreter.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise UsageError("TRITON_INTERPRET=1 replaces the launches that a capture records; unset it")
    recorder = Recorder()
    with accelerator_stand_in() as stands_in, _replaced(recorder, stands_in):
        recorder.skips_launches = stands_in
        yield recorder


@contextmanager
def _replaced(recorder: Recorder, stands_in: bool) -> Iterator[None]:
    """Replace the methods by which programs launch."""
    jit = importlib.import_module("triton.runtime.jit")
    before = (
        jit.KernelInterface.__getitem__,
        jit.JITFunction.__dict__.get("run"),
        jit.JITFunction.__dict__.get("warmup"),
    )

    def launcher(kernel: Any, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            recorder.launched(kernel, grid, args, kwargs)
            return None if stands_in else before[0](kernel, grid)(*args, **kwargs)

        return launch

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        return _Compiled(recorder, kernel, kwargs, args) if warmup else launcher(kernel, grid)(*args, **kwargs)

    def warmup(kernel: Any, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        return _Compiled(recorder, kernel, kwargs, args)

    jit.KernelInterface.__getitem__ = launcher
    if stands_in:
        jit.JITFunction.run, jit.JITFunction.warmup = run, warmup
    try:
        yield
    finally:
        jit.KernelInterface.__getitem__ = before[0]
        if stands_in:
            jit.JITFunction.run = before[1]
            if before[2] is None:
                del jit.JITFunction.warmup
            else:
                jit.JITFunction.warmup = before[2]


class _Compiled:
    """A stand-in for a compiled kernel, which some programs ask for its registers and launch themselves.

    Programs divide what the device has by what the kernel needs, so it needs some of everything.
    """

    n_regs, n_spills, shared = 32, 0, 4096
    metadata = SimpleNamespace(shared=shared, num_warps=4, num_stages=2, num_ctas=1)

    def __init__(self, recorder: Recorder, kernel: Any, kwargs: Mapping[str, Any], args: Sequence[Any]) -> None:
        names = [p.name for p in kernel.params]
        fixed = {p.name for p in kernel.params if p.is_constexpr}
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        self._recorder, self._kernel, self._names = recorder, kernel, names
        self._constants = {name: value for name, value in given.items() if name in fixed or name not in names}
        self._others = [name for name in names if name not in fixed]

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            taken = self._others if len(args) <= len(self._others) else self._names
            given = dict(zip(taken, args, strict=False)) | kwargs
            self._recorder.launched(self._kernel, grid, (), {**self._constants, **given})

        return launch
