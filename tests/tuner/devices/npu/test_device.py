"""The whole NPU device on a stand-in for the chip: discovery, compiling, launching, timing, faults."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from npu_fixtures import CHIPS
from places import HELPERS

from tilewise.cli import cli
from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.npu import device as npu
from tilewise.tuner.devices.npu import toolchain as npu_toolchain
from tilewise.tuner.devices.npu.device import NpuDevice, row, unavailable_reason
from tilewise.tuner.diagnostics import selftest

PROBLEM = Problem("halves", {"N": 100_000}, "float32")
OVERFLOW, DOUBLE_BUFFER_DROPPED = 65536, 32768


def config(size, *, fault=0, multibuffer=True):
    return {"SIZE": size, "FAULT": fault, "multibuffer": multibuffer}


# --- discovery ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(any(Path("/dev").glob("davinci[0-9]*")), reason="this machine has an NPU")
def test_a_host_without_an_npu_says_so_in_one_line_and_imports_nothing():
    code = (
        "import sys; from tilewise.tuner.devices.npu import device;"
        "print(device.unavailable_reason()); print(device.row().unavailable_reason);"
        "print([m for m in ('torch', 'torch_npu', 'triton') if m in sys.modules])"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == ["no Ascend NPU on this machine (no /dev/davinci*): tune on model:PART instead"] * 2 + ["[]"]
    with pytest.raises(Unavailable, match="no device npu: no Ascend NPU"):
        NpuDevice()


def test_what_is_missing_beside_the_npu_is_named_one_after_the_other(monkeypatch, tmp_path):
    monkeypatch.setattr(npu.Path, "glob", lambda self, pattern: iter([Path("/dev/davinci0")]))
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.delenv("TRITON_NPU_COMPILER_PATH", raising=False)
    assert "CANN is not set up" in unavailable_reason()
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/latest")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "bishengir-compile is not on PATH: source CANN's set_env.sh" in unavailable_reason()
    compiler = tmp_path / "bishengir-compile"
    compiler.touch(mode=0o755)
    if importlib.util.find_spec("torch_npu") is None:
        assert "torch_npu is not installed" in unavailable_reason()
        assert row().unavailable_reason == unavailable_reason()


@pytest.mark.parametrize(
    ("missing", "place", "interprets", "reason"),
    [
        ("torch_npu", "ascend", None, "torch_npu is not installed"),
        ("triton", "ascend", None, "triton-ascend is not installed"),
        (None, "nvidia", None, "triton-ascend is not installed"),
        (None, None, None, "triton-ascend is not installed"),
        (None, "ascend", "1", "TRITON_INTERPRET=1 makes Triton interpret on the CPU: unset it"),
        (None, "ascend", "0", None),
        (None, "ascend", None, None),
    ],
)
def test_what_python_lacks_for_the_npu_is_named(monkeypatch, tmp_path, missing, place, interprets, reason):
    """The last cases lack nothing."""

    def find_spec(name):
        origin = None if place is None else str(tmp_path / "__init__.py")
        return None if name == missing else SimpleNamespace(origin=origin)

    (tmp_path / "backends" / (place or "ascend")).mkdir(parents=True)
    monkeypatch.setattr(npu.Path, "glob", lambda self, pattern: iter([Path("/dev/davinci0")]))
    monkeypatch.setattr(npu.importlib.util, "find_spec", find_spec)
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/latest")
    monkeypatch.setenv("TRITON_NPU_COMPILER_PATH", "/opt/compiler")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if interprets is not None:
        monkeypatch.setenv("TRITON_INTERPRET", interprets)
    found = unavailable_reason()
    assert found == reason if reason is None else found.startswith(reason)
    assert (row(1).id, row(1).available, row(1).unavailable_reason) == ("npu:1", reason is None, found or "")


def test_a_chip_that_this_process_does_not_see_is_refused(monkeypatch):
    monkeypatch.setattr(npu, "unavailable_reason", lambda: None)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4, 6")
    with pytest.raises(Unavailable, match="no device npu:2: this process sees 2 NPUs, numbered from 0"):
        NpuDevice(2)


@pytest.mark.parametrize(("index", "chip"), [(0, "4"), (1, "6")])
def test_each_chip_has_a_lock_of_its_own(monkeypatch, index, chip):
    held = []
    monkeypatch.setattr(npu, "unavailable_reason", lambda: None)
    monkeypatch.setattr(npu.MeasuredDevice, "__init__", lambda self, *given, **how: held.append(given[:3]))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4, 6")
    NpuDevice(index)
    assert held == [(f"npu:{index}", f"npu-{chip}", (npu.RUNTIME, index, False))]


@pytest.mark.parametrize(("shown", "chip"), [(None, "0"), ("3", "3"), ("5,6", "5"), ("", "0")])
def test_the_lock_is_on_the_chip_whatever_the_process_is_shown(monkeypatch, shown, chip):
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", shown)
    assert npu._chip(0) == chip


# --- the toolchain --------------------------------------------------------------------------------------------------


def test_cann_is_named_by_its_own_files(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert npu_toolchain.cann_version() == "unknown"
    (tmp_path / "version.cfg").write_text("# version\nruntime_running_version=[8.5.0:8.5.0]\n")
    assert npu_toolchain.cann_version() == "8.5.0"
    (tmp_path / "x86_64-linux").mkdir()
    (tmp_path / "x86_64-linux" / "ascend_toolkit_install.info").write_text("package_name=toolkit\nversion=9.1.0\n")
    assert npu_toolchain.cann_version() == "9.1.0"


def test_switches_that_change_the_code_are_in_the_fingerprint_and_part_the_binaries(monkeypatch):
    for name in npu_toolchain._SWITCHES:
        monkeypatch.delenv(name, raising=False)
    plain, folder = npu_toolchain.fingerprint(), npu_toolchain.cache_folder()
    monkeypatch.setenv("TRITON_ALL_BLOCKS_PARALLEL", "0")  # another spelling of the default
    assert npu_toolchain.fingerprint() == plain
    monkeypatch.setenv("TRITON_ALL_BLOCKS_PARALLEL", "1")
    assert npu_toolchain.fingerprint() == f"{plain}, TRITON_ALL_BLOCKS_PARALLEL=true"
    assert npu_toolchain.cache_folder() != folder
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "false")
    assert npu_toolchain.fingerprint().endswith("TRITON_DISABLE_LINE_INFO=false")


def test_mspti_is_found_where_either_layout_of_cann_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    assert npu._preloaded() == {}
    older = tmp_path / "tools" / "mspti" / "lib64" / "libmspti.so"
    newer = tmp_path / "lib64" / "libmspti.so"
    for library in (older, newer):
        library.parent.mkdir(parents=True)
        library.touch()
        assert npu._preloaded() == {"LD_PRELOAD": f"{library} other.so"}


# --- the whole device -----------------------------------------------------------------------------------------------


def test_it_says_what_it_is(shared_npu):
    target = shared_npu.target
    assert (target.family, target.name, target.cores) == ("ascend", "Ascend910B4", 40)
    assert (target.on_chip_bytes, target.max_programs) == (196608, 65535)
    assert shared_npu.clock is Clock.MEASURED
    assert shared_npu.toolchain.startswith("triton-ascend 3.2.0, torch ")
    assert "CANN 8.5.0, bishengir-compile 1.2.0" in shared_npu.toolchain
    assert shared_npu.toolchain.endswith("timed by mspti, cold L2")
    assert shared_npu.memory_bytes() == 8 << 30


@pytest.mark.full
def test_fewer_cores_that_the_process_may_use_count(npu):
    device = npu(limit=24)
    assert device.target.cores == 24
    device.close()
    device.close()  # a second time does nothing


@pytest.mark.full
def test_all_blocks_parallel_lifts_the_cap_on_programs(npu, monkeypatch):
    monkeypatch.setenv("TRITON_ALL_BLOCKS_PARALLEL", "true")
    device = npu()
    assert device.target.max_programs == 2**31 - 1
    assert "TRITON_ALL_BLOCKS_PARALLEL=true" in device.toolchain


def test_configs_are_compiled_by_the_real_compiler_and_timed_by_the_chips_own_clock(shared_npu, halves):
    configs = [config(4096), config(8192, multibuffer=False), config(OVERFLOW), config(16384)]
    first, single, overflow, last = shared_npu.evaluate(halves, PROBLEM, configs)
    assert [o.status for o in (first, single, last)] == [Status.CORRECT] * 3
    assert first.timing.time_us == pytest.approx(6.0, rel=0.02)  # not the 252 us of clearing the cache
    assert first.facts["compiled"] == "ahead"
    assert first.facts["effective_options"] == {"multibuffer": True, "code_motion": True}
    assert single.facts["effective_options"]["multibuffer"] is False
    assert overflow.status is Status.COMPILE
    assert overflow.reason == "needs 2097152 bits of on-chip memory (UB); 1572864 are available"
    assert overflow.facts["on_chip_bits"] == {"required": 2097152, "available": 1572864}


def test_the_bench_process_runs_what_was_compiled_ahead(shared_npu, halves):
    """A config has one binary, in this toolchain's folder: the launch uses the same key as the compile process."""
    before = set(npu_toolchain.cache_folder().rglob("*.npubin"))
    (outcome,) = shared_npu.evaluate(halves, PROBLEM, [config(2048)])
    assert outcome.status is Status.CORRECT
    assert len(set(npu_toolchain.cache_folder().rglob("*.npubin")) - before) == 1


