"""CUDA: discovery everywhere, compiling with upstream Triton, timing with a GPU."""

import os
import subprocess
import sys
from types import SimpleNamespace
from uuid import UUID

import pytest
from places import HELPERS

from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.devices import registry as devices
from tilewise.tuner.devices.base import DeviceRow
from tilewise.tuner.devices.cuda import compile as cuda_compile
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
from tilewise.tuner.devices.measured import triton_start
from tilewise.tuner.devices.measured.device import Limits
from tilewise.tuner.workers.worker import WorkerFailed, WorkerPool

KERNELS = HELPERS / "faulty_kernels.py"
HEADLINE = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
H200 = Target("nvidia", "NVIDIA H200", 132, 228 * 1024, 16, 2**31 - 1)

why_no_gpu = cuda.unavailable_reason()

# --- everywhere -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(why_no_gpu is None, reason="this machine has a GPU")
def test_a_host_without_a_gpu_says_so_in_one_line_and_imports_nothing():
    code = (
        "import sys; from tilewise.tuner.devices.cuda import device;"
        "print(device.unavailable_reason()); print(device.row().unavailable_reason);"
        "print([m for m in ('torch', 'triton') if m in sys.modules])"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [why_no_gpu, why_no_gpu, "[]"]
    with pytest.raises(Unavailable, match="no device cuda: "):
        cuda.CudaDevice()


class TwoGpus:
    """Two GPUs, in the words of `libcuda.so.1`; `error` is the code that it answers everything with."""

    ATTRIBUTES = ({16: 132, 75: 9, 76: 0}, {16: 58, 75: 8, 76: 9})

    def __init__(self, error=0):
        self.error = error

    def cuInit(self, flags):  # noqa: N802 - the driver's names, here and below
        assert flags == 0
        return self.error

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 2
        return self.error

    def cuDeviceGetName(self, name, length, index):  # noqa: N802
        assert length >= 256
        name.value = (b"NVIDIA H200", b"NVIDIA L4")[index]

    def cuDeviceGetAttribute(self, value, attribute, index):  # noqa: N802
        value._obj.value = self.ATTRIBUTES[index][attribute]

    def cuDeviceGetUuid_v2(self, uuid, index):  # noqa: N802
        uuid[:] = range(index, index + 16)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(cuda, "unavailable_reason", lambda: None)
    monkeypatch.setattr(cuda, "_driver", TwoGpus)


def test_several_gpus_have_a_row_each_after_one_for_whichever_is_free(two_gpus):
    assert [(row.id, row.name) for row in devices.FAMILIES["cuda"].rows()] == [
        ("cuda", "NVIDIA H200"),
        ("cuda:0", "NVIDIA H200"),
        ("cuda:1", "NVIDIA L4"),
    ]
    assert devices.chips("cuda") == ["cuda:0", "cuda:1"]
    assert devices.chips("cuda:1") == ["cuda:1"]


def test_the_only_gpu_needs_no_number(two_gpus, monkeypatch):
    monkeypatch.setattr(cuda, "_count", lambda driver: 1)
    monkeypatch.setattr(cuda.MeasuredDevice, "__init__", lambda self, name, *given, **more: setattr(self, "id", name))
    assert cuda.CudaDevice().id == "cuda"
    assert devices.chips("cuda") == ["cuda"]
    assert [row.id for row in devices.FAMILIES["cuda"].rows()] == ["cuda"]


def test_the_row_of_the_device_names_the_first_gpu_and_its_cores(two_gpus, monkeypatch):
    assert cuda.row() == DeviceRow("cuda", "NVIDIA H200", Clock.MEASURED, 132, available=True)
    monkeypatch.setattr(cuda, "unavailable_reason", lambda: "no driver")
    assert cuda.row() == DeviceRow(
        "cuda", "NVIDIA GPU", Clock.MEASURED, None, available=False, unavailable_reason="no driver"
    )


@pytest.mark.parametrize(
    ("index", "name", "uuid", "capability"), [(0, "cuda:0", range(16), 90), (1, "cuda:1", range(1, 17), 89)]
)
def test_a_gpu_is_locked_by_its_uuid_and_compiled_for_without_seeing_it(
    two_gpus, monkeypatch, index, name, uuid, capability
):
    given = {}

    def opened(self, *positional, **more):
        given.update(more, positional=positional)

    monkeypatch.setattr(cuda.MeasuredDevice, "__init__", opened)
    limits = Limits(run_seconds=1.0)
    device = cuda.CudaDevice(index, jobs=3, limits=limits, wait=2.0, warm=True)
    assert given == {
        "positional": (name, f"cuda-{bytes(uuid).hex()}", (cuda.RUNTIME, index, True), cuda_compile.ENTRY),
        "imports": ("torch", "triton"),
        "compile_imports": (triton_start.ENTRY,),
        "compile_env": {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": None},
        "jobs": 3,
        "limits": limits,
        "wait": 2.0,
    }
    assert device.compile_arguments() == (capability,)
    assert device.serial == f"GPU-{UUID(bytes=bytes(uuid))}"
    assert cuda.CudaDevice.batch == 8


def test_configs_that_do_not_compile_are_the_compilers_refusals(two_gpus, monkeypatch):
    monkeypatch.setattr(cuda.MeasuredDevice, "__init__", lambda *given, **more: None)
    device = cuda.CudaDevice()
    statuses = {
        kind: device.refusal(WorkerFailed(kind, "why")).status
        for kind in ("CompilationError", "OutOfResources", "ValueError")
    }
    assert statuses == {
        "CompilationError": Status.COMPILE,
        "OutOfResources": Status.CONSTRAINTS,
        "ValueError": Status.COMPILE,
    }
    assert "why" in device.refusal(WorkerFailed("ValueError", "why")).reason


@pytest.mark.parametrize(("error", "usable"), [(0, True), (3, False)])
def test_a_driver_that_does_not_initialise_is_none(monkeypatch, error, usable):
    opened = []
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: opened.append(name) or TwoGpus(error))
    assert (cuda._driver() is not None) == usable
    assert opened == ["libcuda.so.1"]


def test_triton_that_is_not_installed_is_said_to_be_missing(monkeypatch):
    for found in (None, SimpleNamespace(origin=None)):
        monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name, found=found: found if name != "torch" else 1)
        assert cuda.unavailable_reason() == "triton is not installed: pip install 'tilewise[cuda]'"
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)
    assert cuda.unavailable_reason() == "torch is not installed: pip install 'tilewise[cuda]'"


