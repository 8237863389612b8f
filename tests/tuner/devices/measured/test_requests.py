"""Requests of a measured device to its processes, and use of their answers: each process answers as it is told to."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from tilewise.db.records import Status
from tilewise.errors import BadSpec, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.measured import device as module
from tilewise.tuner.devices.measured.bench_process import Reply
from tilewise.tuner.devices.measured.device import Limits, MeasuredDevice
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict
from tilewise.tuner.workers.worker import WorkerDied, WorkerExceeded, WorkerFailed, WorkerTimeout

SPEC = registry.load("vector_add")
PROBLEM = Problem("vector_add", {"N": 1_000_000}, "float32")
BYTES = 3 * 4_000_000
CONFIGS = [{"VARIANT": "blocks", "BLOCK_SIZE": size} for size in (256, 512, 1024)]
ABOUT = SimpleNamespace(target="the target", toolchain="cuda 13", notes=("a note",), energy=True, memory_bytes=1 << 34)


def timed(us):
    return Reply(Outcome(Status.CORRECT, timing=Timing(us)))


def lost(reason):
    return Reply(Outcome(Status.RUNTIME, reason), lost=True)


class Bench:
    """A bench process that answers requests about configs with what `told` holds, one after the other."""

    def __init__(self, entry, *, env, imports, disk_bytes):
        self.disk_bytes, self.asked, self.told, self.rates = disk_bytes, [], [], [1e5]

    def call(self, runtime, request, *arguments, timeout, memory_bytes=None):
        about = {"describe": ABOUT, "bytes_per_us": self.rates[0], "prepare": None}
        self.asked.append((request, *arguments, timeout, memory_bytes))
        answer = about[request] if request in about and not self._fails(request) else self.told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _fails(self, request):
        return bool(self.told) and isinstance(self.told[0], WorkerFailed | WorkerDied | WorkerTimeout) and self.failing

    failing = False

    def memory_bytes(self):
        return 5000

    def restart(self):
        self.asked.append("restart")

    def close(self):
        self.asked.append("close")


@pytest.fixture
def device(monkeypatch):
    """A device of such processes; `done` holds what it did to its compilers and its lock."""
    done, results = [], {}

    def compilers(entry, jobs, *, env, imports, memory_bytes):
        def submit(origin, problem, config, *rest, timeout):
            done.append(("compile", config["BLOCK_SIZE"], timeout))
            future = Future()
            found = results.get(config["BLOCK_SIZE"], {"compile_s": 0.5})
            future.set_exception(found) if isinstance(found, Exception) else future.set_result(found)
            return future

        done.append((jobs, imports, memory_bytes))
        return SimpleNamespace(
            submit=submit, start=lambda: done.append("start"), close=lambda: done.append("close compilers")
        )

    def lock(id_, key, folder):
        return SimpleNamespace(
            acquire=lambda wait: done.append((id_, key, wait)), release=lambda: done.append("release")
        )

    monkeypatch.setattr(module, "Compilers", compilers)
    monkeypatch.setattr(module, "DeviceLock", lock)
    monkeypatch.setattr(module, "Worker", Bench)
    monkeypatch.setattr(module, "waiting_seconds", lambda: 7.0)
    limits = Limits(run_seconds=2.0, floors=1000.0, prepare_seconds=60.0, growth_bytes=100, disk_bytes=9)
    options = {"imports": ["torch"], "compile_imports": ["more"], "jobs": 3, "limits": limits, "wait": 4.0}
    made = MeasuredDevice("cuda:0", "gpu-1", ("runtime:of", 0), "compile:it", **options)
    made.done, made.results, made.bench = done, results, made._bench
    return made


def asked(device):
    """Return the requests since the last time."""
    found = [entry if isinstance(entry, str) else entry[0] for entry in device.bench.asked]
    device.bench.asked.clear()
    return found


def test_a_device_is_held_before_anything_starts_and_describes_itself(device):
    assert device.done == [(3, ("torch", "more"), 8 << 30), ("cuda:0", "gpu-1", 4.0), "start"]
    assert device.bench.asked == [("describe", 60.0, None)]
    assert (device.target, device.toolchain, device.notes) == ("the target", "cuda 13", ("a note",))
    assert (device.measures_energy, device.memory_bytes(), device.bench.disk_bytes) == (True, 1 << 34, 9)
    device.done.clear()
    device.close()
    assert device.done == ["close compilers", "release"]
    assert asked(device) == ["describe", "close"]


def test_the_tensors_of_a_problem_are_made_once_and_bound_the_memory_of_its_runs(device):
    asked(device)
    device.bench.told += [timed(1.0), timed(2.0), timed(3.0)]
    found = list(device.evaluate(SPEC, PROBLEM, CONFIGS))
    assert [outcome.timing.time_us for outcome in found] == [1.0, 2.0, 3.0]
    assert found[0].facts == {"compiled": "ahead", "compile_s": 0.5}
    requests = list(device.bench.asked)
    assert asked(device) == ["prepare", "bytes_per_us", "measure", "measure", "measure"]
    assert requests[0] == ("prepare", "vector_add", PROBLEM, 60.0, None)
    seconds, memory = 2.0 + 1000 * (BYTES / 1e5) / 1e6, 5000 + 100 + 16 * BYTES
    assert requests[2] == ("measure", "vector_add", PROBLEM, CONFIGS[0], None, pytest.approx(seconds), memory)
    assert [entry for entry in device.done if entry[0] == "compile"] == [
        ("compile", size, 127.0) for size in (256, 512, 1024)
    ]


def test_a_device_whose_rate_is_unknown_is_given_time_by_an_assumed_one(device):
    device.bench.rates = [None]
    device.bench.told += [timed(1.0)]
    list(device.evaluate(SPEC, PROBLEM, CONFIGS[:1]))
    assert device.floor_us(SPEC, PROBLEM) is None
    assert device.bench.asked[-1][-2] == pytest.approx(2.0 + 1000 * (BYTES / 1e5) / 1e6)
    assert [entry[0] for entry in device.bench.asked].count("bytes_per_us") == 1


def test_a_config_that_ends_the_process_twice_is_at_fault_itself(device):
    asked(device)
    device.bench.told += [lost("it is lost"), lost("it is lost again")]
    (found,) = device.evaluate(SPEC, PROBLEM, CONFIGS[:1])
    assert (found.status, found.reason) == (Status.RUNTIME, "it is lost again")
    assert (found.facts["faults"], found.facts["first_fault"]) == (2, "it is lost")
    assert asked(device) == ["prepare", "bytes_per_us", "measure", "restart", "prepare", "measure", "restart"]


def test_a_config_that_runs_in_a_fresh_process_was_spoilt_by_the_one_before_which_is_timed_again(device):
    asked(device)
    device.bench.told += [timed(1.0), lost("it is lost"), timed(2.0), timed(7.0), timed(3.0)]
    found = list(device.evaluate(SPEC, PROBLEM, CONFIGS))
    assert [outcome.timing.time_us for outcome in found] == [7.0, 2.0, 3.0]
    assert found[1].facts["faults"] == 1
    assert asked(device).count("measure") == 5


@pytest.mark.parametrize(
    ("error", "status", "reason", "lines"),
    [
        (WorkerTimeout("no answer within 2 s", ["last"]), Status.TIMEOUT, "running: no answer within 2 s", ["last"]),
        (WorkerDied("the process died", []), Status.RUNTIME, "running: the process died", None),
        (WorkerExceeded("it used much", ["a"]), Status.RUNTIME, "running: it used much", ["a"]),
    ],
)
def test_a_process_that_is_lost_during_a_run_is_told_with_its_last_words(device, error, status, reason, lines):
    device.bench.told += [error, error]
    (found,) = device.evaluate(SPEC, PROBLEM, CONFIGS[:1])
    assert (found.status, found.reason, found.facts.get("last_lines")) == (status, reason, lines)
    assert found.facts["faults"] == 2


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (WorkerFailed("BadSpec", "it is wrong"), BadSpec, "^it is wrong$"),
        (WorkerFailed("KeyError", "'x'"), Unavailable, "^the bench process failed: KeyError: 'x'$"),
    ],
)
def test_an_error_of_the_bench_process_is_raised_here(device, error, raised, said):
    device.bench.told += [error]
    with pytest.raises(raised, match=said):
        list(device.evaluate(SPEC, PROBLEM, CONFIGS[:1]))


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (WorkerTimeout("no answer", ["last"]), Status.TIMEOUT, "compiling: no answer"),
        (WorkerDied("it died", []), Status.COMPILE, "the compiler crashed: it died"),
        (WorkerFailed("CompilationError", "too large"), Status.COMPILE, "CompilationError: too large"),
    ],
)
def test_a_config_that_does_not_compile_is_not_run(device, error, status, reason):
    device.results[512] = error
    device.bench.told += [timed(1.0), timed(3.0)]
    found = list(device.evaluate(SPEC, PROBLEM, CONFIGS))
    assert [outcome.status for outcome in found] == [Status.CORRECT, status, Status.CORRECT]
    assert found[1].reason == reason
    refused = device.verify(SPEC, PROBLEM, CONFIGS[1])
    assert (refused.agreed, refused.status, refused.reason) == (False, status, reason)


def test_a_spec_that_is_wrong_is_no_configs_fault(device):
    device.results[256] = WorkerFailed("BadSpec", "it is wrong")
    with pytest.raises(BadSpec, match="it is wrong"):
        list(device.evaluate(SPEC, PROBLEM, CONFIGS))


def test_a_check_is_made_twice_if_it_is_lost_and_has_time_for_all_draws(device):
    asked(device)
    device.bench.told += [lost("it is lost"), Reply(Verdict(True, 0.0, 0.1))]
    assert device.verify(SPEC, PROBLEM, CONFIGS[0]).agreed
    requests = list(device.bench.asked)
    assert asked(device) == ["prepare", "bytes_per_us", "verify", "restart", "prepare", "verify"]
    assert requests[2][-2] == pytest.approx(module.DRAWS * (2.0 + 1000 * (BYTES / 1e5) / 1e6))
    device.bench.told += [lost("it is lost"), lost("it is lost again"), timed(1.0)]
    refused = device.verify(SPEC, PROBLEM, CONFIGS[0])
    assert (refused.agreed, refused.status) == (False, Status.RUNTIME)
    assert refused.reason == "verifying: it is lost again"
    assert len(device.bench.told) == 1


def test_configs_that_take_turns_have_the_median_of_their_times(device):
    asked(device)
    device.bench.told += [Reply([[1.0, 3.0, 2.0], [5.0, 5.0, 6.0]])]
    one, other = device.race(SPEC, PROBLEM, CONFIGS[:2], 3)
    assert (one.timing.time_us, one.timing.samples, one.timing.times_us) == (2.0, 3, (1.0, 3.0, 2.0))
    assert other.timing.time_us == 5.0
    request = device.bench.asked[-1]
    assert request[:5] == ("race", "vector_add", PROBLEM, CONFIGS[:2], 3)
    assert request[-2] == pytest.approx(2 * (2.0 + 1000 * (BYTES / 1e5) / 1e6))


def test_turns_that_fail_are_taken_again_by_those_that_run_alone(device):
    failure = Reply(Outcome(Status.RUNTIME, "it fails"))
    device.bench.told += [failure, timed(1.0), failure, timed(3.0), Reply([[1.5], [3.5]])]
    found = device.race(SPEC, PROBLEM, CONFIGS, 5)
    assert [outcome.timing and outcome.timing.time_us for outcome in found] == [1.5, None, 3.5]
    assert found[1].reason == "it fails"
    device.bench.told += [failure, timed(1.0), timed(2.0), timed(3.0), failure]
    with pytest.raises(Unavailable, match="cuda:0 runs 3 configs one by one but fails when they take turns"):
        device.race(SPEC, PROBLEM, CONFIGS, 5)
    device.bench.told += [Reply([[1.0]]), failure, failure, failure]
    assert [outcome.timing for outcome in device.race(SPEC, PROBLEM, CONFIGS, 5)] == [None] * 3


def test_a_process_that_does_not_come_up_is_started_three_times(device):
    asked(device)
    device.bench.failing = True
    device.bench.told += [WorkerDied("it died", [])] * 3
    with pytest.raises(Unavailable, match="cuda:0 does not come up: it died"):
        device._request("bytes_per_us")
    assert asked(device) == ["bytes_per_us", "restart", "bytes_per_us", "restart", "bytes_per_us"]
    device.bench.told += [WorkerTimeout("no answer", [])]
    assert device._request("bytes_per_us") == 1e5
    assert asked(device) == ["bytes_per_us", "restart", "bytes_per_us"]


def test_a_device_that_cannot_be_described_is_given_back(monkeypatch, device):
    monkeypatch.setattr(Bench, "failing", True)
    monkeypatch.setattr(
        Bench, "call", lambda self, *given, **named: (_ for _ in ()).throw(WorkerFailed("BadSpec", "no"))
    )
    device.done.clear()
    with pytest.raises(BadSpec):
        MeasuredDevice("cuda:0", "gpu-1", ("runtime:of", 0), "compile:it", imports=[])
    assert device.done[-2:] == ["close compilers", "release"]
