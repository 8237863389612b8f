"""Calls in processes of their own, which end with their caller, whenever the caller is killed."""

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.api.jobs import processes
from tilewise.api.jobs.processes import (
    ProcessEnded,
    ProcessExecutor,
    forget,
    identity,
    identity_of,
    is_gone,
    mark_for,
    new_token,
    seen_alive,
)
from tilewise.errors import Unavailable
from tilewise.tuner.workers.file_lock import try_lock

CALLER = """
import sys, time
from tilewise.api.jobs.processes import ProcessExecutor
with ProcessExecutor() as executor:
    while True:
        executor.submit(time.sleep, 60)
        print(flush=True)
"""


def children_of(pid):
    return [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_call_has_a_process_of_its_own_and_its_end_is_told():
    with ProcessExecutor() as executor:
        assert executor.submit(os.getpid).result(30) is None
        with pytest.raises(ProcessEnded, match="exit code 3"):
            executor.submit(os._exit, 3).result(30)
        with pytest.raises(ProcessEnded, match="signal 6"):
            executor.submit(os.abort).result(30)
        running = executor.submit(time.sleep, 60)
        executor.shutdown(cancel_futures=True)
        with pytest.raises(ProcessEnded, match="signal 9"):
            running.result(30)


OUTLIVED = """
import sys, time
from pathlib import Path
from tilewise.api.jobs.processes import ProcessExecutor
executor = ProcessExecutor(heir=Path(sys.argv[1]))
executor.submit(time.sleep, 300)
print(flush=True)
time.sleep(300)
"""


def test_what_a_process_with_heirs_had_started_outlives_it_until_nobody_has_its_lock(tmp_path, monkeypatch):
    file = tmp_path / "lock"
    caller = subprocess.Popen([sys.executable, "-c", OUTLIVED, str(file)], stdout=subprocess.PIPE)
    caller.stdout.readline()
    [started] = children_of(caller.pid)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    time.sleep(1.5)  # three looks for its parent
    assert is_alive(started)
    os.kill(started, signal.SIGKILL)


def test_an_heir_is_who_holds_the_lock_and_its_end_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(processes, "HEIR_SECONDS", 0.3)
    lock, done = try_lock(tmp_path / "lock", "hold it"), threading.Event()

    def wait():
        processes._wait_for_no_heir(tmp_path / "lock")
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not done.wait(0.8)
    lock.release()
    assert done.wait(30)


def test_what_a_killed_process_had_started_ends_without_a_word(tmp_path):
    drawn = random.Random(0)
    for _ in range(3):
        with (tmp_path / "log").open("ab") as log:
            caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, stderr=log)
        caller.stdout.readline()
        time.sleep(drawn.uniform(0, 0.05))
        started = children_of(caller.pid)
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        give_up = time.monotonic() + 30
        while any(map(is_alive, started)):
            assert time.monotonic() < give_up, "a process has outlived its caller"
            time.sleep(0.05)
    assert (tmp_path / "log").read_text() == ""


# Identities

LIVING = """
import sys, time
from tilewise.api.jobs.processes import identity, seen_alive
with seen_alive():
    print(identity(), flush=True)
    time.sleep(60)
"""


