"""Torch on a host without an accelerator, for a program that asks for one.

While the block of `torch_stand_in` runs, `torch.cuda` and `torch.npu` answer for one device each, of which that of the
installed Triton is available. Whatever is asked for on either is made on the CPU. Once the program has named an
accelerator, each of its tensors says that it lies there: programs compare devices, and call their kernels for tensors
on one only.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

from tilewise.tuner.stand_in.driver import TIMED_MS, is_ascend, properties

__all__ = ["torch_stand_in"]

_KINDS = ("cuda", "npu")


class _Event:
    """An event of a stream on which nothing happens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return TIMED_MS


class _Stream(_Event):
    """A stream on which nothing happens."""

    cuda_stream = npu_stream = 0
    device_index = 0

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> _Event:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None: ...


class _Generator:
    """A generator of random numbers with the state of an accelerator's: a seed and an offset, 8 bytes each."""

    def __init__(self) -> None:
        self._state = importlib.import_module("torch").zeros(16, dtype=importlib.import_module("torch").uint8)

    def get_state(self) -> Any:
        return self._state.clone()

    def set_state(self, state: Any) -> None:
        self._state = state.clone()

    def manual_seed(self, seed: int) -> _Generator:
        return self

    def initial_seed(self) -> int:
        return 0

    def seed(self) -> int:
        return 0


def _properties(index: Any = 0) -> SimpleNamespace:
    known = properties()
    return SimpleNamespace(
        name="a stand-in",
        major=9,
        minor=0,
        total_memory=64 << 30,
        multi_processor_count=known["multiprocessor_count"],
        warp_size=known["warpSize"],
        regs_per_multiprocessor=known["max_num_regs"],
        max_threads_per_multi_processor=2048,
        shared_memory_per_multiprocessor=known["max_shared_mem"],
        shared_memory_per_block_optin=known["max_shared_mem"],
        L2_cache_size=50 << 20,
        cube_core_num=known["num_aicore"],
        vector_core_num=known["num_vectorcore"],
    )


def _answers(kind: str) -> dict[str, Any]:
    """Return the functions of `torch.cuda` or `torch.npu` for one idle device.

    Only that of the installed Triton is available: libraries choose their code by that.
    """
    constants: dict[str, Any] = {
        "is_available": kind == _KINDS[is_ascend()],
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": "a stand-in",
        "get_device_capability": (9, 0),
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (64 << 30, 64 << 30),
        "get_rng_state": None,
        **dict.fromkeys(("init", "set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all")),
        **dict.fromkeys(("reset_peak_memory_stats", "set_rng_state", "set_stream", "ipc_collect", "set_compile_mode")),
    }
    torch = importlib.import_module("torch")
    constants["get_amp_supported_dtype"] = [torch.float16, torch.bfloat16, torch.float32]  # asked for by torch.autocast
    functions: dict[str, Callable[..., Any]] = {name: _constant(value) for name, value in constants.items()}
    return {
        **functions,
        "get_device_properties": _properties,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "Stream": _Stream,
        "Event": _Event,
        "default_generators": (_Generator(),),
        "device": lambda device=None: nullcontext(),
        "device_of": lambda tensor=None: nullcontext(),
        "stream": lambda stream=None: nullcontext(),
    }


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


