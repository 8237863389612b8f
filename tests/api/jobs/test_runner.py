"""The thread that starts jobs survives what it meets."""

import itertools
import logging
import os
import signal
import socket
import time
import uuid
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tilewise.api.jobs.fleet import Fleet
from tilewise.api.jobs.processes import IN_USE, ProcessEnded, identity, identity_of, is_gone, seen_alive
from tilewise.api.jobs.runner import LEASE_SECONDS, Runner
from tilewise.db.jobs import Jobs, LeaseLost, Request, State
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Workers
from tilewise.errors import StoreError
from tilewise.kernels import registry
from tilewise.settings import read_settings


@pytest.mark.parametrize(
    ("error", "line"), [(StoreError("it is locked"), "job runner: it is locked"), (KeyError("x"), "job runner")]
)
def test_an_error_of_a_turn_is_logged_and_ends_nothing(error, line, caplog):
    def turn():
        raise error

    runner = Runner("sqlite://", None, lambda: (), None)
    with caplog.at_level(logging.ERROR):
        runner._attempt(turn)
    [record] = caplog.records
    assert record.getMessage() == line
    assert (record.exc_info is None) == isinstance(error, StoreError)


def test_a_runner_pauses_between_looks_for_work_unless_it_is_woken(monkeypatch):
    runner, pauses = Runner("sqlite://", None, lambda: (), None), []

    def wait(seconds):
        pauses.append((seconds, list(done)))
        if len(pauses) == 2:
            runner._stopping.set()

    done = []
    monkeypatch.setattr(runner, "beat", lambda: done.append("beat"))
    monkeypatch.setattr(runner, "turn", lambda: done.append("turn"))
    monkeypatch.setattr(runner, "_woken", SimpleNamespace(wait=wait, clear=lambda: done.append("clear")))
    runner._run()
    assert pauses == [(0.5, ["beat", "turn"]), (0.5, ["beat", "turn", "clear", "beat", "turn"])]


@pytest.mark.parametrize(
    ("beats", "moments", "lost"),
    [
        ([3, 3], [0.0, 60.0], False),
        ([3, 3], [0.0, 60.1], True),
        ([3, 4], [0.0, 100.0], False),  # a sign of life meanwhile
        ([3, 4, 4], [0.0, 100.0, 160.0], False),
        ([3, 4, 4], [0.0, 100.0, 160.5], True),
        ([0], [1000.0], False),  # the first look tells nothing
    ],
)
def test_a_job_of_another_machine_is_lost_after_a_minute_without_a_heartbeat(beats, moments, lost, monkeypatch):
    runner, clock = Runner("sqlite://", None, lambda: (), None), iter(moments)
    monkeypatch.setattr("tilewise.api.jobs.liveness.time", SimpleNamespace(monotonic=lambda: at))
    found = None
    for beat in beats:
        at = next(clock)
        found = runner._is_lost(SimpleNamespace(id=7, owner="elsewhere/boot/12/345", attempts=1, beats=beat))
    assert found is lost


def test_a_job_of_this_machine_is_lost_as_soon_as_its_process_has_ended(dead):
    runner = Runner("sqlite://", None, lambda: (), None)
    with seen_alive():
        assert not runner._is_lost(SimpleNamespace(id=7, owner=identity(), attempts=1, beats=0))
    assert runner._is_lost(SimpleNamespace(id=7, owner=dead, attempts=1, beats=0))


def test_a_new_owner_of_a_lost_job_has_a_minute_too(monkeypatch):
    runner = Runner("sqlite://", None, lambda: (), None)
    moments = iter((0.0, 100.0, 100.1, 160.0))
    monkeypatch.setattr("tilewise.api.jobs.liveness.time", SimpleNamespace(monotonic=lambda: at))
    for attempts, lost in ((1, False), (1, True), (2, False), (2, False)):
        at = next(moments)
        assert runner._is_lost(SimpleNamespace(id=7, owner="elsewhere/x", attempts=attempts, beats=0)) is lost