def test_a_process_is_alive_until_it_is_killed_and_unknown_to_a_container_with_another_cache(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", LIVING], stdout=subprocess.PIPE, text=True)
    owner = other.stdout.readline().strip()
    assert is_gone(owner) is False
    with pytest.MonkeyPatch.context() as container:
        container.setenv("TILEWISE_CACHE", str(tmp_path))
        assert is_gone(owner) is None
        assert not list(tmp_path.iterdir())
    other.kill()
    other.wait()
    assert is_gone(owner) is True
    forget(owner)
    assert is_gone(owner) is None


def test_a_process_with_the_same_host_name_and_pid_is_another(monkeypatch):
    mine = identity()
    assert identity() == mine
    with seen_alive():
        assert is_gone(mine) is False
        assert is_gone(f"elsewhere/0/{mine.split('/', 2)[2]}") is None
        assert is_gone(f"{mine.rpartition('/')[0]}/{'0' * 32}") is None
    assert is_gone(mine) is None
    assert is_gone("") is None


def test_a_forked_process_has_an_identity_of_its_own():
    mine, (reading, writing) = identity(), os.pipe()
    if os.fork() == 0:
        os.write(writing, identity().encode())
        os._exit(0)
    assert os.read(reading, 1000).decode().rpartition("/")[2] != mine.rpartition("/")[2]
    os.wait()


STARTER = """
import sys, time
from pathlib import Path
from tilewise.api.jobs.processes import ProcessExecutor, identity_of, mark_for, new_token
with mark_for(token := new_token()) as mark:
    pid, _ = ProcessExecutor(heir=Path(sys.argv[1])).start(time.sleep, 60, inherited=mark)
print(pid, identity_of(pid, token), flush=True)
time.sleep(60)
"""


def test_a_process_is_seen_alive_from_its_start_to_its_end_even_if_its_starter_is_killed(tmp_path):
    words = [sys.executable, "-c", STARTER, str(tmp_path / "heir")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        pid, owner = starter.stdout.readline().split()
        starter.kill()
    try:
        assert is_gone(owner) is False  # it can hardly have imported anything yet
    finally:
        os.kill(int(pid), signal.SIGKILL)
    give_up = time.monotonic() + 30
    while is_gone(owner) is not True and time.monotonic() < give_up:
        time.sleep(0.01)
    assert is_gone(owner) is True


def test_a_process_that_ended_before_it_could_show_itself_is_seen_as_gone():
    with ProcessExecutor() as executor, mark_for(token := new_token()) as mark:
        pid, ended = executor.start(os._exit, 3, inherited=mark)
        with pytest.raises(ProcessEnded):
            ended.result(30)
    owner = identity_of(pid, token)
    assert is_gone(owner) is True
    forget(owner)
    assert is_gone(owner) is None


def test_a_mark_that_cannot_be_made_is_none(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "file"))
    with mark_for("token") as mark:
        assert mark is None


@pytest.mark.parametrize(
    ("end", "acts"),
    [
        (lambda executor: executor.terminate(), ["terminate"]),
        (lambda executor: executor.shutdown(), ["wait"]),
        (lambda executor: executor.shutdown(wait=False), []),
        (lambda executor: executor.shutdown(cancel_futures=True), ["kill", "wait"]),
        (lambda executor: executor.shutdown(wait=False, cancel_futures=True), ["kill"]),
    ],
)
def test_processes_are_asked_to_end_or_killed_and_waited_for(end, acts):
    done = {}

    class Process:
        def __getattr__(self, name):
            return lambda: done.setdefault(self, []).append(name)

    executor, processes = ProcessExecutor(), [Process(), Process()]
    executor._running.update(processes)
    end(executor)
    assert [done.get(process, []) for process in processes] == [acts] * 2


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, None),
        (3, "its process ended with exit code 3"),
        (1, "its process ended with exit code 1"),
        (-1, "its process ended with signal 1"),
        (-15, "its process ended with signal 15"),
    ],
)
def test_a_process_can_be_asked_to_end_until_it_has_and_its_end_is_told(monkeypatch, code, told):
    started, asked, ended = [], [], threading.Event()

    class Process:
        pid = 7

        def wait(self):
            return code if ended.wait(30) else None

        def terminate(self):
            asked.append("terminate")

    monkeypatch.setattr(processes, "_start", lambda *given: started.append(given) or Process())
    executor = ProcessExecutor(Path("heir"))
    pid, future = executor.start(divmod, 7, inherited=5, other=2)
    ((call, heir, inherited),) = started
    assert (pickle.loads(call), heir, inherited) == ((divmod, (7,), {"other": 2}), Path("heir"), 5)
    assert (pid, future.running(), future.cancel()) == (7, True, False)
    executor.terminate()
    assert asked == ["terminate"]
    ended.set()
    error = future.exception(30)
    assert (error and str(error), getattr(error, "code", 0)) == (told, code)
    executor.terminate()  # its id may be another's by now
    assert asked == ["terminate"]


@pytest.mark.parametrize(
    ("heir", "done"),
    [
        (None, [("sleep", 0.5), ("sleep", 0.5), ("exit", 1)]),
        (
            Path("heir"),
            [
                ("sleep", 0.5),
                ("sleep", 0.5),
                ("no heir", Path("heir")),
                ("kill", os.getpid(), signal.SIGTERM),
                ("sleep", 60.0),
                ("exit", 1),
            ],
        ),
    ],
)
def test_a_process_looks_for_its_parent_and_leaves_after_it(monkeypatch, heir, done):
    parents, acts, left = iter([7, 7, 1]), [], threading.Event()

    def leave(code):
        acts.append(("exit", code))
        left.set()

    clock = SimpleNamespace(sleep=lambda seconds: acts.append(("sleep", seconds)))
    system = SimpleNamespace(
        getppid=lambda: next(parents), getpid=os.getpid, kill=lambda *given: acts.append(("kill", *given)), _exit=leave
    )
    monkeypatch.setattr(processes, "time", clock)
    monkeypatch.setattr(processes, "os", system)
    monkeypatch.setattr(processes, "_wait_for_no_heir", lambda file: acts.append(("no heir", file)))
    processes._leave_with(7, heir)
    assert left.wait(30)
    assert acts == done


def test_a_lock_that_cannot_be_asked_for_tells_nothing_of_a_process(monkeypatch):
    def refuse(file, purpose):
        raise Unavailable("the folder is gone")

    with seen_alive():
        monkeypatch.setattr(processes, "try_lock", refuse)
        assert is_gone(identity()) is None
        monkeypatch.undo()


@pytest.mark.parametrize(("held", "looks"), [([], 60), ([0], 60), ([0, 1, 2], 62), ([10], 70), ([59], 119), ([60], 60)])
def test_a_lock_has_to_be_free_for_two_minutes_without_a_break(monkeypatch, held, looks):
    """A look comes every 2 s; at those that `held` numbers, another process has the lock."""
    now, seen = [0.0], []

    def look(file, purpose):
        seen.append(file)
        is_held = len(seen) - 1 in held
        return None if is_held else SimpleNamespace(release=lambda: None)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(processes, "time", clock)
    monkeypatch.setattr(processes, "try_lock", look)
    processes._wait_for_no_heir(Path("heir"))
    assert len(seen) == looks
