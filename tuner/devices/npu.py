"""Ascend NPUs: triton-ascend compiles through CANN, torch_npu launches and times.

Importing torch_npu where CANN is missing breaks torch for the whole process, so `available` looks at the machine
first and nothing is imported before it is content.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.base import Device, DeviceRow, Outcome, Timing, Verdict
from tilewise.tuner.devices.model import toolchain
from tilewise.tuner.devices.model.parts import PARTS
from tilewise.tuner.devices.npu_timer import choose_timer
from tilewise.tuner.launch import launcher, resolve_function, resolve_functions
from tilewise.tuner.measurement import summarise
from tilewise.tuner.verify import Arguments, disagreement, verify
from tilewise.tuner.worker import describe

if TYPE_CHECKING:
    from tilewise.tuner.devices.model.device import ModelDevice

__all__ = ["NpuDevice", "NpuRuntime", "available", "failure", "identity", "row"]

UB_BYTES = 192 * 1024
"""Unified buffer of one vector core on the 910B and 910_93 families: `UB_SIZE` 1572864 bits in the device spec that
Huawei's compiler puts into every module. The runtime does not tell it."""

MAX_PROGRAMS = 65535
"""The runtime's block count is 16 bits ("coreDim=... can't be greater than UINT16_MAX")."""

SAMPLES = 30
"""Runs of a kernel that are timed; triton-ascend's `do_bench_npu` takes as many."""

_UB_OVERFLOW = re.compile(r"ub overflow, requires (\d+) bits while (\d+) bits available", re.IGNORECASE)
_FAULT = re.compile(r"\b(507015|507035|EZ9999)\b")
"""Device faults; the context of the process is unusable afterwards."""


@dataclass(frozen=True, slots=True)
class NpuRuntime:
    """What of torch_npu is used: `npu` is `torch.npu`, `profiler` is `torch_npu.profiler`, `place` says where tensors
    are made, `versions` is the toolchain's fingerprint."""

    npu: Any
    profiler: Any
    place: str
    versions: str


def available() -> str | None:
    """Why there is no usable NPU, in one line, or None; imports neither torch nor torch_npu."""
    if not list(Path("/dev").glob("davinci[0-9]*")):
        return "no Ascend NPU on this machine (no /dev/davinci*)"
    if not os.environ.get("ASCEND_HOME_PATH"):
        return "CANN is not set up (ASCEND_HOME_PATH is unset): source its set_env.sh"
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed: pip install 'tilewise[npu]'"
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None or not (Path(triton.origin).parent / "backends" / "ascend").is_dir():
        return "triton-ascend is not installed (or another triton is in its place): pip install 'tilewise[npu]'"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 makes Triton interpret on the CPU: unset it"
    return None


def row() -> DeviceRow:
    """The device's line in `tilewise devices`."""
    if (why_not := available()) is not None:
        return DeviceRow("npu", "Ascend NPU", Clock.MEASURED, None, available=False, why_not=why_not)
    try:
        runtime = _runtime(0)
        return DeviceRow("npu", runtime.npu.get_device_name(0), Clock.MEASURED, _cores(runtime.npu, 0), available=True)
    except Unavailable as error:
        return DeviceRow("npu", "Ascend NPU", Clock.MEASURED, None, available=False, why_not=str(error))


class NpuDevice(Device):
    """One Ascend NPU; raises `Unavailable` where there is none.

    Compiles in this process, one config after another. After a device fault (507015, 507035, EZ9999) the config gets
    status `runtime` and the next call raises `Unavailable`: the process has to be started again.

    `runtime` replaces torch_npu in tests.
    """

    clock = Clock.MEASURED
    batch = 4

    def __init__(self, index: int = 0, *, runtime: NpuRuntime | None = None, samples: int = SAMPLES) -> None:
        if runtime is None:
            if (why_not := available()) is not None:
                raise Unavailable(f"no device npu: {why_not}")
            runtime = _runtime(index)
        self.id = "npu" if index == 0 else f"npu:{index}"
        self._runtime, self._samples, self._lost = runtime, samples, ""
        self.target = _target(runtime, index)
        self._timer = choose_timer(runtime, runtime.place)
        self.toolchain = f"{runtime.versions}, timed by {self._timer.name}"
        self._memory = int(runtime.npu.mem_get_info(index)[1])
        self._held: tuple[KernelSpec, Problem, Arguments] | None = None
        self._beside: ModelDevice | None = None

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        resolve_functions(spec)
        for config in configs:
            self._require_life()
            yield self._outcome(spec, problem, config)

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        self._require_life()
        try:
            return verify(spec, problem, config, self._arguments(spec, problem))
        except Exception as error:
            outcome = self._failed(error)
            return disagreement(f"the launch failed: {outcome.reason}", status=outcome.status)

    def foresee(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]) -> Sequence[float | None] | None:
        """By the model of this part, where it is modelled and the open Ascend compiler is installed beside CANN's."""
        if (model := self.model()) is None:
            return None
        outcomes = model.evaluate(spec, problem, configs)
        return [outcome.timing.time_us if outcome.timing else None for outcome in outcomes]

    def model(self) -> ModelDevice | None:
        """The model of this part with the cores that this process may use, timed as here: with an empty L2 cache."""
        if self._beside is None and self.target.name in PARTS and not toolchain.why_not():
            from tilewise.tuner.devices.model.device import ModelDevice

            self._beside = ModelDevice(self.target.name, cores=self.target.cores, evicted=True)
        return self._beside

    def memory_bytes(self) -> int:
        """A quarter of the memory; the float64 reference is computed on the host."""
        return self._memory // 4

    def close(self) -> None:
        self._held = None
        if self._beside is not None:
            self._beside.close()

    def _outcome(self, spec: KernelSpec, problem: Problem, config: Config) -> Outcome:
        try:
            arguments = self._arguments(spec, problem)
            run = launcher(spec, problem, config, arguments.bind(config))
            arguments.reset()
            kernels = run()  # compiles
            self._runtime.npu.synchronize()
            return Outcome(
                Status.CORRECT, timing=self._timing(spec, problem, config, run, arguments), facts=_facts(kernels)
            )
        except Exception as error:
            return self._failed(error)

    def _timing(self, spec: KernelSpec, problem: Problem, config: Config, run: Any, arguments: Arguments) -> Timing:
        names = [resolve_function(spec, step.function).__name__ for step in spec.plan(config, problem)]
        before = arguments.reset if arguments.needs_reset else None
        return summarise(self._timer.samples_us(run, names, self._samples, before))

    def _arguments(self, spec: KernelSpec, problem: Problem) -> Arguments:
        """The problem's tensors, made once; the reference is computed on the CPU, for the NPU has no float64."""
        if self._held is None or self._held[0] != spec or self._held[1] != problem:
            self._held = None
            self._held = (spec, problem, Arguments(spec, problem, device=self._runtime.place, reference_device="cpu"))
        return self._held[2]

    def _failed(self, error: Exception) -> Outcome:
        outcome = failure(error)
        if _FAULT.search(str(error)):
            self._lost = outcome.reason
        return outcome

    def _require_life(self) -> None:
        if self._lost:
            raise Unavailable(f"{self.id} is lost to this process after a fault ({self._lost}); start again to go on")


