"""The code that all measured devices share, on a device made of this machine's processor: faults and their limits."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from places import HELPERS

from tilewise.db.records import Status
from tilewise.errors import BadSpec, StoreError, Unavailable
from tilewise.kernels import registry
from tilewise.tuner.devices.measured.device import Limits
from tilewise.tuner.measure.outcome import FAULTS, LAST_LINES

pytest.importorskip("torch")

from tilewise.benchmarks.gpu.faults import Expected, inject
from tilewise.tuner.tuning.loop import Budget, Tuning

HERE = HELPERS
CORRECTNESS, RUNTIME, TIMEOUT, COMPILE = Status.CORRECTNESS, Status.RUNTIME, Status.TIMEOUT, Status.COMPILE
KINDS = {
    "raises": ([RUNTIME], "ValueError: this config raises"),
    "compile": ([COMPILE], "SyntaxError: this config does not compile"),
    "compile crash": ([COMPILE], "the compiler crashed: the process died of SIGSEGV"),
    "segfault": ([RUNTIME], "SIGSEGV after printing: about to segfault"),
    "abort": ([RUNTIME], "SIGABRT"),
    "exit": ([RUNTIME], "exit code 3"),
    "close pipe": ([TIMEOUT], "no answer within"),
    "fault": ([RUNTIME], "DeviceFault: the device is lost"),
    "hang": ([TIMEOUT], "no answer within 1 s"),
    "spin": ([TIMEOUT], "no answer within 1 s"),
    "memory": ([RUNTIME], "GiB of memory"),
    "disk": ([RUNTIME], "GiB of disk"),
    "nan": ([CORRECTNESS], "first nan"),
    "unwritten": ([CORRECTNESS], "never written"),
    "one input": ([CORRECTNESS], "off by"),
    "outside": ([CORRECTNESS], "out_ptr: the kernel wrote outside the tensor"),
    "to input": ([CORRECTNESS], "x_ptr: the kernel wrote to its input"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def host(folder):
    """The module of the host device; locks, temporary files and caches are these tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        patch.setenv("TILEWISE_CACHE", str(folder / "cache"))
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        import host

        yield host


@pytest.fixture(scope="module")
def spec():
    return registry.load(f"{HERE / 'host.py'}:SPEC")


@pytest.fixture(scope="module")
def device(host):
    with host.HostDevice(name="Shared") as device:
        yield device


def config(tile, fault=""):
    return {"TILE": tile, "FAULT": fault}


def test_faults_of_every_kind_cost_the_other_configs_nothing(host, warm_python):
    warm_python.start()  # it stays for later tests, and is nothing that this one leaves behind
    found = inject(host.HostDevice, host.EACH_FAULT_ONCE, host.PROBLEM, expected(host))
    costs_nothing(found, sound=2 * len(KINDS) + 5, faulty=len(KINDS))


@pytest.mark.full
def test_thirty_faults_among_a_hundred_configs_cost_the_others_nothing(host, spec, fresh_supervisors):
    costs_nothing(inject(host.HostDevice, spec, host.PROBLEM, expected(host)), sound=70, faulty=30)


def expected(host):
    assert set(host.KINDS) == set(KINDS)
    return {
        kind: Expected(frozenset(statuses), (words,), verified=kind == "one input")
        for kind, (statuses, words) in KINDS.items()
    }


def costs_nothing(found, *, sound, faulty):
    assert found["configs"] == {"sound": sound, "faulty": faulty}
    assert [fault for fault in found["faults"] if not fault["as_expected"]] == []
    assert found["innocent"]["timed"] == sound
    assert found["innocent"]["among_faults"] == pytest.approx({"lowest": 1, "median": 1, "highest": 1}, rel=0.01)
    assert found["left_behind"] == {"processes": [], "locks": [], "temporary_files": []}


def test_a_fault_is_a_fact_with_its_last_words_and_the_count_of_processes(host, device, spec):
    fine, crashed, after = device.evaluate(spec, host.PROBLEM, [config(1), config(2, "segfault"), config(3)])
    assert (fine.status, crashed.status, after.status) == (Status.CORRECT, RUNTIME, Status.CORRECT)
    assert crashed.facts[FAULTS] == 2
    assert crashed.facts[LAST_LINES] == ["about to segfault"]
    assert FAULTS not in fine.facts
    assert FAULTS not in after.facts


def test_a_config_that_another_has_spoilt_is_timed_again(host, device, spec):
    """The first config causes a fault that surfaces late, during the second."""
    trap, victim = device.evaluate(spec, host.PROBLEM, [config(1, "late"), config(2)])
    assert trap.timing.time_us == pytest.approx(11)
    assert victim.timing.time_us == pytest.approx(12)
    assert victim.facts[FAULTS] == 1
    assert "SIGABRT" in victim.facts["first_fault"]


def test_configs_that_take_turns_have_the_time_of_as_many_runs(host, spec):
    slow = [config(tile, "slow") for tile in (1, 2, 3, 4)]
    began = time.monotonic()
    with host.HostDevice(name="Slow") as device:
        outcomes = device.race(spec, host.PROBLEM, slow, 2)
    assert [(o.status, o.timing.samples) for o in outcomes] == [(Status.CORRECT, 2)] * 4
    assert time.monotonic() - began > host.LIMITS.run_seconds


def test_a_config_that_is_right_on_one_kind_of_data_only_is_refused(host, device, spec):
    (outcome,) = device.evaluate(spec, host.PROBLEM, [config(1, "one input")])
    verdict = device.verify(spec, host.PROBLEM, config(1, "one input"))
    assert outcome.status is Status.CORRECT
    assert not verdict.agreed
    assert verdict.status is CORRECTNESS


