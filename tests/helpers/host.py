"""An accelerator made of this machine's processor: CPU tensors, Python functions as kernels, and a clock of its own.

The kernels may misbehave in every way. They run in the real bench process, through the real worker.
"""

import ctypes
import dataclasses
import os
import signal
import sys
import time

from tilewise.db.records import Status
from tilewise.errors import BadSpec, StoreError
from tilewise.kernels import registry
from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Problem, Target, Tiling
from tilewise.tuner.devices.measured.accelerator import Description, Failure, Runtime, Timer
from tilewise.tuner.devices.measured.device import Limits, MeasuredDevice
from tilewise.tuner.measure.outcome import Outcome

PROBLEM = Problem("sums", {"M": 12, "N": 40}, "float32")
LIMITS = Limits(
    compile_seconds=3, prepare_seconds=60, run_seconds=1.0, floors=0, growth_bytes=100 << 20, disk_bytes=8 << 20
)


class DeviceFault(RuntimeError):
    """The only error that the device raises once it is lost."""


class HostTimer(Timer):
    """A timer that reads the runtime's clock, which kernels advance."""

    name = "host clock"

    def __init__(self, runtime):
        self._runtime = runtime

    def samples_us(self, run, kernels, count, before=None, warm=False):
        return [self._sample(run, before) for _ in range(count)]

    def _sample(self, run, before):
        if before is not None:
            before()
        begin = self._runtime.now_us
        run()
        return self._runtime.now_us - begin


class HostRuntime(Runtime):
    place = reference_place = "cpu"

    def __init__(self, name="Host"):
        self.timer, self.now_us, self.lost, self.late, self._name = HostTimer(self), 0.0, False, 0, name

    def describe(self):
        target = Target("nvidia", self._name, 4, 1 << 16, 16, 65535)
        return Description(target, f"host 1, timed by {self.timer.name}", 1 << 30)

    def synchronize(self):
        if self.lost:
            raise DeviceFault("the device is lost")

    def failure(self, error):
        return Failure(Outcome(Status.RUNTIME, f"{type(error).__name__}: {error}"), isinstance(error, DeviceFault))

    def check(self, spec):
        """Accept any callable, unless the host is picky."""
        if self._name == "Picky":
            raise BadSpec("no kernel for a picky host")

    def kernel_names(self, spec, problem, config):
        return [spec.function.__name__]

    def launcher(self, spec, problem, config, tensors):
        return lambda: [spec.function(self, config=dict(config), **tensors)]


class Dead(HostRuntime):
    """A runtime whose process dies whenever it is opened."""

    def __init__(self, name):
        os.kill(os.getpid(), signal.SIGKILL)


class HostDevice(MeasuredDevice):
    batch = 8
    RUNTIME = "host:HostRuntime"

    def __init__(self, *, name="Host", jobs=1, limits=LIMITS, **arguments):
        runtime = (self.RUNTIME, name)
        arguments = {"imports": ["torch", "host"], "jobs": jobs, "limits": limits, **arguments}
        arguments["bench_env"] = {"OMP_NUM_THREADS": "1"}  # more threads would only wait for one another here
        super().__init__("host", f"host-{name}", runtime, "host:compile_config", **arguments)


