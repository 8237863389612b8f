"""The process of one job: it ends by itself where its job was cancelled or taken away."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tilewise.api.jobs import job_process
from tilewise.api.jobs.processes import IN_USE, identity_of, is_gone
from tilewise.db.jobs import Jobs, LeaseLost, Request, State
from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import InUse, StoreError, UsageError
from tilewise.tuner.tuning.retune import RETUNE
from tilewise.tuner.tuning.tune import tune

HEARTBEATS = """
import sys
from types import SimpleNamespace
from tilewise.api.jobs import job_process

job_process.BEAT_SECONDS, job_process._GRACE_SECONDS = 0.01, 0.05
beats = []

def beat(lease, progress):
    beats.append(lease)
    if sys.argv[1] == "taken away" and len(beats) > 2:
        return None
    return SimpleNamespace(cancelling=len(beats) > 2, deadline=None)

job = SimpleNamespace(id=1, shapes=[])
job_process._Run(None, SimpleNamespace(beat=beat), job, "lease", "vector_add")._beat()
"""


@pytest.mark.parametrize(("event", "code"), [("taken away", 2), ("cancelled in a trial that does not end", 3)])
def test_a_process_ends_where_its_job_is_no_longer_its_own(event, code):
    done = subprocess.run([sys.executable, "-c", HEARTBEATS, event], timeout=60, check=False)
    assert done.returncode == code


def test_the_end_is_told_again_after_a_pause_for_as_long_as_the_database_fails(monkeypatch):
    pauses, ends = [], iter([StoreError("locked"), StoreError("locked"), None])
    monkeypatch.setattr(job_process, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def finish(*told):
        if error := next(ends):
            raise error

    job = SimpleNamespace(id=1, shapes=[])
    run = job_process._Run(None, SimpleNamespace(finish=finish), job, "lease", "vector_add")
    run._insist(run._finish(State.DONE, ""))
    assert pauses == [job_process.BEAT_SECONDS] * 2


@pytest.fixture
def jobs(store_url):
    with open_store(store_url, create=True) as store:
        yield Jobs(store.database)


REQUEST = Request("vector_add", "a1", [{"N": 100}], "float32", "model:Ascend910B4")


def run(store_url, number, token="mine"):
    job_process.run_job(store_url, number, "vector_add", "model:Ascend910B4", token, wait=False)


def claimed(jobs, token="mine", request=REQUEST):
    job, _ = jobs.submit(request)
    return jobs.claim(job, identity_of(os.getpid(), token))


def test_a_job_runs_once_it_is_claimed_for_its_process_and_one_of_another_is_left_alone(store_url, jobs, monkeypatch):
    ran = []
    monkeypatch.setattr(job_process._Run, "to_the_end", lambda run: ran.append(is_gone(run._lease.owner)))
    job, _ = jobs.submit(REQUEST)
    later = threading.Timer(0.1, lambda: claimed(jobs))  # the runner claims after it has started the process
    later.start()
    run(store_url, job.id)
    run(store_url, job.id, "another's")
    assert (jobs.get(job.id).state, ran) == (State.RUNNING, [False])


def test_a_job_fails_with_a_reason_where_its_process_cannot_be_seen_alive(store_url, jobs, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "file"))
    run(store_url, claimed(jobs).job)
    ended = jobs.get(1)
    assert ended.state is State.FAILED
    assert "cannot mark this process as alive" in ended.reason and "set TILEWISE_CACHE" in ended.reason


@pytest.fixture
def signals():
    """Put back the handlers that a run of a job in this process changes."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def on_the_bowl(bowl, monkeypatch, signals, store_url, jobs):
    """`on_the_bowl(time_of, **changes)` runs a job of the bowl in this process, and returns it and its device."""

    def run_it(time_of=bowl.time_us, **changes):
        device = bowl.FormulaDevice(time_of)
        monkeypatch.setattr(job_process, "open_device", lambda *given, **how: device)
        monkeypatch.setattr(job_process.registry, "load", lambda kernel: bowl.SPEC)
        request = dataclasses.replace(REQUEST, kernel="bowl", shapes=[{"M": 64}], search="exhaustive", **changes)
        lease = claimed(jobs, request=request)
        run(store_url, lease.job)
        return jobs.get(lease.job), device

    return run_it