def test_a_check_that_crashes_is_a_refusal_and_the_device_goes_on(host, device, spec):
    verdict = device.verify(spec, host.PROBLEM, config(1, "abort"))
    assert not verdict.agreed
    assert (verdict.status, "SIGABRT" in verdict.reason) == (RUNTIME, True)
    assert device.verify(spec, host.PROBLEM, config(1)).agreed


def test_one_thread_checks_configs_while_another_times_some(host, device, spec):
    """A search that spreads configs over chips does so: it verifies what would lead while all chips work."""
    timed = []
    wanted = [config(1 + number % 4) for number in range(100)]
    timing = threading.Thread(target=lambda: timed.extend(device.evaluate(spec, host.PROBLEM, wanted)), daemon=True)
    timing.start()
    verdicts = [device.verify(spec, host.PROBLEM, config(1)) for _ in range(10)]
    timing.join(120)
    assert all(verdict.agreed for verdict in verdicts)
    assert [outcome.timing.time_us for outcome in timed] == pytest.approx([10 + one["TILE"] for one in wanted])


def test_a_device_that_never_comes_up_is_unavailable(host):
    class Dead(host.HostDevice):
        RUNTIME = "host:Dead"

    with pytest.raises(Unavailable, match="host does not come up: the process died of SIGKILL"):
        Dead()
    host.HostDevice().close()  # the first has released its lock


def test_a_compile_process_that_cannot_reach_what_hosts_share_blames_no_config(host, spec):
    with host.HostDevice() as device, pytest.raises(StoreError, match="the artefacts cannot be reached"):
        list(device.evaluate(spec, host.PROBLEM, [config(1, "no database")]))


def test_a_spec_that_cannot_be_launched_at_all_is_the_callers_error(host, spec):
    with host.HostDevice(name="Picky") as device, pytest.raises(BadSpec, match="no kernel for a picky host"):
        list(device.evaluate(spec, host.PROBLEM, [config(1)]))


# One process at a time ------------------------------------------------------------------------------------------------

HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
import host
from tilewise.kernels import registry
with host.HostDevice(limits=host.Limits(run_seconds=600)) as device:
    print("held", flush=True)
    spec = registry.load(sys.argv[1] + "/host.py:SPEC")
    print([o.status for o in device.evaluate(spec, host.PROBLEM, [{"TILE": 1, "FAULT": sys.argv[2]}])])
"""


@pytest.fixture
def holder(host):
    """Another process that holds the device and is running a config."""
    path = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(HERE), "hang"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_device_in_use_is_refused_with_its_holder_or_waited_for(host, holder, capsys):
    with pytest.raises(Unavailable, match=rf"host is in use by process {holder.pid} \(.*\) since .*--wait"):
        host.HostDevice(wait=0)
    with pytest.raises(Unavailable, match="in use"):
        host.HostDevice(wait=0.3)
    assert capsys.readouterr().err.count(f"host is in use by process {holder.pid}") == 1
    host.HostDevice(name="Another", wait=0).close()
    holder.kill()
    host.HostDevice(wait=60).close()  # a lock ends with its holder


def test_closing_a_device_leaves_nobody_named_as_its_holder(host, folder):
    holder = folder / "cache" / "locks" / "host-Host.holder"
    with host.HostDevice():
        assert str(os.getpid()) in holder.read_text()
    assert not holder.exists()


@pytest.mark.full
def test_a_device_that_hangs_ends_in_time_when_it_is_told_to(host, folder, url):
    """SIGTERM to the command line during a config that hangs leaves no process, lock or file behind."""
    words = ["tune", f"{HERE / 'host.py'}:HANGING", "-s", "M=12,N=40", "--device", "host", "--db", url]
    path = os.pathsep.join([str(HERE), *sys.path])
    before = set(folder.glob("tilewise-*"))
    process = subprocess.Popen(
        [sys.executable, str(HERE / "host_command.py"), *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not list(folder.glob("tilewise-worker-*/*/hanging")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "interrupted; " in errors
    assert set(folder.glob("tilewise-*")) == before
    assert not (folder / "cache" / "locks" / "host-Host.holder").exists()


# Tuning on it ---------------------------------------------------------------------------------------------------------


def test_a_config_that_has_cost_two_processes_is_never_tried_again(host, device, store):
    spec = registry.load(f"{HERE / 'host.py'}:CRASHING")
    told = Path(os.environ["TILEWISE_CACHE"], "told")

    def tried(fresh):
        Tuning(spec, host.PROBLEM, device, store, budget=Budget(None), search="exhaustive", fresh=fresh).run()
        trials = store.trials(device.scope(spec, host.PROBLEM))
        return next(trial for trial in trials if trial.config["FAULT"] == "abort and tell")

    first = tried(fresh=False)
    assert (first.status, first.facts[FAULTS]) == (RUNTIME, 2)
    assert told.read_text() == "tried\n" * 2
    again = tried(fresh=True)
    assert (again.status, again.reason, again.facts[FAULTS]) == (first.status, first.reason, 2)
    assert again.created > first.created
    assert told.read_text() == "tried\n" * 2


def test_the_limits_of_processes_are_those_that_users_are_told():
    limits = Limits()
    assert (limits.compile_seconds, limits.compile_bytes) == (120.0, 8 * 2**30)
    assert (limits.prepare_seconds, limits.run_seconds, limits.floors) == (600.0, 15.0, 1e5)
    assert (limits.growth_bytes, limits.disk_bytes) == (4 * 2**30, 4 * 2**30)