@pytest.fixture
def dead():
    """The identity of a process of this machine that was killed."""
    owner = f"{identity().rpartition('/')[0]}/{uuid.uuid4().hex}"
    mark = read_settings().cache_folder / "processes" / owner.rpartition("/")[2]
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield owner
    mark.unlink(missing_ok=True)


@pytest.fixture
def jobs():
    with open_store("sqlite://") as store:
        yield Jobs(store.database)


def submitted(jobs):
    return jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "model:Ascend910B4"))[0]


class Executor:
    """Starts nothing; `futures` are those of the processes that it pretends to have started, by process id."""

    def __init__(self):
        self.futures, self.calls, self._inherited = {}, [], []

    def start(self, function, *given, inherited=None, **how):
        pid, future = 1000 + len(self.futures), Future()
        self.futures[pid] = future
        self._inherited.append(os.dup(inherited))
        self.calls.append((*given, how))
        return pid, future

    def end(self, code=None):
        """End the process that was started last."""
        os.close(self._inherited[-1])
        future = self.futures[max(self.futures)]
        if code is None:
            future.set_result(None)
        else:
            future.set_exception(ProcessEnded(f"its process ended with exit code {code}", code))


def lane(device="model:Ascend910B4", name="Ascend910B4", clock="modelled", toolchain=""):
    return Lane(device, name, clock, toolchain)


@pytest.fixture
def runner(jobs):
    runner = Runner("sqlite://", jobs, lambda: runner.here, Executor())
    runner.here = [lane()]
    return runner


def test_a_job_is_claimed_for_its_process_when_that_starts(jobs, runner):
    job = submitted(jobs)
    runner.turn()
    runner.turn()
    now = jobs.get(job.id)
    assert (now.state, now.lane, now.host) == (State.RUNNING, "model:Ascend910B4", socket.gethostname())
    [(_, number, kernel, device, token, how)] = runner._executor.calls
    assert (number, kernel, device, how) == (job.id, "vector_add", "model:Ascend910B4", {"wait": True})
    assert now.owner == identity_of(1000, token)


def test_a_process_that_ends_with_its_lease_uses_up_an_attempt(jobs, runner):
    job = submitted(jobs)
    for attempt in range(1, 10):
        runner.turn()
        runner._executor.end(1)
        now = jobs.get(job.id)
        assert (now.state, now.attempts) == (State.QUEUED, attempt)
    runner.turn()
    runner._executor.end(1)
    ended = jobs.get(job.id)
    reason = "started 10 times in a row without a new trial: its process ended with exit code 1"
    assert (ended.state, ended.reason) == (State.FAILED, reason)


def test_the_end_of_a_process_that_gave_up_its_lease_changes_nothing(jobs, runner):
    job = submitted(jobs)
    runner.turn()
    assert jobs.give_back(jobs.get(job.id))
    assert jobs.claim(jobs.get(job.id), "another")
    runner._executor.end(1)
    assert (jobs.get(job.id).owner, jobs.get(job.id).fruitless) == ("another", 0)


def test_jobs_for_any_chip_run_on_all_of_them_and_one_for_a_chip_on_that_one(jobs, runner):
    runner.here = [lane(f"cuda:{number}", "NVIDIA H200", "measured", "cuda 12") for number in (0, 1, 2)]
    for seed, device in enumerate(("cuda:2", "cuda", "NVIDIA H200", "cuda")):
        jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", device, seed=seed))
    runner.turn()
    assert {jobs.get(number).lane for number in (1, 2, 3)} == {"cuda:0", "cuda:1", "cuda:2"}
    assert jobs.get(1).lane == "cuda:2"
    assert jobs.get(4).state is State.QUEUED
    assert [call[-1] for call in runner._executor.calls] == [{"wait": False}, {"wait": False}, {"wait": True}]