def test_compiling_ahead_is_for_the_given_capability_and_tells_the_most_shared_memory(monkeypatch):
    pytest.importorskip("triton")
    from triton.runtime.driver import driver

    active, tried = [], []
    kernels = [SimpleNamespace(metadata=SimpleNamespace(shared=shared)) for shared in (64, 1024, 512)]
    monkeypatch.setattr(driver, "set_active", active.append)
    monkeypatch.setattr(cuda_compile, "compiled", lambda *given: tried.append(given) or iter(kernels))
    ticks = iter([10.0, 12.34567])
    monkeypatch.setattr(cuda_compile.time, "perf_counter", lambda: next(ticks))
    facts = cuda_compile.compile_config("row_reduce", HEADLINE, {"num_warps": 4}, 89)
    assert facts == {"shared_bytes": 1024, "compile_s": 2.3457}
    assert tried == [(registry.load("row_reduce"), HEADLINE, {"num_warps": 4})]
    (target,) = active
    given = target.get_current_target()
    assert (given.backend, given.arch, given.warp_size) == ("cuda", 89, 32)
    assert (target.get_current_device(), target.get_current_stream(0)) == (0, 0)


@pytest.mark.parametrize(
    ("driver", "interpreted", "reason"),
    [
        (TwoGpus(), "", "None"),
        (TwoGpus(), "1", "TRITON_INTERPRET=1 makes Triton interpret"),
        (TwoGpus(error=3), "", "the NVIDIA driver finds no GPU"),
        (None, "", "no NVIDIA driver on this machine"),
    ],
)
def test_a_gpu_is_usable_where_the_driver_finds_one_and_triton_compiles(monkeypatch, driver, interpreted, reason):
    monkeypatch.setattr(cuda, "_without_upstream_triton", lambda: None)
    monkeypatch.setattr(cuda, "_driver", lambda: driver)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    assert str(cuda.unavailable_reason()).startswith(reason)


@pytest.mark.parametrize(
    ("backend", "said"), [("nvidia", "None"), ("ascend", "the triton installed here has no NVIDIA")]
)
def test_another_triton_than_upstreams_is_told_from_it(monkeypatch, tmp_path, backend, said):
    (tmp_path / "backends" / backend).mkdir(parents=True)
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(cuda, "_driver", TwoGpus)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert str(cuda.unavailable_reason()).startswith(said)


