"""The NPU device: its contract with triton-ascend's sources, and its behaviour on a stand-in for torch_npu."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.db.records import Status
from tilewise.errors import Unavailable
from tilewise.tuner.devices import npu
from tilewise.tuner.devices.npu import NpuDevice, available, failure, row
from tilewise.tuner.devices.npu_timer import EVICTION_BYTES, NAME_LENGTH

pytest.importorskip("torch")

CONFIG = {"ROWS": 2, "fault": "", "multibuffer": True}


def with_fault(fault):
    return {**CONFIG, "fault": fault}


# --- discovery ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(any(Path("/dev").glob("davinci[0-9]*")), reason="this machine has an NPU")
def test_a_host_without_an_npu_says_so_in_one_line_and_imports_nothing():
    code = (
        "import sys; from tilewise.tuner.devices import npu; print(npu.available()); print(npu.row().why_not);"
        "print([m for m in ('torch', 'torch_npu', 'triton') if m in sys.modules])"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == ["no Ascend NPU on this machine (no /dev/davinci*)"] * 2 + ["[]"]
    with pytest.raises(Unavailable, match="no device npu: no Ascend NPU"):
        NpuDevice()


def test_an_npu_without_cann_and_one_without_torch_npu_are_told_apart(monkeypatch):
    monkeypatch.setattr(npu.Path, "glob", lambda self, pattern: iter([Path("/dev/davinci0")]))
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    assert "CANN is not set up" in available()
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/latest")
    if importlib.util.find_spec("torch_npu") is None:
        assert "torch_npu is not installed" in available()
        assert row().why_not == available()


@pytest.mark.parametrize(("limit", "cores"), [(None, 40), (24, 24), (48, 40)])
def test_the_core_count_is_the_parts_or_the_limit_if_that_is_lower(stand_in_npu, limit, cores):
    stand_in, _, _ = stand_in_npu(cores=40, limit=limit)
    target = NpuDevice(runtime=stand_in.runtime).target
    assert (target.family, target.name, target.cores) == ("ascend", "Ascend910B4", cores)
    assert (target.on_chip_bytes, target.max_programs) == (196608, 65535)


# --- timing ---------------------------------------------------------------------------------------------------------


def test_times_come_from_the_profilers_rows_of_this_kernel_only(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    with NpuDevice(runtime=stand_in.runtime, samples=9) as device:
        (outcome,) = device.evaluate(spec, problem, [CONFIG])
    assert device.toolchain.endswith("timed by profiler")
    assert outcome.status is Status.CORRECT
    assert outcome.timing.samples == 9
    assert outcome.timing.time_us == 21.0  # 10 a row, and 0, 1 or 2: the additions' 100 are not in it
    assert (outcome.timing.p20_us, outcome.timing.p80_us) == pytest.approx((20.0, 22.0), abs=0.5)
    assert outcome.facts == {"on_chip_bits": {"required": 4096, "available": 1572864}}


@pytest.mark.parametrize("profiler", ["silent", "fails"])
def test_events_are_used_for_everything_where_the_profiler_does_not_work(stand_in_npu, profiler):
    stand_in, spec, problem = stand_in_npu(profiler=profiler)
    with NpuDevice(runtime=stand_in.runtime, samples=9) as device:
        stand_in.profiler_works = "works"  # later on; the choice stands
        outcomes = list(device.evaluate(spec, problem, [CONFIG, CONFIG]))
    assert device.toolchain.endswith("timed by events")
    assert [outcome.timing.time_us for outcome in outcomes] == pytest.approx([21.0, 21.0])


def test_a_profile_that_lost_rows_is_no_timing(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    device = NpuDevice(runtime=stand_in.runtime, samples=3)
    ran = stand_in.ran
    stand_in.ran = lambda kernel, us: None if len(stand_in.log) % 2 else ran(kernel, us)
    (outcome,) = device.evaluate(spec, problem, [CONFIG])
    assert outcome.status is Status.RUNTIME
    assert "runs of sums_kernel, 3 were made" in outcome.reason


# --- failures -------------------------------------------------------------------------------------------------------


def test_an_overflow_of_on_chip_memory_tells_both_sizes(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    (outcome,) = NpuDevice(runtime=stand_in.runtime).evaluate(spec, problem, [with_fault("overflow")])
    assert outcome.status is Status.COMPILE
    assert outcome.reason == "needs 2162688 bits of on-chip memory, 1572864 are there"
    assert outcome.facts["on_chip_bits"] == {"required": 2162688, "available": 1572864}


def test_refusals_are_outcomes_and_the_next_config_runs(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    configs = [with_fault("compile"), with_fault("grid"), CONFIG]
    compiled, grid, good = NpuDevice(runtime=stand_in.runtime, samples=3).evaluate(spec, problem, configs)
    assert (compiled.status, grid.status, good.status) == (Status.COMPILE, Status.CONSTRAINTS, Status.CORRECT)
    assert "ConvertTritonIRToLinalgIR" in compiled.reason
    assert "more than 65535 programs" in grid.reason


def test_a_device_fault_is_a_runtime_outcome_and_then_the_device_is_lost(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    device = NpuDevice(runtime=stand_in.runtime, samples=3)
    outcomes = device.evaluate(spec, problem, [with_fault("device"), CONFIG])
    fault = next(outcomes)
    assert fault.status is Status.RUNTIME
    assert fault.reason.startswith("device fault 507035: NPU function error")
    with pytest.raises(Unavailable, match="lost to this process after a fault"):
        next(outcomes)
    with pytest.raises(Unavailable, match="start again"):
        device.verify(spec, problem, CONFIG)


def test_a_fault_in_verification_is_a_disagreement_and_loses_the_device_too(stand_in_npu):
    stand_in, spec, problem = stand_in_npu()
    device = NpuDevice(runtime=stand_in.runtime)
    verdict = device.verify(spec, problem, with_fault("device"))
    assert not verdict.agreed
    assert "507035" in verdict.reason
    with pytest.raises(Unavailable):
        next(device.evaluate(spec, problem, [CONFIG]))


@pytest.mark.parametrize("code", ["507015", "507035", "EZ9999"])
def test_every_fault_code_is_known(code):
    assert failure(RuntimeError(f"rtStreamSynchronize failed: {code}: aicore exception")).status is Status.RUNTIME
    assert code in failure(RuntimeError(f"{code}: inner error")).reason


# --- the contract with triton-ascend's sources ----------------------------------------------------------------------

SOURCES = {
    "testing.py": ["do_bench_npu"],
    "compiler/errors.py": ["MLIRCompilationError", "CompilationError", "CompileTimeAssertionFailure"],
    "backends/ascend/driver.py": ["NPUUtils", "NPUDriver", "get_empty_cache_for_benchmark"],
    "backends/ascend/compiler.py": ["NPUOptions", "AscendBackend"],
}
"""What the NPU path relies on, by file of triton-ascend 3.2.0."""

TORCH_NPU = {
    "npu": ["Event", "device_count", "get_device_limit", "get_device_name", "get_device_properties", "is_available",
            "mem_get_info", "set_device", "synchronize"],
    "profiler": ["AiCMetrics", "ProfilerActivity", "ProfilerLevel", "_ExperimentalConfig", "profile",
                 "tensorboard_trace_handler"],
}  # fmt: skip
"""Names of torch_npu that are used; read in the sources of 2.14.0, and checked where torch_npu is installed."""


def triton_ascend():
    found = importlib.util.find_spec("triton")
    folder = Path(found.origin).parent if found else None
    if folder is None or not (folder / "backends" / "ascend").is_dir():
        pytest.skip("needs triton-ascend's sources")
    return folder


def defined_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")  # of what is parsed
@pytest.mark.parametrize("file", SOURCES)
def test_the_names_stand_in_triton_ascends_sources(file):
    assert defined_in(triton_ascend() / file) >= set(SOURCES[file])


def test_triton_ascend_says_what_our_constants_say():
    driver = (triton_ascend() / "backends" / "ascend" / "driver.py").read_text(encoding="utf-8")
    compiler = (triton_ascend() / "backends" / "ascend" / "compiler.py").read_text(encoding="utf-8")
    jit = (triton_ascend() / "runtime" / "jit.py").read_text(encoding="utf-8")
    assert EVICTION_BYTES == 192 * 1024 * 1024
    assert "cache_size = 192 * 1024 * 1024" in driver
    assert f"KERNEL_NAME_MAX_LEN = {NAME_LENGTH}" in compiler
    assert "multibuffer: bool" in compiler
    assert "required_ub_bits" in compiler
    assert "grid should be less than 65536" in jit


def test_the_profiler_is_set_up_with_the_names_that_triton_ascend_uses():
    testing = (triton_ascend() / "testing.py").read_text(encoding="utf-8")
    assert [name for name in TORCH_NPU["profiler"] if f"profiler.{name}" not in testing] == []


def test_the_names_stand_in_torch_npu_where_it_is_installed():
    found = importlib.util.find_spec("torch_npu")
    if found is None:
        pytest.skip("torch_npu is installed on NPU hosts only")
    for module, names in TORCH_NPU.items():
        text = "".join(p.read_text(errors="replace") for p in (Path(found.origin).parent / module).glob("*.py"))
        assert [name for name in names if name not in text] == []


def test_every_name_we_use_of_torch_npu_is_in_the_table():
    """The table cannot fall behind the code: attributes of `runtime.npu`, `npu` and `profiler` are read from it."""
    folder = Path(npu.__file__).parent
    used = {"npu": set(), "profiler": set()}
    for file in ("npu.py", "npu_timer.py"):
        for node in ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                if owner in used and node.attr not in ("npu", "profiler"):
                    used[owner].add(node.attr)
    assert used["npu"] - {"get_device_limit"} <= set(TORCH_NPU["npu"])
    assert used["npu"] >= {"Event", "synchronize", "get_device_properties"}
    assert used["profiler"] == set(TORCH_NPU["profiler"])
