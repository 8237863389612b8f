"""`tilewise serve --workers`: several processes on one port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tilewise.api import group as group_module
from tilewise.api.app import create_app
from tilewise.api.group import Group
from tilewise.api.service.service import Options
from tilewise.api.service.siblings import Siblings
from tilewise.cli.commands.service.serve import listen
from tilewise.errors import Unavailable

PATIENCE = 120.0
"""Seconds; others may use this machine."""


@pytest.fixture(scope="module")
def server(servers, tmp_path_factory, tune_into, address):
    """A server of two processes, and its address."""
    url = f"sqlite:///{tmp_path_factory.mktemp('group')}/tilewise.db"
    tune_into(url)
    with servers(url) as start:
        process = start("--workers", "2", "--no-jobs")
        yield process, address(process)


def until(condition):
    """Poll until `condition` returns something true, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def answer(url):
    """Return the answer on a connection of its own; None while a process that was killed takes connections along."""
    try:
        return httpx2.get(url, timeout=PATIENCE)
    except httpx2.TransportError:
        return None


def samples(url, name):
    """Return the values of a metric, summed by process."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(until(lambda: answer(f"{url}/metrics")).text):
        for sample in family.samples:
            if sample.name == name:
                values[sample.labels["process"]] = values.get(sample.labels["process"], 0.0) + sample.value
    return values


def children(process):
    """Return the ids of the server's own processes."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:  # it has ended since
            continue
        state, parent = rest.split()[:2]
        if int(parent) == process.pid and state != "Z":
            found.append(int(name.split()[0]))
    return found


def test_all_processes_answer_on_one_port_and_any_tells_the_metrics_of_all(server):
    _, url = server
    question = f"{url}/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"

    def both_answered():
        assert answer(question).json()["config"]["BLOCK_SIZE_M"] == 25
        counts = samples(url, "tilewise_answers_total")
        return counts if all(counts.get(number) for number in "01") else None

    assert set(until(both_answered)) == {"0", "1"}
    assert samples(url, "tilewise_process_up") == {"0": 1.0, "1": 1.0}


def test_wrong_tokens_are_counted_over_all_processes(server):
    _, url = server
    began, statuses = time.monotonic(), []
    for _ in range(200):
        with closing(HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)) as connection:
            connection.request("POST", "/v1/jobs", b"{}", {"authorization": "Bearer wrong"})
            statuses.append(connection.getresponse().status)
        if statuses.count(429) == 3:
            break
    assert statuses.count(401) <= 61 + time.monotonic() - began  # each second gives one back
    assert statuses.count(401) >= 60


def test_a_process_that_is_killed_is_started_again(server):
    process, url = server
    before = until(lambda: found if len(found := children(process)) == 2 else None)
    os.kill(before[0], signal.SIGKILL)
    after = until(lambda: found if len(found := children(process)) == 2 and before[0] not in found else None)
    assert before[1] in after
    until(lambda: samples(url, "tilewise_process_up") == {"0": 1.0, "1": 1.0})
    assert answer(f"{url}/readyz").json() == {"status": "ok"}


def test_sigterm_ends_all_processes(serve, address):
    process = serve("--workers", "2", "--no-jobs")
    url = address(process)
    pids = until(lambda: found if len(found := children(process)) == 2 else None)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "Traceback" not in stderr
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url, timeout=PATIENCE)


def test_a_server_of_several_processes_does_not_join_another_on_its_port():
    with ExitStack() as opened:
        ports = [opened.enter_context(one) for one in listen("127.0.0.1", 0, 2)]
        [address] = {one.getsockname() for one in ports}
        with pytest.raises(Unavailable, match="Address already in use"):
            listen(*address, 2)


@pytest.mark.parametrize(("number", "runs_jobs"), [(0, True), (1, False)])
def test_only_the_first_process_runs_jobs(store_url, number, runs_jobs):
    siblings = Siblings(120, 2)
    siblings.number = number
    app = create_app(store_url, Options(), siblings)
    with TestClient(app):
        assert (app.state.service._runner is not None) == runs_jobs


def forked(act):
    """Return the exit code of a fork of this process that does this, and nothing else."""
    if not (pid := os.fork()):
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            act()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (KeyboardInterrupt(), 0),
        (SystemExit(3), 3),
        (SystemExit("uvicorn says why"), 1),
        (Unavailable("the database is away"), 1),
        (ZeroDivisionError(), 1),
    ],
)
def test_a_process_of_a_server_ends_with_the_code_of_what_ended_it(error, code):
    def serve(number, ready):
        if error is not None:
            raise error

    group = Group([socket.socket()], serve, ready=str, ended=int)
    assert forked(lambda: group._become(0)) == code
    group._pid = 1  # the first process has ended meanwhile
    assert forked(lambda: group._become(0)) == 1