def test_right_results_are_confirmed_and_wrong_ones_refused(shared_npu, halves):
    assert [o.status for o in shared_npu.evaluate(halves, PROBLEM, [config(4096), config(4096, fault=3)])] == [
        Status.CORRECT,
        Status.CORRECT,  # compiled, and timed
    ]
    assert shared_npu.verify(halves, PROBLEM, config(4096)).agreed
    wrong = shared_npu.verify(halves, PROBLEM, config(4096, fault=3))
    assert not wrong.agreed
    assert wrong.reason.startswith("out_ptr: 0 instead of")


def test_a_device_fault_is_the_configs_own_and_the_next_one_runs(shared_npu, halves):
    fault, good = shared_npu.evaluate(halves, PROBLEM, [config(4096, fault=1), config(4096)])
    assert fault.status is Status.RUNTIME
    assert fault.reason == "device fault 507035 (vector core exception): The MPU address access is invalid"
    assert fault.facts["faults"] == 2
    assert good.status is Status.CORRECT


def test_a_kernel_that_never_ends_is_a_timeout(shared_npu, halves):
    (hung,) = shared_npu.evaluate(halves, PROBLEM, [config(4096, fault=2)])
    assert hung.status is Status.TIMEOUT
    assert hung.facts["first_fault"].startswith("running: no answer within 3 s")