def trials_of(store_url):
    with open_store(store_url) as store:
        return [trial for scope in store.scopes() for trial in store.trials(scope)]


def test_sigterm_ends_the_process_after_its_trial_and_the_job_waits_again(on_the_bowl, bowl, store_url):
    def stops(config):
        if config["TILE"] == 2:
            signal.raise_signal(signal.SIGTERM)
        return bowl.time_us(config)

    job, device = on_the_bowl(stops)
    assert (job.state, job.fruitless, job.owner) == (State.QUEUED, 0, "")
    stored = trials_of(store_url)
    assert {"TILE": 2} in [{"TILE": trial.config["TILE"]} for trial in stored]
    assert len(stored) < len(device.evaluated) + 2


def test_a_process_that_was_stopped_for_as_long_as_a_lease_stores_nothing_more_and_gives_its_job_back(
    on_the_bowl, bowl, store_url, monkeypatch
):
    stopped_for = 0.0

    def stops(config):
        nonlocal stopped_for
        if config["TILE"] == 5:
            stopped_for = job_process.LEASE_SECONDS + 1
        return bowl.time_us(config)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_for, sleep=time.sleep)
    monkeypatch.setattr(job_process, "time", clock)
    job, device = on_the_bowl(stops)
    assert (job.state, job.owner, job.fruitless) == (State.QUEUED, "", 0)
    tiles = [config["TILE"] for config in device.evaluated]
    assert tiles[-1] >= 5
    stored = {trial.config["TILE"] for trial in trials_of(store_url)}
    assert stored and stored == set(tiles[: tiles.index(5)])


def test_a_trial_that_takes_too_long_after_sigterm_is_dropped(on_the_bowl, store_url, monkeypatch):
    monkeypatch.setattr(job_process, "_GRACE_SECONDS", 0.05)

    def hangs(config):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(60)

    job, _ = on_the_bowl(hangs)
    assert (job.state, trials_of(store_url)) == (State.QUEUED, [])


def test_a_fresh_job_tries_again_what_was_stored_and_goes_on_with_its_own_after_a_stop(on_the_bowl, bowl, store_url):
    count = len(on_the_bowl()[1].evaluated)

    def stops(config):
        if config["TILE"] == 5:
            signal.raise_signal(signal.SIGTERM)
        return bowl.time_us(config)

    assert on_the_bowl(seed=1)[1].evaluated == []
    job, first = on_the_bowl(stops, fresh=True)
    assert 0 < len(first.evaluated) < count
    again, second = on_the_bowl(fresh=True)
    assert (again.id, again.state, again.mark) == (job.id, State.DONE, job.mark)
    assert len(first.evaluated) + len(second.evaluated) <= count + 8


