"""A stand-in for torch_npu and for the NPU behind it.

Tensors on any NPU are CPU tensors. Triton's interpreter runs the kernels that triton-ascend compiled; the constexpr
`FAULT` makes a kernel misbehave. Time is a counter of nanoseconds that kernels advance by a formula.

The environment variable `NPU_STAND_IN` (JSON) sets `MODES`, which says what is special or wrong about the machine. Its
`times_us` may give a kernel a fixed time; the kernel is then not run. A kernel whose time is null fails.
"""

import csv
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

__version__ = "stand-in"

MODES = json.loads(os.environ.get("NPU_STAND_IN", "{}"))
RAN = []  # (name, start, end) in nanoseconds of every kernel that ran
BYTES_PER_US = 8e5
LARGE = (192 << 20, 512 << 20)  # the timers' and the runtime's own buffers
LATE = []  # a fault that the next synchronize raises, and each one after it


def ran(name, us):
    start = RAN[-1][2] if RAN else 10**15
    RAN.append((name, start, start + round(us * 1000)))


# The device ----------------------------------------------------------------------------------------------------------


class OnCpu(TorchFunctionMode):
    """A mode that puts on the CPU whatever is requested on an NPU; reading a large buffer takes the host no time."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        arguments = [cpu(argument) for argument in arguments]
        if "device" in keywords:
            keywords["device"] = cpu(keywords["device"])
        if function in (torch.Tensor.sum, torch.Tensor.copy_) and arguments[0].nbytes in LARGE:
            moved = arguments[0].nbytes * (2 if function is torch.Tensor.copy_ else 1)
            ran("aclnnReduceSum_ReduceSumOpAiCore_ReduceSum", moved / BYTES_PER_US)
            return arguments[0]
        if function is torch.Tensor.add_:
            ran("aclnnInplaceAdd_AddAiCore_Add", 40.0)
        return function(*arguments, **keywords)


def cpu(value):
    on_npu = isinstance(value, str | torch.device) and str(value).startswith("npu")
    return "cpu" if on_npu else value


class Npu:
    """`torch_npu.npu`."""

    def is_available(self):
        return True

    def device_count(self):
        return len(os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "0").split(","))

    def set_device(self, device):
        assert device < self.device_count()

    def get_device_name(self, device_name=None):
        return MODES.get("name", "Ascend910B4")

    def get_device_properties(self, device_name=None):
        return SimpleNamespace(name=self.get_device_name(), vector_core_num=40, cube_core_num=20)

    def get_device_limit(self, device):
        return {"cube_core_num": 20, "vector_core_num": MODES.get("limit", 40)}

    def mem_get_info(self, device=None):
        return (30 << 30, 32 << 30)

    def synchronize(self, device=None):
        if LATE:
            raise RuntimeError(LATE[0])

    class Event:
        def __init__(self, enable_timing=False, blocking=False, interprocess=False):
            self.at, self.is_timed = None, enable_timing

        def record(self, stream=None):
            self.at = RAN[-1][2] if RAN else 10**15

        def elapsed_time(self, end_event):
            assert self.is_timed and end_event.is_timed, "the event was made without enable_timing"
            return (end_event.at - self.at) / 1e6


npu = Npu()
torch.utils.rename_privateuse1_backend("npu")
OnCpu().__enter__()
Generator = torch.Generator
torch.Generator = lambda device="cpu": Generator(cpu(device))


# The profiler --------------------------------------------------------------------------------------------------------

COLUMNS = [
    "Device_id",
    "Name",
    "Type",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Num",
]


class Profile:
    """A profiler that writes `kernel_details.csv` where the real one does."""

    def __init__(self, *, activities, on_trace_ready, experimental_config):
        assert activities == ["NPU"]
        assert experimental_config["profiler_level"] == "Level1"
        self.folder = Path(on_trace_ready)

    def __enter__(self):
        if MODES.get("profiler") == "fails":
            raise RuntimeError("aclprofInit failed, error code 500005")
        self.first = len(RAN)

    def __exit__(self, *error):
        if MODES.get("profiler") == "silent":
            return
        output = self.folder / "host_1_20261121090000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        with (output / "kernel_details.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for name, start, end in RAN[self.first :]:
                writer.writerow([0, name, name, "AI_VECTOR_CORE", f"{start / 1e3:.3f}\t", (end - start) / 1e3, 0, 40])


profiler = SimpleNamespace(
    profile=Profile,
    tensorboard_trace_handler=lambda dir_name=None: dir_name,
    ProfilerActivity=SimpleNamespace(NPU="NPU"),
    AiCMetrics=SimpleNamespace(PipeUtilization="PipeUtilization"),
    ProfilerLevel=SimpleNamespace(Level1="Level1"),
    _ExperimentalConfig=lambda **options: options,
)


# Triton's driver -----------------------------------------------------------------------------------------------------

FAULT = """NPU function error: call aclrtSynchronizeStream failed, error code is 507035
[ERROR] 2026-11-21-09:00:00 (PID:1, Device:0, RankID:-1) ERR00100 PTA call acl api failed
[Error]: The vector core execution is abnormal.
EZ9999: Inner Error!
       The extend info: errcode:(0, 0x200000000000000, 0) errorStr: The MPU address access is invalid. fixp_error0 info
"""


class Driver:
    """The part of triton-ascend's `NPUDriver` that a launch needs."""

    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 1},
        load_binary=lambda name, kernel, shared, device: (name, kernel, 0, 0),
    )

    def get_current_target(self):
        return GPUTarget("npu", npu.get_device_name(), 0)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    class launcher_cls:  # noqa: N801 - Triton's word
        def __init__(self, src, metadata):
            self.fn, self.constants, self.name = src.fn, dict(src.constants), metadata.kernel_name

        def __call__(self, x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            assert b"hivm" in function  # made by the real compiler
            launch(self, (x, y, z), arguments)


def launch(kernel, grid, arguments):
    formula = 5.0 + sum(tensor.nbytes for tensor in arguments if isinstance(tensor, torch.Tensor)) / BYTES_PER_US
    time_us = MODES.get("times_us", {}).get(kernel.name, formula)
    if time_us is None:
        raise RuntimeError(f"{kernel.name} does not run")
    if kernel.name not in MODES.get("times_us", {}):
        run(kernel, grid, arguments)
    ran(kernel.name, time_us * (1 + 0.01 * (len(RAN) % 3 - 1)))


LAUNCHED = set()


def identity(value):
    """Return the part of an argument that the launch depends on. Torch counts writes, so poisoning changes it."""
    return (value.data_ptr(), value._version) if isinstance(value, torch.Tensor) else value


def run(kernel, grid, arguments):
    """Interpret the kernel, unless this very launch has left its outputs: interpreting takes a hundred milliseconds,
    and a timer launches hundreds of times."""
    from triton.runtime.interpreter import InterpretedFunction

    fault = kernel.constants.get("FAULT", 0)
    if fault == 1:
        LATE.append(FAULT)
    elif fault == 2:
        time.sleep(600)
    names = [name for i, name in enumerate(kernel.fn.arg_names) if i not in kernel.fn.constexprs]
    values = kernel.constants | dict(zip(names, arguments, strict=True))
    launched = (kernel.fn.fn, grid, *((name, identity(value)) for name, value in sorted(values.items())))
    if not LATE and launched not in LAUNCHED:
        InterpretedFunction(kernel.fn.fn)[grid](**values)
        LAUNCHED.add(launched)
    if fault == 3:
        values["out_ptr"][-1] = 0


triton.runtime.driver.set_active(Driver())