def test_a_device_without_the_toolchain_gets_no_job(jobs, runner):
    runner.here = [lane("cuda:0", "NVIDIA H200", "measured", "cuda 12"), lane("cuda:1", "NVIDIA H200", "measured")]
    asked = Request("vector_add", "a1", [{"N": 100}], "float32", "cuda", toolchain="cuda 13")
    number = jobs.submit(asked)[0].id
    runner.turn()
    assert jobs.get(number).state is State.QUEUED
    runner.here[1] = lane("cuda:1", "NVIDIA H200", "measured", "cuda 13")
    runner.turn()
    assert jobs.get(number).lane == "cuda:1"


def test_a_device_that_another_program_holds_rests_and_the_job_goes_to_the_next(jobs, runner, monkeypatch):
    runner.here = [lane("cuda:0", "NVIDIA H200", "measured"), lane("cuda:1", "NVIDIA H200", "measured")]
    number = jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "cuda"))[0].id
    runner.turn()
    assert jobs.give_back(jobs.get(number))  # by its process
    runner._executor.end(IN_USE)
    runner.turn()
    assert (jobs.get(number).lane, jobs.get(number).fruitless) == ("cuda:1", 0)
    assert jobs.give_back(jobs.get(number))
    runner._executor.end(IN_USE)
    runner.turn()
    assert jobs.get(number).state is State.QUEUED
    later = time.monotonic() + 11
    monkeypatch.setattr("tilewise.api.jobs.runner.time", SimpleNamespace(monotonic=lambda: later))
    runner.turn()
    assert jobs.get(number).lane == "cuda:0"


def test_a_reserved_device_has_no_job_and_one_with_a_job_is_not_reserved(jobs, runner):
    number = submitted(jobs).id
    assert [runner.reserve(runner.here[0].id) for _ in range(2)] == [True, False]
    runner.turn()
    assert jobs.get(number).state is State.QUEUED
    runner.release(runner.here[0].id)
    runner.turn()
    assert jobs.get(number).state is State.RUNNING
    assert not runner.reserve(runner.here[0].id)
    runner._executor.end()
    assert runner.reserve(runner.here[0].id)


def test_a_job_whose_deadline_passed_while_it_waited_fails(jobs, runner):
    runner.here = []
    late = datetime.now(UTC) - timedelta(seconds=1)
    number = jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "cuda", deadline=late))[0].id
    runner.turn()
    assert (jobs.get(number).state, jobs.get(number).reason) == (State.FAILED, "its deadline passed while it waited")


def test_a_runner_is_registered_as_a_worker_until_it_stops_and_again_if_it_was_taken_for_lost(jobs, monkeypatch):
    now = 100.0
    workers, clock = Workers(jobs._database), SimpleNamespace(monotonic=lambda: now, sleep=time.sleep)
    monkeypatch.setattr("tilewise.api.jobs.runner.time", clock)
    runner = Runner("sqlite://", jobs, lambda: [lane()], SimpleNamespace(shutdown=print, terminate=print), workers)
    with seen_alive():
        runner.beat()
        runner.beat()
        [worker] = workers.all()
        assert (worker.owner, worker.beats, worker.lanes, worker.draining) == (identity(), 0, [lane()], False)
        assert "vector_add" in worker.kernels
        now = 106.0
        runner.beat()
        assert workers.all()[0].beats == 1
        workers.leave(worker.id)
        now = 112.0
        runner.beat()
        [again] = workers.all()
        assert again.id != worker.id or again.beats == 0
    runner._executor.shutdown = lambda wait, cancel_futures: None
    runner.drain()
    runner.start()
    runner.stop()
    assert workers.all() == []


