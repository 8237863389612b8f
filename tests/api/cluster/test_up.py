"""`tilewise fleet` on a real Ray cluster of this machine, and without Ray."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from service_fixtures import TILEWISE

from tilewise.api.cluster import up
from tilewise.api.jobs.processes import ProcessEnded, pid_of
from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, chips, problems
from tilewise.cli import main
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Workers
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.cluster.ray_engine import SETTINGS

PATIENCE = 180.0


@pytest.mark.parametrize("words", [["up"], ["status"]])
def test_without_ray_one_line_names_the_extra(words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as ended:
        main(["fleet", *words])
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line == "tilewise: a fleet on several hosts needs Ray: pip install 'tilewise[fleet]'"


@pytest.mark.parametrize("verb", ["up", "status"])
@pytest.mark.parametrize(
    ("address", "code", "line"),
    [("127.0.0.1:1", 1, "no Ray cluster answers at 127.0.0.1:1"), ("head", 2, "'head' is not the address of a Ray cl")],
)
def test_an_address_without_a_cluster_is_one_line(verb, address, code, line, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    with pytest.raises(SystemExit) as ended:
        main(["fleet", verb, "--address", address])
    assert ended.value.code == code
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith(f"tilewise: {line}")


def test_devices_of_another_cluster_cannot_be_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "up", "--address", "head:6379", "--devices", "cuda"])
    assert ended.value.code == 2
    assert "nodes of another offer their own" in capsys.readouterr().err


def test_the_settings_are_variables_that_a_shell_exports(tmp_path, capsys):
    (tmp_path / "settings").write_text(_settings(capsys))
    shell = ["sh", "-c", "export $(cat settings) && env"]
    told = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {f"{name}={value}" for name, value in SETTINGS.items()} <= set(told)
    assert json.loads(_settings(capsys, "--json")) == SETTINGS


def _settings(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "settings", *words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_ray_knows_all_settings():
    """It ignores a variable that it does not know."""
    if (ray := find_spec("ray")) is None:
        pytest.skip("Ray is not installed")
    raylet = Path(ray.origin).parent / "core/src/ray/raylet/raylet"
    with raylet.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as program:
        assert [name for name in SETTINGS if program.find(name.encode() + b"\0") < 0] == []


def test_an_offer_is_a_value_of_ray_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))
    made = chips(tmp_path, 3, noise=0.0, seconds=0.0, seed=0)[:3]
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "offer", "--devices", ",".join(chip.id for chip in made)])
    assert ended.value.code == 0
    assert sorted(json.loads(capsys.readouterr().out).values()) == [1, 2]


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A function that starts `tilewise fleet up` on some chips, and the jobs of its database."""
    pytest.importorskip("ray")
    scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short, as it holds sockets
    monkeypatch.setenv("RAY_TMPDIR", scratch)
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))
    url, running = f"sqlite:///{tmp_path / 'tiles.db'}", []

    def start(made):
        words = [TILEWISE, "fleet", "up", "--db", url, "--devices", ",".join(chip.id for chip in made)]
        running.append(subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True))
        return running[-1]

    with open_store(url, create=True) as store:
        yield start, store
    for process in running:
        process.kill()  # all others end with it
        process.wait()
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.full
def test_actors_run_jobs_are_started_again_and_give_jobs_back(fleet, tmp_path):
    start, store = fleet
    made = chips(tmp_path, 2, noise=0.0, seconds=0.05, seed=0)[:2]
    jobs, hashed = Jobs(store.database), source_hash(registry.load(KERNEL))

    def submit(number, trials):
        name, dims = problems(4)[number]
        return jobs.submit(Request(KERNEL, hashed, [dims], DTYPE, name, trials, search="random"))[0].id

    process = start(made)
    numbers = [submit(0, 400), submit(1, 10)]
    until(process, lambda: jobs.get(numbers[0]).stored >= 3)  # others see that its process ends
    actor, runs = actor_of(jobs.get(numbers[0])), jobs.get(numbers[0])
    os.kill(actor, signal.SIGKILL)
    until(process, lambda: jobs.get(numbers[0]).stored >= runs.stored + 10)
    assert jobs.get(numbers[0]).owner == runs.owner  # it outlives its actor, and has no second one
    os.kill(pid_of(runs.owner), signal.SIGKILL)
    until(process, lambda: jobs.get(numbers[0]).attempts == 2)
    until(process, lambda: jobs.get(numbers[1]).state is State.DONE)
    until(process, lambda: len(Workers(store.database).all()) >= 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    left = jobs.get(numbers[0])
    assert left.state in (State.QUEUED, State.DONE)
    assert left.fruitless <= 1


def actor_of(job):
    """Return the process that started a job's: its parent."""
    with open(f"/proc/{pid_of(job.owner)}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def until(process, condition):
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "the fleet ended"
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.1)


# Without Ray, in this process


def test_a_supervisor_leaves_after_three_failed_connections_in_a_row(monkeypatch):
    answers, pauses, left = iter([True, False, False, True, False, False, False, True]), [], []

    class AtOnce:
        def __init__(self, target, daemon, name):
            assert daemon, "the process may end before its thread"
            self.start = target

    monkeypatch.setattr(up, "threading", SimpleNamespace(Thread=AtOnce))
    monkeypatch.setattr(up, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(up, "os", SimpleNamespace(_exit=left.append))
    monkeypatch.setattr(up, "answers", lambda address, seconds: (address, seconds) == ("head:1", 2.0) and next(answers))
    up._leave_with_head("head:1")
    assert (left, pauses, list(answers)) == ([77], [1.0] * 7, [True])


@pytest.fixture
def ends(monkeypatch):
    """A function that has the supervisors end with these codes, and returns what was started and told."""
    monkeypatch.setattr(up, "_AGAIN_SECONDS", 0.0)

    def keep_up(*codes, address="head:1"):
        started, told, left = [], [], iter(codes)
        executor = SimpleNamespace(start=lambda *call: started.append(call) or (1, None))
        monkeypatch.setattr(up, "ProcessExecutor", lambda: executor)
        monkeypatch.setattr(up, "_code", lambda *given: next(left))
        up.keep_up(address, "sqlite://", ["k"], [], told.append)
        assert not list(left)
        return started, told

    return keep_up


LOST = "Ray's head is lost; connecting again"


@pytest.mark.parametrize(
    ("codes", "told"), [([0], []), ([77, 0], [LOST]), ([77, 76, 76, 0], [LOST]), ([1, 77, 0], [LOST, LOST])]
)
def test_a_supervisor_that_lost_the_head_is_started_again_until_one_is_done(ends, codes, told):
    started, said = ends(*codes)
    assert said == told
    assert started == [(up.supervise, "head:1", "sqlite://", ("k",), ())] * len(codes)


@pytest.mark.parametrize(
    ("address", "line"), [("head:1", "no Ray cluster answers at head:1"), (None, "Ray does not start here")]
)
def test_a_cluster_that_never_answered_is_not_asked_again(ends, address, line):
    with pytest.raises(Unavailable, match=line):
        ends(76, address=address)


def test_a_supervisor_waits_until_this_machine_is_a_node_of_a_cluster_whose_head_answers(ends, monkeypatch):
    monkeypatch.setattr(up, "answers", lambda address, seconds: address == "head:1")
    started, said = ends(76, 76, 77, 76, 0)
    assert said == ["waiting for this machine to be a node of the cluster at head:1", LOST]
    assert len(started) == 5


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (ProcessEnded("gone", 77), 77), (ProcessEnded("killed", -9), -9), (OSError(), 1)]
)
def test_the_code_of_a_supervisor_is_that_of_its_process(error, code):
    future = Future()
    future.set_exception(error) if error else future.set_result(None)
    assert up._code(None, future, threading.Event()) == code