def failure(error: Exception) -> Outcome:
    """What a failed compile or launch says about its config."""
    text = str(error)
    if (overflow := _UB_OVERFLOW.search(text)) is not None:
        required, available = (int(number) for number in overflow.groups())
        reason = f"needs {required} bits of on-chip memory, {available} are there"
        return Outcome(Status.COMPILE, reason, facts={"on_chip_bits": {"required": required, "available": available}})
    if "coreDim" in text or "grid should be less than" in text:
        return Outcome(Status.CONSTRAINTS, f"more than {MAX_PROGRAMS} programs: {describe(error)}")
    if type(error).__name__ in {"MLIRCompilationError", "CompilationError", "CompileTimeAssertionFailure"}:
        return Outcome(Status.COMPILE, f"{type(error).__name__}: {describe(error)}")
    if (fault := _FAULT.search(text)) is not None:
        return Outcome(Status.RUNTIME, f"device fault {fault.group()}: {describe(error)}")
    return Outcome(Status.RUNTIME, f"{type(error).__name__}: {describe(error)}")


def _facts(kernels: Sequence[Any]) -> dict[str, Any]:
    """On-chip memory, where the compiler told it; of several kernels, the most."""
    required = max(getattr(kernel.metadata, "required_ub_bits", None) or 0 for kernel in kernels)
    return {"on_chip_bits": {"required": required, "available": 8 * UB_BYTES}} if required else {}


def identity(index: int) -> tuple[Target, str]:
    """The NPU as a target, and the versions that its toolchain begins with."""
    runtime = _runtime(index)
    return _target(runtime, index), runtime.versions


def _target(runtime: NpuRuntime, index: int) -> Target:
    return Target(
        family="ascend",
        name=runtime.npu.get_device_name(index),
        cores=_cores(runtime.npu, index),
        on_chip_bytes=UB_BYTES,
        align_bytes=32,  # one block of the unified buffer
        max_programs=MAX_PROGRAMS,
    )


def _runtime(index: int) -> NpuRuntime:
    try:
        import torch
        import torch_npu
        import triton
    except (ImportError, OSError) as error:
        raise Unavailable(f"no device npu: torch_npu does not import: {describe(error)}") from error
    npu: Any = torch.npu  # type: ignore[attr-defined]  # put there by torch_npu
    if not npu.is_available() or index >= npu.device_count():
        raise Unavailable(f"no device npu:{index}: torch_npu {torch_npu.__version__} sees {npu.device_count()} NPUs")
    npu.set_device(index)
    versions = f"triton-ascend {triton.__version__}, torch {torch.__version__}, torch_npu {torch_npu.__version__}"
    return NpuRuntime(npu, torch_npu.profiler, f"npu:{index}", f"{versions}, CANN {_cann_version()}")


def _cann_version() -> str:
    """From the toolkit's `version.cfg`-like files, or `unknown`."""
    root = Path(os.environ.get("ASCEND_HOME_PATH", ""))
    for file in sorted(root.glob("*/ascend_toolkit_install.info")) + sorted(root.glob("version.cfg")):
        if (found := re.search(r"version\s*=\s*\[?([\w.]+)", file.read_text(errors="replace"))) is not None:
            return found.group(1)
    return "unknown"


def _cores(npu: Any, index: int) -> int:
    """Vector cores that this process may use: the part's, or fewer where a limit is set."""
    cores = int(npu.get_device_properties(index).vector_core_num)
    if hasattr(npu, "get_device_limit"):  # torch_npu 2.7 and newer
        cores = min(cores, int(npu.get_device_limit(index)["vector_core_num"]))
    return cores