class _Claims:
    """The accelerator that the program has named, if any."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.named: Any = None

    def device(self) -> Any:
        """Return the accelerator, for a program that asks which one there is."""
        return self.on_cpu(f"{_KINDS[is_ascend()]}:0") and self.named

    def on_cpu(self, value: Any) -> Any:
        """Return the CPU for a device of an accelerator, by text, index or object; any other value unchanged."""
        torch = self._torch
        if isinstance(value, str) and value.partition(":")[0] in _KINDS:
            value = torch.device(value)
        if isinstance(value, torch.device) and value.type in _KINDS:
            self.named = torch.device(value.type, value.index or 0)
            return torch.device("cpu")
        return value

    def index_on_cpu(self, value: Any) -> Any:
        """Return the CPU also for `device=0`, an index of the present accelerator."""
        if isinstance(value, int) and not isinstance(value, bool):
            value = f"{self.device().type}:{value}"
        return self.on_cpu(value)


def _mode(torch: Any, claims: _Claims) -> Any:
    """Return a torch function mode that maps accelerators to the CPU, and has tensors claim the named one."""
    overrides = importlib.import_module("torch.overrides")
    tensor = torch.Tensor
    answers: dict[Any, Callable[[Any], Any]] = {
        tensor.device.__get__: lambda real: claims.named if claims.named is not None else real,
        tensor.is_cuda.__get__: lambda real: claims.named is not None,  # on an NPU too, as programs moved there see it
        tensor.is_cpu.__get__: lambda real: claims.named is None,
        tensor.get_device: lambda real: -1 if claims.named is None else 0,
    }
    empty = {torch.empty, torch.empty_like, torch.empty_strided, tensor.new_empty, tensor.new_empty_strided}
    moves = {tensor.cuda: "cuda"} | ({tensor.npu: "npu"} if hasattr(tensor, "npu") else {})

    class OnCpu(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined, unused-ignore]
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            named = dict(kwargs or {})
            if func is torch.device:
                return func(*args, **named)
            if func in moves:
                claims.on_cpu(moves[func])
                return args[0]
            if func is tensor.pin_memory:
                return args[0]
            if "device" in named:
                named["device"] = claims.index_on_cpu(named["device"])
            named.pop("pin_memory", None)
            placed = [claims.on_cpu(a) if isinstance(a, (str, torch.device)) else a for a in args]
            result = func(*placed, **named)
            if func in empty and not result.dtype.is_floating_point:
                result.zero_()  # what no launch fills are indices of anything otherwise
            return answers[func](result) if func in answers else result

    return OnCpu()


@contextmanager
def torch_stand_in() -> Iterator[Callable[[], Any]]:
    """Stand in for an accelerator, and yield a function that returns its torch device."""
    torch: Any = importlib.import_module("torch")
    claims = _Claims(torch)
    added = _add_npu(torch)
    answers = _answers("cuda")
    before = {name: getattr(torch.cuda, name) for name in answers if hasattr(torch.cuda, name)}
    default = torch.set_default_device
    for name in before:
        setattr(torch.cuda, name, answers[name])
    torch.set_default_device = lambda device: claims.index_on_cpu(device) and None
    # the renamed backend has no hooks, which torch.distributed.barrier() runs into when it asks for the accelerator
    accelerator = torch._C._get_accelerator
    torch._C._get_accelerator = _constant(torch.device("cpu"))
    try:
        mode = _mode(torch, claims)
        with mode, _in_gradients(torch, mode), _uncompiled(torch):
            yield claims.device
    finally:
        torch.set_default_device = default
        torch._C._get_accelerator = accelerator
        for name, function in before.items():
            setattr(torch.cuda, name, function)
        for name in added:
            sys.modules.pop(name, None)
        if added:
            del torch.npu


@contextmanager
def _in_gradients(torch: Any, mode: Any) -> Iterator[None]:
    """Have the mode hold in gradients too: it is off while it answers the call that computes them."""
    name = "_engine_run_backward"
    run: Any = getattr(torch.autograd, name, None)

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return run(*args, **kwargs)

    if run is not None:
        setattr(torch.autograd, name, run_backward)
    try:
        yield
    finally:
        if run is not None:
            setattr(torch.autograd, name, run)


@contextmanager
def _uncompiled(torch: Any) -> Iterator[None]:
    """Have functions under `torch.compile` run as they are: compiled ones could not be read for a missing device.

    The stance is torch's compiler's, whose import takes seconds: it is set when the compiler is first asked for.
    """
    if not hasattr(torch.compiler, "set_stance"):
        yield
        return
    compiles = torch.compile
    with ExitStack() as block:

        def set_stance() -> None:
            block.enter_context(torch.compiler.set_stance("force_eager"))

        def compile_first(*args: Any, **named: Any) -> Any:
            if torch.compile is compile_first:
                torch.compile = compiles
                set_stance()
            return compiles(*args, **named)

        if "torch._dynamo" in sys.modules:
            set_stance()
        else:
            torch.compile = compile_first
        try:
            yield
        finally:
            torch.compile = compiles


def _add_npu(torch: Any) -> list[str]:
    """Add `torch.npu` and modules `torch_npu` and `torch.npu`, unless torch_npu is installed; return their names.

    torch can read the device name `npu` only after its spare backend is named so, which stays.
    """
    if hasattr(torch, "npu") or importlib.util.find_spec("torch_npu") is not None:
        return []
    with suppress(RuntimeError):  # it has a name already: this one, from an earlier block, or a program's own
        torch.utils.rename_privateuse1_backend("npu")
    npu = ModuleType("torch.npu")
    vars(npu).update(_answers("npu"))
    package = ModuleType("torch_npu")
    package.__spec__ = importlib.machinery.ModuleSpec("torch_npu", None)
    package.__path__ = []
    vars(package)["npu"] = npu
    torch.npu = npu
    sys.modules |= {"torch_npu": package, "torch.npu": npu}
    return ["torch_npu", "torch.npu"]
