"""An accelerator made of this machine's processor: CPU tensors, kernels that are Python functions and may misbehave in
every way, and a clock of its own. What it runs is run by the real bench process, through the real worker."""

import ctypes
import os
import signal
import sys
import time

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Problem, Target, Tiling
from tilewise.tuner.devices.base import Outcome
from tilewise.tuner.devices.measured import Limits, MeasuredDevice
from tilewise.tuner.devices.runtime import Description, Failure, Runtime, Timer

PROBLEM = Problem("sums", {"M": 12, "N": 40}, "float32")
LIMITS = Limits(
    compile_seconds=3, prepare_seconds=60, run_seconds=2.0, floors=0, growth_bytes=400 << 20, disk_bytes=64 << 20
)

BENIGN = ("",)
DISAGREE = ("nan", "unwritten", "one input", "outside", "to input")
RAISE = ("raises",)
FATAL = ("segfault", "abort", "exit", "close pipe", "fault", "late")
SLOW = ("hang", "spin")
GREEDY = ("memory", "disk")
UNCOMPILED = ("compile", "compile crash")
FAULTS = (*DISAGREE, *RAISE, *FATAL, *SLOW, *GREEDY, *UNCOMPILED)


class DeviceFault(RuntimeError):
    """What the device throws once it is lost; it throws nothing else from then on."""


class HostTimer(Timer):
    """The runtime's clock, which kernels advance."""

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
        """Any callable will do."""

    def kernel_names(self, spec, problem, config):
        return [spec.function.__name__]

    def launcher(self, spec, problem, config, tensors):
        return lambda: [spec.function(self, config=dict(config), **tensors)]


class HostDevice(MeasuredDevice):
    batch = 8

    def __init__(self, *, name="Host", jobs=2, limits=LIMITS, **arguments):
        runtime = ("host:HostRuntime", name)
        arguments = {"imports": ["torch"], "jobs": jobs, "limits": limits, **arguments}
        super().__init__("host", f"host-{name}", runtime, "host:compile_config", **arguments)


def compile_config(origin, problem, config):
    registry.load(origin)
    match config["fault"]:
        case "compile":
            raise SyntaxError("this config does not compile")
        case "compile crash":
            print("the compiler's last words", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
    return {"compile_s": 0.0}


def sums(runtime, x_ptr, out_ptr, config):
    """Sums of rows; `fault` says how it goes wrong."""
    runtime.synchronize()
    if runtime.late:
        runtime.late -= 1
        if not runtime.late:
            os.abort()
    total = x_ptr.sum(1)
    match config["fault"]:
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
            runtime.late = 30
        case fault if fault:
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
    "exit": lambda runtime: sys.exit(3),
    "close pipe": _close_pipe,
    "fault": _lose,
    "hang": lambda runtime: time.sleep(600),
    "spin": _spin,
    "memory": _fill_memory,
    "disk": _fill_disk,
}


def _tiling(config, problem):
    m, n = problem.dims["M"], problem.dims["N"]
    return Tiling((Axis("M", m, 1, 1), Axis("N", n, n, n)), 0, 0)


SPEC = KernelSpec(
    name="sums",
    summary="sums of rows",
    function=sums,
    dims=("M", "N"),
    dtypes=("float32",),
    parameters=(
        Parameter("TILE", lambda problem, target: list(range(100))),
        Parameter("fault", lambda problem, target: ["", *FAULTS]),
    ),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["M"], problem.dims["N"]), problem.dtype),
        "out_ptr": Buffer((problem.dims["M"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: {},
    grid=lambda config, problem: (1,),
    tiling=_tiling,
    reference=lambda inputs: {"out_ptr": inputs["x_ptr"].sum(1)},
    flops=lambda problem: 1,
    default=lambda problem, target: {"TILE": 50, "fault": ""},
)