def compile_config(origin, problem, config):
    registry.load(origin)
    match config["FAULT"]:
        case "compile":
            raise SyntaxError("this config does not compile")
        case "no database":
            raise StoreError("the artefacts cannot be reached")
        case "compile crash":
            print("the compiler's last words", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
    return {"compile_s": 0.0}


def sums(runtime, x_ptr, out_ptr, config):
    """Sum the rows; `FAULT` says what goes wrong."""
    runtime.synchronize()
    time.sleep(0.2 * (config["FAULT"] == "slow"))
    if runtime.late:
        runtime.late -= 1
        if not runtime.late:
            os.abort()
    total = x_ptr.sum(1)
    match config["FAULT"]:
        case "nan":
            total[3] = float("nan")
        case "one input":
            total = total.clone() if x_ptr.max() > 0 else total + 1
        case "unwritten":
            total = out_ptr.clone()
        case "outside":
            out_ptr.as_strided((1,), (1,), out_ptr.storage_offset() + out_ptr.numel() + 7).fill_(1)
        case "to input":
            x_ptr[0, 0] = 0.0
        case "late":
            runtime.late = 8
        case fault if fault not in ("", "slow"):
            misbehave(runtime, fault)
    out_ptr.copy_(total)
    runtime.now_us += time_us(config)


def time_us(config):
    return 10.0 + config["TILE"]


def misbehave(runtime, fault):
    print(f"about to {fault}", flush=True)
    MISDEEDS[fault](runtime)


def _raise(runtime):
    raise ValueError("this config raises")


def _close_pipe(runtime):
    os.closerange(3, 64)
    time.sleep(600)


def _lose(runtime):
    runtime.lost = True
    runtime.synchronize()


def _hang(runtime):
    open(os.path.join(os.environ["TMPDIR"], "hanging"), "w").close()
    time.sleep(600)


def _abort_and_tell(runtime):
    with open(os.path.join(os.environ["TILEWISE_CACHE"], "told"), "a") as file:
        file.write("tried\n")
    os.abort()


def _spin(runtime):
    while True:
        pass


def _fill_memory(runtime):
    held = [b"x" * (16 << 20) for _ in range(400)]
    time.sleep(600 + len(held))


def _fill_disk(runtime):
    with open(os.path.join(os.environ["TMPDIR"], "junk"), "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


MISDEEDS = {
    "raises": _raise,
    "compile": _raise,
    "segfault": lambda runtime: ctypes.string_at(0),
    "abort": lambda runtime: os.abort(),
    "abort and tell": _abort_and_tell,
    "exit": lambda runtime: sys.exit(3),
    "close pipe": _close_pipe,
    "fault": _lose,
    "hang": _hang,
    "spin": _spin,
    "memory": _fill_memory,
    "disk": _fill_disk,
}


ELSEWHERE = ("nan", "unwritten", "one input", "outside", "to input", "late", "compile crash")
"""Kinds of fault that are not among the misdeeds."""

KINDS = [kind for kind in (*MISDEEDS, *ELSEWHERE) if kind not in ("late", "abort and tell")]


def configs():
    """Return a hundred configs, of which thirty are faulty and spread among the others."""
    return _with_faults(100, 30)


def _with_faults(count, faults):
    faulty = {3 * turn + 4: KINDS[turn % len(KINDS)] for turn in range(faults)}
    return [{"TILE": tile, "FAULT": faulty.get(tile, "")} for tile in range(count)]


def _tiling(config, problem):
    m, n = problem.dims["M"], problem.dims["N"]
    return Tiling((Axis("M", m, m, 1), Axis("N", n, n, n)), 0, 0)


SPEC = KernelSpec(
    name="sums",
    summary="sums of rows",
    function=sums,
    dims=("M", "N"),
    dtypes=("float32",),
    parameters=(
        Parameter("TILE", lambda problem, target: list(range(100))),
        Parameter("FAULT", lambda problem, target: ["", *MISDEEDS, *ELSEWHERE]),
    ),
    configs=lambda problem, target: configs(),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["M"], problem.dims["N"]), problem.dtype),
        "out_ptr": Buffer((problem.dims["M"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: {},
    grid=lambda config, problem: (1,),
    tiling=_tiling,
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].sum(1)},
    flops=lambda problem: 1,
    default=lambda problem, target: {"TILE": 0, "FAULT": ""},
)

EACH_FAULT_ONCE = dataclasses.replace(
    SPEC, configs=lambda problem, target: _with_faults(3 * len(KINDS) + 5, len(KINDS))
)

HANGING = dataclasses.replace(SPEC, configs=lambda problem, target: [{"TILE": 0, "FAULT": "hang"}])
CRASHING = dataclasses.replace(
    SPEC, configs=lambda problem, target: [{"TILE": 1, "FAULT": ""}, {"TILE": 2, "FAULT": "abort and tell"}]
)
