"""CUDA: discovery everywhere, compiling where upstream Triton is, timing where a GPU is."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.db.records import Status
from tilewise.errors import BadSpec, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.devices import cuda, cuda_compile
from tilewise.tuner.worker import WorkerDied, WorkerFailed, WorkerPool, WorkerTimeout

KERNELS = Path(__file__).parent.parent / "faulty_kernels.py"
HEADLINE = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
H200 = Target("nvidia", "NVIDIA H200", 132, 228 * 1024, 16, 2**31 - 1)

why_no_gpu = cuda.available()
needs_gpu = pytest.mark.skipif(why_no_gpu is not None, reason=f"no CUDA GPU: {why_no_gpu}")


def upstream_triton():
    found = importlib.util.find_spec("triton")
    return found is not None and (Path(found.origin).parent / "backends" / "nvidia").is_dir()


# --- everywhere -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(why_no_gpu is None, reason="this machine has a GPU")
def test_a_host_without_a_gpu_says_so_in_one_line_and_imports_nothing():
    code = (
        "import sys; from tilewise.tuner.devices import cuda; print(cuda.available()); print(cuda.row().why_not);"
        "print([m for m in ('torch', 'triton') if m in sys.modules])"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [why_no_gpu, why_no_gpu, "[]"]
    with pytest.raises(Unavailable, match="no device cuda: "):
        cuda.CudaDevice()


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (WorkerTimeout("no answer within 120 s"), Status.TIMEOUT, "compiling: no answer within 120 s"),
        (
            WorkerDied("the process died of SIGSEGV"),
            Status.COMPILE,
            "the compiler crashed: the process died of SIGSEGV",
        ),
        (WorkerFailed("CompilationError", "no"), Status.COMPILE, "CompilationError: no"),
        (WorkerFailed("OutOfResources", "shared memory"), Status.CONSTRAINTS, "OutOfResources: shared memory"),
    ],
)
def test_a_failed_compile_is_an_outcome_with_its_reason(error, status, reason):
    outcome = cuda._compile_outcome(error)
    assert (outcome.status, outcome.reason) == (status, reason)


def test_a_spec_that_is_wrong_as_a_whole_is_the_callers_error():
    with pytest.raises(BadSpec, match="its function does not take"):
        cuda._compile_outcome(WorkerFailed("BadSpec", "kernel k gives q, which its function does not take"))


# --- where upstream Triton is ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not upstream_triton(), reason="needs upstream triton (its NVIDIA compiler needs no GPU)")
def test_configs_are_compiled_in_processes_without_a_gpu(tmp_path):
    config = dict(registry.load("row_reduce").default(HEADLINE, H200))
    pool = WorkerPool(cuda_compile.ENTRY, 2, env={**cuda._no_gpu(), "TRITON_CACHE_DIR": str(tmp_path)})
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


# --- where a GPU is -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device():
    device = cuda.CudaDevice(jobs=4, seconds=0.02)
    yield device
    device.close()


@needs_gpu
def test_the_headline_problem_is_compiled_timed_and_verified(device):
    spec = registry.load("row_reduce")
    config = spec.default(HEADLINE, device.target)
    (outcome,) = device.evaluate(spec, HEADLINE, [config])
    assert outcome.status is Status.CORRECT, outcome.reason
    assert outcome.facts["compiled"] == "ahead"
    assert outcome.timing.time_us >= 0.9 * device.floor_us(spec, HEADLINE)
    assert outcome.timing.samples >= 20
    assert device.verify(spec, HEADLINE, config).agreed


@needs_gpu
def test_a_second_timing_agrees_with_the_first(device):
    spec = registry.load("row_reduce")
    config = spec.default(HEADLINE, device.target)
    first, second = device.evaluate(spec, HEADLINE, [config, config])
    assert second.timing.time_us == pytest.approx(first.timing.time_us, rel=0.1)


@needs_gpu
def test_a_launch_found_its_binary_in_the_cache(device, tmp_path, monkeypatch):
    """What the compile processes leave is what the launch looks for: nothing is compiled in this process."""
    import triton

    def refuse(*args, **kwargs):
        raise AssertionError("compiled in process")

    spec = registry.load(f"{KERNELS}:RIGHT")
    problem = Problem("right", {"M": 33, "N": 77}, "float32")
    config = {"ROWS": 16, "SUB": 2, "COLS": 32}
    monkeypatch.setattr(triton.compiler.ASTSource, "make_ir", refuse)
    (outcome,) = device.evaluate(spec, problem, [config])
    assert outcome.status is Status.CORRECT, outcome.reason


@needs_gpu
def test_a_spec_without_an_origin_is_compiled_here_and_says_so(device):
    spec = dataclasses.replace(registry.load(f"{KERNELS}:RIGHT"), origin="")
    problem = Problem("right", {"M": 19, "N": 150}, "float32")
    (outcome,) = device.evaluate(spec, problem, [{"ROWS": 8, "SUB": 4, "COLS": 64}])
    assert outcome.status is Status.CORRECT
    assert outcome.facts["compiled"] == "in process"


@needs_gpu
def test_accumulating_kernels_are_timed_and_verified(device):
    spec = registry.load(f"{KERNELS}:ADDING")
    problem = Problem("adding", {"M": 19, "N": 150}, "float32")
    config = {"ROWS": 8, "SUB": 1, "COLS": 64}
    (outcome,) = device.evaluate(spec, problem, [config])
    assert outcome.status is Status.CORRECT, outcome.reason
    assert device.verify(spec, problem, config).agreed


@needs_gpu
def test_the_timer_takes_any_callable(device):
    import torch

    x = torch.randn(1 << 20, device=device.place)
    eager = device.timer.device_time_us(lambda: (x * 2 + 1).sigmoid().sum(), seconds=0.01)
    single = device.timer.device_time_us(x.sum, seconds=0.01)
    assert device.timer.floor_us() < single.time_us < eager.time_us