def test_a_process_of_a_server_has_its_own_listener_alone_and_tells_when_it_is_ready():
    listeners = [socket.socket() for _ in range(3)]
    told = []

    def serve(number, ready):
        ready("an address")
        closed = [listener.fileno() < 0 for listener in listeners]
        raise SystemExit(10 + closed.index(False) if closed == [True, False, True] else 1)

    group = Group(listeners, serve, ready=told.append, ended=int)
    signalled = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: signalled.set())  # to whichever thread it comes
    try:
        assert forked(lambda: group._become(1)) == 11
        assert [ready for (ready,) in group._is_ready.all()] == [False, True, False]
        assert signalled.wait(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [] and all(listener.fileno() >= 0 for listener in listeners)


def test_a_process_that_takes_too_long_to_end_is_killed(monkeypatch):
    monkeypatch.setattr(group_module, "_DRAIN_SECONDS", 0.2)
    ended = []
    group = Group([socket.socket()], lambda number, ready: None, ready=str, ended=ended.append)
    reading, writing = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, group_module._SIGNALS)
    try:
        if not (pid := os.fork()):  # it has SIGTERM blocked, as this process has
            os.write(writing, b"x")
            time.sleep(600)
            os._exit(99)
        assert os.read(reading, 1) == b"x"
        group._numbers[pid] = 0
        group._end()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (ended, group._numbers) == ([pid], {})


# What the first process does, a quarter of a second after the other


@pytest.fixture
def watched(monkeypatch):
    """Let a group watch processes that are only said to start and to end; return what it did, and when."""

    def watch(processes, *looks, end=signal.SIGTERM):
        """Each look is what happens before it: nothing, who is ready, or who has ended and how."""
        now, done, left = [0.0], [], iter(looks)
        group = Group([None] * processes, None, ready=lambda address: done.append(("ready", address)), ended=int)
        gone = []

        def start(number):
            del group._starts[number]
            group._started[number] = now[0]
            done.append(("start", number, now[0]))

        def wait(signals, seconds):
            assert (signals, seconds) == (group_module._SIGNALS, 0.25)
            now[0] += seconds
            look = next(left, "end")
            if look == "end":
                return SimpleNamespace(si_signo=end)
            for number, how in (look or {}).items():
                if how == "ready":
                    group._is_ready[number] = (True,)
                else:
                    gone.append((number, how))
            return SimpleNamespace(si_signo=signal.SIGCHLD) if look else None

        def reap():
            found, gone[:] = list(gone), []
            return found

        monkeypatch.setattr(group, "_start", start)
        monkeypatch.setattr(group, "_reap", reap)
        monkeypatch.setattr(group_module, "signal", SimpleNamespace(sigtimedwait=wait))
        monkeypatch.setattr(group_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        try:
            done.append(("end", group._watch("the address")))
        except Unavailable as error:
            done.append(("refused", str(error)))
        return done

    return watch


STARTED = [("start", 0, 0.0), ("start", 1, 0.0)]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_is_ready_once_all_its_processes_are_and_ends_by_a_signal(watched, end):
    done = watched(2, None, {1: "ready"}, None, {0: "ready"}, None, {0: "ready"}, end=end)
    assert done == [*STARTED, ("ready", "the address"), ("end", end)]
    assert watched(2, {1: "ready"}, None, end=end) == [*STARTED, ("end", end)]


def test_a_server_one_of_whose_processes_ends_before_all_were_ready_does_not_start(watched):
    done = watched(2, {1: "ready"}, {0: "exit code 3"}, None)
    told = "a process of the server ended with exit code 3 before all were ready; see its log"
    assert done == [*STARTED, ("refused", told)]


def test_a_process_that_ends_later_is_started_again_a_second_after_its_start(watched, caplog):
    done = watched(2, {0: "ready", 1: "ready"}, {1: "signal 9"}, None, None, None, None, {0: "exit code 1"}, None)
    assert done == [
        *STARTED,
        ("ready", "the address"),
        ("start", 1, 1.0),
        ("start", 0, 1.75),
        ("end", signal.SIGTERM),
    ]
    assert caplog.messages == [
        "process 1 of the server ended with signal 9; it is started again",
        "process 0 of the server ended with exit code 1; it is started again",
    ]


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, None), (signal.SIGINT, KeyboardInterrupt)])
def test_a_run_ends_its_processes_and_puts_back_the_signals(monkeypatch, number, error):
    done = []
    listener = SimpleNamespace(close=lambda: done.append("closed"))
    group = Group([listener], None, ready=str, ended=int)
    monkeypatch.setattr(group, "_watch", lambda address: done.append(address) or number)
    monkeypatch.setattr(group, "_end", lambda: done.append("ended"))
    monkeypatch.setattr(group_module, "gc", SimpleNamespace(freeze=lambda: done.append("frozen")))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    if error is None:
        group.run("the address")
    else:
        with pytest.raises(error):
            group.run("the address")
    assert done == ["frozen", "the address", "closed", "ended"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_ends_of_processes_are_told_with_their_ids_and_how(monkeypatch):
    ended = []
    group = Group([None] * 2, None, ready=str, ended=ended.append)
    living = subprocess.Popen(["sleep", "60"])
    left, killed = subprocess.Popen(["false"]), subprocess.Popen(["sleep", "60"])
    killed.kill()
    for process in (left, killed):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    group._numbers = {living.pid: 0, left.pid: 1, killed.pid: 2}
    assert group._reap() == [(1, "exit code 1"), (2, "signal 9")]
    assert (ended, group._numbers) == ([left.pid, killed.pid], {living.pid: 0})
    group._send(signal.SIGTERM)
    assert living.wait(PATIENCE) == -signal.SIGTERM
    left.returncode, killed.returncode = 1, -9