def test_more_programs_than_the_runtime_counts_are_refused(shared_npu, halves):
    (outcome,) = shared_npu.evaluate(halves, Problem("halves", {"N": 70_000}, "float32"), [config(1)])
    assert outcome.status is Status.CONSTRAINTS
    assert "more than 65535 programs" in outcome.reason


def test_the_memory_rate_is_that_of_the_chip(shared_npu, halves):
    assert shared_npu.floor_us(halves, PROBLEM) == pytest.approx(halves.bytes(PROBLEM) / 8e5, rel=1e-3)


# --- from the command line ------------------------------------------------------------------------------------------


def test_a_kernel_is_tuned_and_looked_up(npu_machine, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'npu.db'}")
    npu_machine()
    kernel = f"{HELPERS / 'npu_kernels.py'}:HALVES"
    tuned = CliRunner().invoke(cli, ["tune", kernel, "-s", "N=100000", "--device", "npu", "--trials", "4", "--json"])
    assert tuned.exit_code == 0, tuned.output
    (result,) = json.loads(tuned.stdout)["results"]
    assert (result["device"], result["clock"], result["verified"]) == ("Ascend910B4", "measured", True)
    assert result["time_us"] == pytest.approx(6.0, rel=0.02)
    assert result["toolchain"].endswith("timed by mspti, cold L2")
    assert result["trials"]["correct"] >= 1
    found = CliRunner().invoke(cli, ["lookup", kernel, "-s", "N=100000", "--device", "Ascend910B4", "--json"])
    assert json.loads(found.stdout)["results"][0]["config"] == result["config"]


@pytest.mark.full
def test_two_shapes_are_tuned_on_two_npus_at_once(npu_machine, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'npu.db'}")
    npu_machine()
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", f"{next(CHIPS)},{next(CHIPS)}")
    words = ["tune", f"{HELPERS / 'npu_kernels.py'}:HALVES", "-s", "N=100000", "-s", "N=50000", "--device", "npu"]
    tuned = CliRunner().invoke(cli, [*words, "--trials", "3", "--json"])
    assert tuned.exit_code == 0, tuned.output
    assert [result["dims"]["N"] for result in json.loads(tuned.stdout)["results"]] == [100_000, 50_000]
    begun = [line for line in tuned.stderr.splitlines() if "(measured times)" in line]
    assert {line.rpartition(" on ")[2] for line in begun} == {"npu:0 (measured times)", "npu:1 (measured times)"}


@pytest.mark.full
def test_the_selftest_goes_through_every_step(npu_machine, monkeypatch):
    npu_machine()
    monkeypatch.setattr(selftest, "LARGE", Problem("doubled", {"N": 1 << 19}, "float32"))
    ran = CliRunner().invoke(cli, ["selftest", "--device", "npu", "--json"])
    body = json.loads(ran.stdout)
    assert {step["name"]: step["verdict"] for step in body["steps"]} == dict.fromkeys(
        ("device", *selftest.STEPS), "ok"
    ), body
    launch = next(step for step in body["steps"] if step["name"] == "launch")
    assert (launch["facts"]["method"], launch["facts"]["l2"]) == ("mspti", "cold")


@pytest.mark.full
def test_why_a_better_clock_is_not_used_is_said_of_the_device(npu, shared_npu):
    assert shared_npu.notes == ()
    device = npu(mspti="absent")
    assert device.toolchain.endswith("timed by profiler, cold L2")
    (note,) = device.notes
    assert note.startswith("not timed by mspti: CANN's mspti does not import: libmspti.so")


@pytest.mark.full
def test_a_warm_cache_is_another_toolchain(npu):
    assert npu(warm=True).toolchain.endswith("timed by mspti, warm L2")