def test_a_job_whose_deadline_passes_while_it_runs_fails_and_keeps_its_trials(
    on_the_bowl, bowl, store_url, monkeypatch
):
    deadline, timed = datetime.now(UTC) + timedelta(hours=1), []

    def slow(config):
        timed.append(config)
        time.sleep(0.05)
        return bowl.time_us(config)

    clock = SimpleNamespace(now=lambda zone: deadline if len(timed) > 5 else deadline - timedelta(hours=1))
    monkeypatch.setattr(job_process, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(job_process, "datetime", clock)
    job, _ = on_the_bowl(slow, deadline=deadline)
    assert (job.state, job.reason) == (State.FAILED, "its deadline passed while it ran; its trials are stored")
    assert trials_of(store_url)


def test_a_job_whose_device_another_program_holds_waits_again(store_url, jobs, monkeypatch, signals):
    def held(device, *, wait):
        assert (device, wait) == ("model:Ascend910B4", 0)
        raise InUse("it is in use by process 7")

    monkeypatch.setattr(job_process, "open_device", held)
    lease = claimed(jobs)
    with pytest.raises(SystemExit) as ended:
        run(store_url, lease.job)
    assert ended.value.code == IN_USE
    assert (jobs.get(lease.job).state, jobs.get(lease.job).fruitless) == (State.QUEUED, 0)


@pytest.mark.parametrize(
    ("error", "state", "reason", "fruitless"),
    [
        (UsageError("no such shape"), State.FAILED, "no such shape", 0),
        (ValueError("a fault"), State.FAILED, "internal error: ValueError: a fault", 0),
        (StoreError("the disk is full"), State.QUEUED, "", 1),
        (job_process._Cancelled(), State.CANCELLED, "", 0),
        (LeaseLost("it was stopped for a while"), State.QUEUED, "", 0),
    ],
)
def test_the_end_of_a_job_follows_from_the_error_that_ended_it(
    error, state, reason, fruitless, store_url, jobs, monkeypatch, signals
):
    def fail(device, *, wait):
        raise error

    monkeypatch.setattr(job_process, "open_device", fail)
    lease = claimed(jobs)
    run(store_url, lease.job)
    ended = jobs.get(lease.job)
    assert (ended.state, ended.reason, ended.fruitless) == (state, reason, fruitless)


@pytest.fixture
def retuned(bowl, monkeypatch, signals, store_url, jobs):
    """`retuned(time_of, **changes)` tunes two shapes, and then runs a retune on a device of a later toolchain."""

    class Later(bowl.FormulaDevice):
        toolchain = "formula 2"

    def run_it(time_of=bowl.time_us, **changes):
        monkeypatch.setattr(job_process.registry, "load", lambda kernel: bowl.SPEC)
        device = Later(time_of)
        monkeypatch.setattr(job_process, "open_device", lambda *given, **how: device)
        with open_store(store_url) as store:
            for size in (64, 256):
                tune(bowl.SPEC, {"M": size}, device=bowl.FormulaDevice(), search="random", trials=6, db=store)
        about = {"kernel": "bowl", "shapes": [], "search": RETUNE} | changes
        lease = claimed(jobs, request=dataclasses.replace(REQUEST, **about))
        run(store_url, lease.job)
        return jobs.get(lease.job), device

    return run_it


def test_a_retune_goes_through_all_stale_shapes_and_tells_which_flipped(retuned):
    job, device = retuned(lambda config: 100.0 - 10 * config["TILE"])
    assert (job.state, job.reason) == (State.DONE, "")
    assert (job.progress["shapes"], job.progress["shapes_done"], job.progress["failed"]) == (2, 2, [])
    assert sorted(flip["dims"]["M"] for flip in job.progress["flipped"]) == [64, 256]
    assert all(flip["cost"] > 1 for flip in job.progress["flipped"])
    assert device.closed


@pytest.mark.parametrize(
    ("changes", "done"),
    [({}, 2), ({"shapes": [{"M": 256}]}, 1), ({"shapes": [{"M": 7}]}, 0), ({"dtype": "float16"}, 0)],
)
def test_a_retune_takes_the_shapes_and_the_dtype_that_were_asked_for(retuned, changes, done):
    job, _ = retuned(**changes)
    assert (job.state, job.progress["shapes"], job.progress["shapes_done"]) == (State.DONE, done, done)
    assert job.progress.get("flipped", []) == []


def test_a_retune_begins_no_shape_after_its_time(retuned):
    job, device = retuned(seconds=1e-9)
    assert (job.state, job.progress["shapes"], job.progress["shapes_done"]) == (State.DONE, 2, 0)
    assert device.evaluated == []


def test_a_retune_of_configs_that_all_fail_names_each_shape(retuned):
    job, _ = retuned(lambda config: Status.RUNTIME)
    assert (job.state, job.progress["shapes_done"], job.progress["flipped"]) == (State.FAILED, 2, [])
    assert [line[:5] for line in job.progress["failed"]] == ["M=64:", "M=256"]
    assert job.reason == "; ".join(job.progress["failed"])


@pytest.mark.parametrize(
    ("error", "level", "line"),
    [
        (InUse("cuda:0 is in use"), "WARNING", "job 7: cuda:0 is in use"),
        (LeaseLost("job 7 belongs to another"), "WARNING", "job 7 belongs to another"),
        (StoreError("it is locked"), "ERROR", "job 7: it is locked"),
        (KeyError("x"), "ERROR", "job 7"),
        (UsageError("the shape is wrong"), "", ""),  # it is the job's reason
    ],
)
def test_the_log_tells_why_a_job_does_not_go_on(error, level, line, monkeypatch, caplog):
    def fail(run):
        raise error

    monkeypatch.setattr(job_process._Run, "_tune", fail)
    run = job_process._Run(None, None, SimpleNamespace(id=7, shapes=[]), "lease", "vector_add")
    run._run()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == ([(level, line)] if line else [])
    assert run.device_was_in_use is isinstance(error, InUse)


def test_the_log_tells_of_a_sign_of_life_that_failed_and_the_next_one_is_given(monkeypatch, caplog):
    monkeypatch.setattr(job_process, "BEAT_SECONDS", 0.0)
    beats = []

    def beat(lease, progress):
        beats.append(lease)
        if len(beats) == 1:
            raise StoreError("it is locked")
        run._ended.set()
        return SimpleNamespace(cancelling=False, deadline=None)

    run = job_process._Run(None, SimpleNamespace(beat=beat), SimpleNamespace(id=7, shapes=[]), "lease", "vector_add")
    run._beat()
    assert (beats, caplog.messages) == (["lease"] * 2, ["job 7: it is locked"])


def test_whoever_watches_for_stops_of_a_process_ends_with_its_job():
    before = {*threading.enumerate()}
    with job_process._running_on(SimpleNamespace(id=7)) as check:
        (watcher,) = {thread for thread in threading.enumerate() if thread.name == "stops"} - before
        check()
    watcher.join(30)
    assert not watcher.is_alive()


@pytest.fixture
def ends(monkeypatch, signals):
    """`ends(end, finish)` runs a job whose tuning does `end`, and returns the thread of its signs of life."""
    monkeypatch.setattr(job_process, "BEAT_SECONDS", 0.01)

    def run_it(end, finish=lambda *told: None):
        before = {*threading.enumerate()}
        beat = SimpleNamespace(cancelling=False, deadline=None)
        jobs = SimpleNamespace(beat=lambda *given: beat, finish=finish)
        run = job_process._Run(None, jobs, SimpleNamespace(id=7, shapes=[]), "lease", "vector_add")
        monkeypatch.setattr(run, "_tune", end)
        try:
            run.to_the_end()
        finally:
            threads = [*{*threading.enumerate()} - before]
            run._ended.set()
        return threads

    return run_it


def test_signs_of_life_do_not_keep_a_process_alive_that_breaks_off(ends):
    threads = []

    def breaks_off():
        threads.extend(thread for thread in threading.enumerate() if thread.name == "beat")
        raise SystemExit

    with pytest.raises(SystemExit):
        ends(breaks_off)
    with job_process._running_on(SimpleNamespace(id=7)):
        threads += [thread for thread in threading.enumerate() if thread.name == "stops"]
    assert {(thread.name, thread.daemon) for thread in threads} == {("beat", True), ("stops", True)}


def test_the_end_is_told_after_the_last_sign_of_life_and_no_signal_disturbs_it(ends):
    told = []

    def finish(lease, state, reason, progress):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGTERM):
            signal.raise_signal(number)
        told.append((state, [thread for thread in threading.enumerate() if thread.name == "beat"]))

    assert ends(lambda: (State.DONE, ""), finish) == []
    assert told == [(State.DONE, [])]
