"""Shared by the device tests: a stand-in for torch_npu and for a Triton function on an NPU, which runs on CPU tensors
with a clock of its own."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Parameter, Problem, Tiling, ceil_div
from tilewise.tuner.devices.npu import NpuRuntime

PROBLEM = Problem("sums", {"M": 10, "N": 6}, "float32")
OVERFLOW = "error: ub overflow, requires 2162688 bits while 1572864 bits available! (possible reason: large tile)"


class MLIRCompilationError(Exception):
    """Named as triton-ascend's, which is how it is recognised."""


class DeviceFault(RuntimeError):
    pass


class StandIn:
    """`torch.npu` and `torch_npu.profiler`; `log` is every kernel that ran, with its microseconds."""

    def __init__(self, *, name="Ascend910B4", cores=40, limit=None, profiler="works"):
        self.log, self.now_us, self.profiler_works = [], 0.0, profiler
        self.profiler = SimpleNamespace(
            profile=lambda **arguments: _Profile(self, **arguments),
            tensorboard_trace_handler=lambda folder: folder,
            ProfilerActivity=SimpleNamespace(NPU="npu"),
            AiCMetrics=SimpleNamespace(PipeUtilization="pipes"),
            ProfilerLevel=SimpleNamespace(Level1="level1"),
            _ExperimentalConfig=lambda **arguments: arguments,
        )
        self.npu = SimpleNamespace(
            get_device_name=lambda index: name,
            get_device_properties=lambda index: SimpleNamespace(name=name, vector_core_num=cores),
            mem_get_info=lambda index: (30 << 30, 32 << 30),
            synchronize=self.synchronize,
            Event=lambda enable_timing: _Event(self),
        )
        if limit is not None:
            self.npu.get_device_limit = lambda index: {"cube_core_num": limit // 2, "vector_core_num": limit}
        self.runtime = NpuRuntime(self.npu, self.profiler, "cpu", "triton-ascend 3.2.0, CANN stand-in")

    def ran(self, kernel, us):
        self.now_us += us
        self.log.append((kernel, us))

    def synchronize(self):
        """torch's own kernels (clearing the cache, the probe's addition) are seen here."""
        self.log.append(("aclnnReduceSum_ReduceSum_ReduceSum", 100.0))


class _Event:
    def __init__(self, stand_in):
        self.stand_in, self.at = stand_in, None

    def record(self):
        self.at = self.stand_in.now_us

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e3


class _Profile:
    """Writes kernel_details.csv where the real one does, with its columns."""

    def __init__(self, stand_in, *, activities, on_trace_ready, experimental_config):
        assert activities == ["npu"]
        assert experimental_config["profiler_level"] == "level1"
        self.stand_in, self.folder = stand_in, Path(on_trace_ready)

    def __enter__(self):
        if self.stand_in.profiler_works == "fails":
            raise RuntimeError("profiler init failed")
        self.first = len(self.stand_in.log)

    def __exit__(self, *error):
        if self.stand_in.profiler_works == "silent":
            return
        output = self.folder / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        with (output / "kernel_details.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Device_id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)"])
            for kernel, us in self.stand_in.log[self.first :]:
                writer.writerow([0, kernel, kernel, "AI_VECTOR_CORE", 0, us])


class StandInFunction:
    """Sums of rows, a block of rows a program; a config can make it fail in the ways of the real thing."""

    __name__ = "sums_kernel"

    def __init__(self, stand_in):
        self.stand_in, self.launches = stand_in, 0

    def fn(self, x_ptr, out_ptr, M, N, ROWS, fault=""):  # noqa: N803
        raise NotImplementedError

    def run(self):
        raise NotImplementedError

    def __getitem__(self, grid):
        return lambda **arguments: self._launch(grid, **arguments)

    def _launch(self, grid, *, x_ptr, out_ptr, M, N, ROWS, fault, multibuffer):  # noqa: N803
        match fault:
            case "overflow":
                raise MLIRCompilationError(
                    f"\n///---[ERROR]---\n[ConvertLinalgRToBinary] encounters error:\n{OVERFLOW}\n"
                )
            case "compile":
                raise MLIRCompilationError("\n///---\n[ConvertTritonIRToLinalgIR] encounters error:\nloc(x): no\n")
            case "grid":
                raise RuntimeError("grid should be less than 65536! You can try ...")
            case "device":
                raise DeviceFault("NPU function error: aclrtSynchronizeStream, error code is 507035\n[ERROR] ...")
        assert isinstance(multibuffer, bool)
        out_ptr[: grid[0] * ROWS].copy_(x_ptr[: grid[0] * ROWS].sum(1))
        if fault == "wrong":
            out_ptr[-1] = 0
        self.launches += 1
        self.stand_in.ran("sums_kernel", 10.0 * ROWS + self.launches % 3)
        return SimpleNamespace(metadata=SimpleNamespace(required_ub_bits=4096))


def stand_in_spec(stand_in):
    def tiling(config, problem):
        m, n = problem.dims["M"], problem.dims["N"]
        return Tiling((Axis("M", m, config["ROWS"], config["ROWS"]), Axis("N", n, n, n)), 0, 0)

    return KernelSpec(
        name="sums",
        summary="sums of rows",
        function=StandInFunction(stand_in),
        dims=("M", "N"),
        dtypes=("float32",),
        parameters=(
            Parameter("ROWS", lambda problem, target: [1, 2, 4]),
            Parameter("fault", lambda problem, target: [""]),
            Parameter("multibuffer", lambda problem, target: [True, False], role="option"),
        ),
        buffers=lambda problem: {
            "x_ptr": Buffer((problem.dims["M"], problem.dims["N"]), problem.dtype),
            "out_ptr": Buffer((problem.dims["M"],), problem.dtype, role="out"),
        },
        scalars=lambda problem: dict(problem.dims),
        grid=lambda config, problem: (ceil_div(problem.dims["M"], config["ROWS"]),),
        tiling=tiling,
        reference=lambda inputs: {"out_ptr": inputs["x_ptr"].sum(1)},
        flops=lambda problem: 1,
        default=lambda problem, target: {"ROWS": 1, "fault": "", "multibuffer": True},
    )


@pytest.fixture
def stand_in_npu(monkeypatch):
    """`stand_in_npu(cores=..., limit=..., profiler="works" | "silent" | "fails")` -> (stand-in, spec, problem)."""

    monkeypatch.setattr("tilewise.tuner.devices.npu_timer.EVICTION_BYTES", 4096)  # no cache to clear here

    def make(**arguments):
        stand_in = StandIn(**arguments)
        return stand_in, stand_in_spec(stand_in), PROBLEM

    return make