def test_a_runner_registers_again_with_the_kernels_that_arrive_and_logs_those_refused(jobs, monkeypatch, caplog):
    def receive():
        monkeypatch.setitem(registry._own, "arrived", "arrived.py:SPEC")
        return ["the kernel odd is refused"]

    monkeypatch.setattr(registry, "_own", {})
    workers, arrivals = Workers(jobs._database), SimpleNamespace(receive=list)
    runner = Runner("sqlite://", jobs, lambda: [lane()], None, workers, arrivals=arrivals)
    with seen_alive():
        runner.beat()
        assert "arrived" not in workers.all()[0].kernels
        arrivals.receive, runner._next_beat = receive, 0.0
        runner.beat()
    [worker] = workers.all()
    assert "arrived" in worker.kernels
    assert "the kernel odd is refused" in caplog.text


def test_a_process_that_a_drain_ends_before_it_can_give_its_job_back_counts_as_no_attempt(jobs, runner):
    job = submitted(jobs)
    runner.turn()
    runner._executor.terminate = lambda: runner._executor.end(-signal.SIGTERM)
    runner.drain()
    assert (jobs.get(job.id).state, jobs.get(job.id).fruitless) == (State.QUEUED, 0)


def test_a_runner_that_is_drained_takes_no_job_and_says_so(jobs, runner):
    runner._executor.terminate = lambda: None
    runner._workers = Workers(jobs._database)
    runner._fleet = Fleet(runner._workers)
    job = submitted(jobs)
    runner.drain()
    runner.turn()
    assert jobs.get(job.id).state is State.QUEUED
    with seen_alive():
        runner.beat()
        runner._next_beat = 0.0
        runner.beat()
        assert [worker.draining for worker in runner._workers.all()] == [True]


def test_devices_of_live_jobs_are_busy_and_lost_jobs_wait_again(jobs, dead):
    runner, job = Runner("sqlite://", jobs, lambda: (), None), submitted(jobs)
    assert runner._take_back_lost() == set()
    assert jobs.claim(job, identity())
    with seen_alive():
        assert runner._take_back_lost() == {"model:Ascend910B4"}
    assert jobs.get(job.id).state is State.RUNNING
    assert jobs.take_back(jobs.get(job.id), "moved")
    assert jobs.claim(jobs.get(job.id), dead)
    assert runner._take_back_lost() == set()
    assert jobs.get(job.id).state is State.QUEUED
    assert is_gone(dead) is None  # nothing is left behind


@pytest.mark.parametrize(("own", "fruitless"), [(True, 0), (False, 1)])
def test_a_runner_that_stops_counts_no_attempt_of_its_own_jobs(jobs, dead, own, fruitless):
    runner, job = Runner("sqlite://", jobs, lambda: (), None), submitted(jobs)
    runner._started = {job.id} if own else set()
    runner._executor = SimpleNamespace(shutdown=lambda wait, cancel_futures: jobs.claim(job, dead))
    runner.start()
    runner.stop()
    assert (jobs.get(job.id).state, jobs.get(job.id).fruitless) == (State.QUEUED, fruitless)


def test_a_runner_that_stops_gives_back_a_job_whose_process_had_not_yet_shown_that_it_lives(jobs, runner):
    """Others see it alive as long as its runner does not know that it has ended."""
    job = submitted(jobs)
    runner.turn()
    assert is_gone(jobs.get(job.id).owner) is False
    runner._executor.shutdown = lambda wait, cancel_futures: None  # its future's callback comes too late
    runner._draining.set()
    runner.start()
    runner.stop()
    assert (jobs.get(job.id).state, jobs.get(job.id).fruitless) == (State.QUEUED, 0)