def test_a_gpu_beyond_those_that_the_driver_finds_is_refused(monkeypatch):
    monkeypatch.setattr(cuda, "_without_upstream_triton", lambda: None)
    monkeypatch.setattr(cuda, "_driver", TwoGpus)
    with pytest.raises(Unavailable, match=r"^no device cuda:2: the NVIDIA driver finds 2 GPUs$"):
        cuda.CudaDevice(2)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("CompilationError", Status.COMPILE),
        ("OutOfResources", Status.CONSTRAINTS),
        ("AcceleratorError", Status.RUNTIME),
    ],
)
def test_an_error_says_by_its_kind_what_became_of_the_config(kind, status):
    assert cuda_compile.status(kind) is status


# --- with a GPU and upstream Triton ---------------------------------------------------------------------------------


@pytest.mark.needs_gpu
def test_configs_are_compiled_in_processes_without_a_gpu(tmp_path):
    config = dict(registry.load("row_reduce").default(HEADLINE, H200))
    pool = WorkerPool(cuda_compile.ENTRY, 2, env={**cuda._NO_GPU, "TRITON_CACHE_DIR": str(tmp_path)})
    try:
        tried = [config, config | {"SUB_BLOCK_SIZE_M": 3}, config | {"num_warps": 3}]
        good, odd_rows, odd_warps = [pool.submit("row_reduce", HEADLINE, c, 90, timeout=100) for c in tried]
        assert good.result()["shared_bytes"] >= 0
        assert list(tmp_path.rglob("*.cubin"))
        with pytest.raises(WorkerFailed, match=r"CompilationError: .*power of 2"):
            odd_rows.result()
        with pytest.raises(WorkerFailed, match="num_warps must be a power of 2"):
            odd_warps.result()
    finally:
        pool.close()


@pytest.fixture(scope="module")
def device():
    device = cuda.CudaDevice(jobs=4)
    yield device
    device.close()


@pytest.mark.needs_gpu
def test_the_headline_problem_is_compiled_timed_and_verified(device):
    spec = registry.load("row_reduce")
    config = spec.default(HEADLINE, device.target)
    (outcome,) = device.evaluate(spec, HEADLINE, [config])
    assert outcome.status is Status.CORRECT, outcome.reason
    assert outcome.facts["compiled"] == "ahead"
    assert outcome.timing.time_us >= 0.9 * device.floor_us(spec, HEADLINE)
    assert outcome.timing.samples >= 20
    assert device.verify(spec, HEADLINE, config).agreed


@pytest.mark.needs_gpu
def test_a_second_timing_agrees_with_the_first(device):
    spec = registry.load("row_reduce")
    config = spec.default(HEADLINE, device.target)
    first, second = device.evaluate(spec, HEADLINE, [config, config])
    assert second.timing.time_us == pytest.approx(first.timing.time_us, rel=0.1)


@pytest.mark.needs_gpu
def test_accumulating_kernels_are_timed_and_verified(device):
    spec = registry.load(f"{KERNELS}:ADDING")
    problem = Problem("adding", {"M": 19, "N": 150}, "float32")
    config = {"ROWS": 8, "SUB": 1, "COLS": 64}
    (outcome,) = device.evaluate(spec, problem, [config])
    assert outcome.status is Status.CORRECT, outcome.reason
    assert device.verify(spec, problem, config).agreed


@pytest.mark.needs_gpu
def test_the_timer_takes_any_callable():
    import torch

    runtime = CudaRuntime()
    x = torch.randn(1 << 20, device=runtime.place)
    eager = runtime.events.device_time_us(lambda: (x * 2 + 1).sigmoid().sum(), seconds=0.01)
    single = runtime.events.device_time_us(x.sum, seconds=0.01)
    assert runtime.events.floor_us() < single.time_us < eager.time_us


@pytest.mark.needs_gpu
def test_the_process_that_tunes_opens_no_context(tmp_path):
    code = (
        "from tilewise.tuner.devices.cuda.device import CudaDevice; import sys\n"
        "with CudaDevice(jobs=1) as device: print([m for m in ('torch', 'triton') if m in sys.modules])"
    )
    env = os.environ | {
        "TILEWISE_CACHE": str(tmp_path)
    }  # the device's lock, which this process may hold, is in another
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, timeout=60)
    assert done.stdout == "[]\n"