def test_a_supervisor_is_asked_to_end_once_and_killed_if_it_does_not(monkeypatch):
    monkeypatch.setattr(up, "_END_SECONDS", 0.01)
    asked, stopped = [], threading.Event()
    executor = SimpleNamespace(
        terminate=lambda: asked.append("terminate"), shutdown=lambda **how: asked.append(("shutdown", how))
    )
    stopped.set()
    assert up._code(executor, Future(), stopped) == 0
    assert asked == ["terminate", ("shutdown", {"wait": True, "cancel_futures": True})]
    ended = Future()
    ended.set_exception(ProcessEnded("it was told to", 77))
    assert up._code(executor, ended, stopped) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_supervisor_takes_turns_until_a_signal_and_then_drains(monkeypatch, number):
    calls, before = [], signal.getsignal(number)

    class Supervisor:
        def __init__(self, ray, url, kernels, told):
            assert (url, kernels) == ("sqlite://", ["k"])

        def turn(self):
            calls.append("turn")
            if len(calls) == 3:
                signal.raise_signal(number)

        def drain(self):
            calls.append("drain")

    context = SimpleNamespace(gcs_address="head:1")
    ray = SimpleNamespace(get_runtime_context=lambda: context)
    monkeypatch.setattr(up, "connected", lambda address, units: nullcontext(ray))
    monkeypatch.setattr(up, "_leave_with_head", calls.append)
    monkeypatch.setattr(up, "Supervisor", Supervisor)
    monkeypatch.setattr(up, "_TURN_SECONDS", 0.0)
    up.supervise(None, "sqlite://", ["k"], [])
    assert calls == ["head:1", "turn", "turn", "drain"]
    assert signal.getsignal(number) is before


def test_a_supervisor_without_a_cluster_ends_with_a_code_of_its_own(monkeypatch):
    def connected(address, units):
        raise Unavailable("nothing answers")

    monkeypatch.setattr(up, "connected", connected)
    with pytest.raises(SystemExit) as ended:
        up.supervise(None, "sqlite://", [], [])
    assert ended.value.code == 76


def test_lines_of_a_supervisor_go_to_stderr(capsys):
    up._tell("H200#0 is up")
    assert capsys.readouterr() == ("", "tilewise: H200#0 is up\n")
