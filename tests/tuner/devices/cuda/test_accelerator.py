"""The GPU inside the bench process, with torch on the CPU in place of a GPU."""

from types import SimpleNamespace

import pytest

from tilewise.db.records import Status
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import accelerator
from tilewise.tuner.devices.cuda.accelerator import RATE_BYTES, REFERENCE_BYTES, CudaRuntime
from tilewise.tuner.devices.cuda.cupti_timer import CuptiTimer
from tilewise.tuner.devices.measured.accelerator import State

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

PROPERTIES = SimpleNamespace(
    name="NVIDIA H200",
    uuid="12-34",
    multi_processor_count=132,
    shared_memory_per_multiprocessor=228 * 1024,
    total_memory=150_000_000_015,
    major=9,
    minor=3,
)


class Records(CuptiTimer):
    """A timer that finds the kernels of whatever ran."""

    def __init__(self):
        self.ran = []

    def names(self, run):
        self.ran.append(run)
        return ["one", "two"]


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs for torch; the calls that select one are listed."""
    selected = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", selected.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: PROPERTIES)
    monkeypatch.setattr(accelerator, "choose_timer", lambda index: SimpleNamespace(name="events", index=index))
    monkeypatch.setattr(accelerator, "driver_version", lambda: "575.57")
    monkeypatch.setattr(accelerator.Management, "open", classmethod(lambda cls, uuid: None))
    return selected


@pytest.fixture
def runtime(gpus):
    """The first GPU, whose tensors lie on the CPU."""
    runtime = CudaRuntime()
    runtime.place = "cpu"
    return runtime


def test_the_gpu_of_an_index_is_selected_and_holds_tensors_and_reference(gpus):
    first, second = CudaRuntime(), CudaRuntime(1, warm=True)
    assert gpus == [0, 1]
    assert (first.place, first.reference_place, first.timer.index, first.warm) == ("cuda:0", "cuda:0", 0, False)
    assert (second.place, second.reference_place, second.timer.index, second.warm) == ("cuda:1", "cuda:1", 1, True)


@pytest.mark.parametrize(("available", "index"), [(True, 2), (True, 3), (False, 0)])
def test_a_gpu_that_torch_does_not_see_is_refused(gpus, monkeypatch, available, index):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    with pytest.raises(Unavailable, match=rf"^no device cuda:{index}: torch \S+ sees 2 GPUs$"):
        CudaRuntime(index)
    assert gpus == []


@pytest.mark.parametrize(("warm", "cache"), [(False, "cold"), (True, "warm")])
def test_a_gpu_is_described_by_its_properties_and_by_all_that_changes_times(gpus, warm, cache):
    described = CudaRuntime(0, warm).describe()
    assert described.target == Target("nvidia", "NVIDIA H200", 132, 228 * 1024, 16, 2**31 - 1, 93)
    parts = described.toolchain.split(", ")
    assert parts[1] == f"torch {torch.__version__}"
    assert [parts[0][:7], parts[2][:5], *parts[3:]] == [
        "triton ",
        "cuda ",
        "driver 575.57",
        "sm_93",
        "timed by events",
        f"{cache} L2",
    ]
    assert described.memory_bytes == 7_500_000_000  # a twentieth
    assert described.notes == ()


@pytest.mark.parametrize(
    ("kind", "status", "lost"),
    [
        ("CompilationError", Status.COMPILE, False),
        ("OutOfResources", Status.CONSTRAINTS, False),
        ("OutOfMemoryError", Status.RUNTIME, True),
        ("AcceleratorError", Status.RUNTIME, False),
    ],
)
def test_an_error_is_told_in_a_line_and_full_memory_loses_the_process(runtime, kind, status, lost):
    error = type(kind, (Exception,), {})("an illegal memory access\nCompile with TORCH_USE_CUDA_DSA")
    failed = runtime.failure(error)
    assert (failed.outcome.status, failed.lost) == (status, lost)
    assert failed.outcome.reason.startswith(f"{kind}: ")
    assert "\n" not in failed.outcome.reason
    if kind == "AcceleratorError":
        assert failed.outcome.reason == "AcceleratorError: an illegal memory access"


def test_of_several_kernels_the_most_is_reported(runtime):
    kernels = [
        SimpleNamespace(n_regs=regs, n_spills=spills, metadata=SimpleNamespace(shared=shared))
        for regs, spills, shared in ((10, 8, 100), (32, 0, 300), (16, 4, 200))
    ]
    assert runtime.kernel_facts(kernels) == {"registers": 32, "spills": 8, "shared_bytes": 300}


@pytest.mark.parametrize("records", [True, False])
def test_a_job_has_run_once_and_names_its_kernels_where_the_timer_needs_them(runtime, records):
    runtime.timer = Records() if records else runtime.timer
    ran = []
    job = runtime.job(lambda: ran.append(1))
    assert ran == [1]
    assert list(job.kernels) == (["one", "two"] if records else [])
    job.run()
    assert ran == [1, 1]


def test_the_reference_adds_one_to_32_mib(runtime, monkeypatch):
    added = []
    monkeypatch.setattr(runtime, "job", lambda run: added.append(run()))
    runtime.reference()
    (x,) = added
    assert x.nbytes == REFERENCE_BYTES == 32 * 1024 * 1024
    assert (x == 1.0).all()


@pytest.mark.parametrize(
    ("read_us", "copied_us", "rate"), [(100.0, 400.0, RATE_BYTES / 100), (400.0, 200.0, RATE_BYTES / 100)]
)
def test_the_memory_rate_is_the_better_of_reading_and_copying(runtime, monkeypatch, read_us, copied_us, rate):
    monkeypatch.setattr(accelerator, "RATE_BYTES", 4096)
    times = iter([read_us, copied_us])
    tensors = []

    def timed(run):
        tensors.append(run())
        return SimpleNamespace(time_us=next(times))

    monkeypatch.setattr(CudaRuntime, "events", SimpleNamespace(device_time_us=timed))
    assert runtime.bytes_per_us() == pytest.approx(rate * 4096 / RATE_BYTES)
    total, copy = tensors
    assert (total.numel(), copy.nbytes) == (1, 4096)
    assert torch.isclose(copy.sum(), total, atol=1e-3)


def test_the_state_is_that_of_the_management_library_where_it_knows_the_gpu(gpus, monkeypatch):
    assert CudaRuntime().state() == State()
    known = State(1980.0, "power cap")
    asked = []

    def opened(cls, uuid):
        asked.append(uuid)
        return SimpleNamespace(state=lambda: known)

    monkeypatch.setattr(accelerator.Management, "open", classmethod(opened))
    assert CudaRuntime().state() == known
    assert asked == ["12-34"]


def test_waiting_waits_for_this_gpu(gpus, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    CudaRuntime(1).synchronize()
    assert waited == ["cuda:1"]