SCOPE = Scope(Problem("vector_add", {"N": 100}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "triton", 40)


def own(url, turns, told):
    """Claim job 1 and store a trial per byte of `turns`; say after each what came of it."""
    with open_store(url) as store, seen_alive():
        jobs = Jobs(store.database)
        mine = jobs.store(store, jobs.claim(jobs.get(1), identity()))
        for count in itertools.count():
            try:
                mine.record(SCOPE, [Trial(config={"SIZE": count}, status=Status.COMPILE, created=datetime.now(UTC))])
                os.write(told, b"stored\n")
            except LeaseLost as error:
                os.write(told, f"{error}\n".encode())
            if not os.read(turns, 1):
                return


@contextmanager
def forked(function, *arguments):
    """A fork of this process that runs the function: a fresh one would import for a second."""
    child = os.fork()
    if not child:
        try:
            function(*arguments)
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("url", ["store_url", "postgres_url"])
def test_an_owner_that_is_stopped_for_two_leases_and_wakes_up_writes_nothing(url, request, monkeypatch):
    url = request.getfixturevalue(url)
    monkeypatch.setattr("tilewise.api.jobs.liveness.time", SimpleNamespace(monotonic=lambda: at))
    with open_store(url) as store:
        submitted(Jobs(store.database))
    (turns, go_on), (heard, told) = os.pipe(), os.pipe()
    with forked(own, url, turns, told) as owner, open_store(url) as store, open(heard) as said:
        jobs = Jobs(store.database)
        runner, job = Runner(url, jobs, lambda: (), None), jobs.get(1)
        assert said.readline() == "stored\n"
        os.kill(owner, signal.SIGSTOP)
        at = 0.0
        assert runner._take_back_lost() == {job.device}
        at = LEASE_SECONDS
        assert runner._take_back_lost() == {job.device}  # it may only be slow
        at = 2 * LEASE_SECONDS
        assert runner._take_back_lost() == set()
        mine = jobs.claim(jobs.get(job.id), identity())
        before = store.revision()
        os.write(go_on, b"....")
        os.kill(owner, signal.SIGCONT)
        for _ in range(4):
            assert "job 1 was taken from its process" in said.readline()
        assert store.revision() == before
        assert jobs.finish(mine, State.DONE, "", {})


def start_one(url, told):
    """Start job 1 and be killed before its process, which does not exist, has shown that it lives."""
    with open_store(url) as store:
        Runner(url, Jobs(store.database), lambda: [lane()], Executor()).turn()
        os.write(told, b"started\n")
        time.sleep(60)


def test_a_job_whose_runner_is_killed_right_after_the_claim_does_not_wait_out_its_lease(store_url):
    with open_store(store_url) as store:
        number = submitted(Jobs(store.database)).id
    heard, told = os.pipe()
    with open(heard) as said, open_store(store_url) as store:
        jobs = Jobs(store.database)
        other = Runner(store_url, jobs, lambda: (), None)
        with forked(start_one, store_url, told):
            assert said.readline() == "started\n"
            assert other._take_back_lost() == {"model:Ascend910B4"}
        lost = jobs.get(number)
        assert lost.state is State.RUNNING
        assert other._take_back_lost() == set()
        assert jobs.get(number).state is State.QUEUED
        assert is_gone(lost.owner) is None  # nothing is left behind


@pytest.mark.parametrize("code", [None, 1])
def test_nothing_is_left_behind_of_a_process_that_has_ended(code, jobs, runner):
    job = submitted(jobs)
    runner.turn()
    owner = jobs.get(job.id).owner
    if code is None:
        jobs.finish(jobs.get(job.id).lease, State.DONE, "", {})
    runner._executor.end(code)
    assert is_gone(owner) is None


def test_a_process_that_was_started_for_a_job_of_another_leaves_nothing_behind(jobs, runner, monkeypatch):
    submitted(jobs)
    monkeypatch.setattr(jobs, "claim", lambda job, owner, **where: owners.append(owner))
    owners = []
    runner.turn()
    assert is_gone(owners[0]) is False
    runner._executor.end()
    assert is_gone(owners[0]) is None


def test_a_lost_job_is_taken_back_though_its_database_was_away_when_its_process_ended(jobs, runner, monkeypatch):
    job = submitted(jobs)
    runner.turn()
    with monkeypatch.context() as away:
        away.setattr(jobs, "get", lambda number: (_ for _ in ()).throw(StoreError("it is away")))
        runner._executor.end(1)
    assert jobs.get(job.id).state is State.RUNNING
    runner._take_back_lost()
    assert jobs.get(job.id).state is State.QUEUED


def test_the_log_tells_of_processes_that_end_and_of_what_is_lost(jobs, runner, dead, monkeypatch, caplog):
    job = submitted(jobs)
    runner.turn()
    runner._executor.end(1)
    assert caplog.messages == [f"job {job.id}: its process ended with exit code 1"]
    caplog.clear()
    assert jobs.claim(jobs.get(job.id), dead)
    runner._take_back_lost()
    assert caplog.messages == [f"job {job.id} is queued again; it was lost by {dead}"]
    caplog.clear()
    worker, forgotten = SimpleNamespace(id=7, host="alpha", owner="alpha/1/x"), []
    monkeypatch.setattr("tilewise.api.jobs.runner.forget", forgotten.append)
    runner._workers = Workers(jobs._database)
    runner._fleet = SimpleNamespace(sweep=lambda: [worker])
    with seen_alive():
        runner.beat()
    assert (caplog.messages, forgotten) == (["worker 7 on alpha is lost"], ["alpha/1/x"])


@pytest.mark.parametrize(("code", "stopping"), [(IN_USE, False), (None, False), (1, True)])
def test_the_log_does_not_tell_of_an_end_that_was_to_be_expected(jobs, runner, code, stopping, caplog):
    submitted(jobs)
    runner.turn()
    if stopping:
        runner._stopping.set()
    runner._executor.end(code)
    assert caplog.messages == []


def test_a_runner_looks_for_work_at_once_when_a_process_ends_or_it_is_to_drain(jobs, runner):
    submitted(jobs)
    runner.turn()
    runner._executor.end()
    assert runner._woken.is_set()
    runner._woken.clear()
    runner._executor.terminate = lambda: None
    runner.drain()
    assert runner._woken.is_set()


def test_a_job_that_another_process_of_this_host_started_is_an_heirloom(jobs, runner):
    device = runner.here[0].id
    assert not runner.has_heirloom(device)
    job = submitted(jobs)
    runner.turn()
    runner.turn()  # it is among the jobs that run
    assert not runner.has_heirloom(device)
    heir = Runner("sqlite://", jobs, lambda: [lane()], Executor())
    heir.turn()
    assert heir.has_heirloom(device) and not heir.has_heirloom("cuda:0")
    runner._executor.end()
    assert jobs.get(job.id).state is State.RUNNING
    assert runner.has_heirloom(device)


@pytest.mark.parametrize(("ends", "waited"), [(3, 0.15), (None, 30.0)])
def test_a_drain_waits_half_a_minute_for_the_jobs_that_run(jobs, runner, monkeypatch, ends, waited):
    now, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds
        if len(pauses) == ends:
            runner._executor.end()

    submitted(jobs)
    runner.turn()
    runner._executor.terminate = lambda: pauses.clear()
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("tilewise.api.jobs.runner.time", clock)
    runner.drain()
    assert set(pauses) == {0.05}
    assert now[0] == pytest.approx(waited, abs=0.06)


@pytest.mark.parametrize(("silent", "forgotten"), [(LEASE_SECONDS / 2, False), (LEASE_SECONDS / 2 + 0.1, True)])
def test_a_runner_that_was_silent_itself_gives_others_their_time_anew(jobs, monkeypatch, silent, forgotten):
    now = [100.0]
    monkeypatch.setattr("tilewise.api.jobs.runner.time", SimpleNamespace(monotonic=lambda: now[0]))
    runner = Runner("sqlite://", jobs, lambda: (), None)
    runner._take_back_lost()
    before = runner._liveness
    now[0] += silent
    runner._take_back_lost()
    assert (runner._liveness is not before) is forgotten
