"""The helper process: answers, failures, crashes, timeouts, output, and its end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.tuner.workers import worker as worker_module
from tilewise.tuner.workers.supervisor import Supervisor
from tilewise.tuner.workers.worker import (
    Worker,
    WorkerDied,
    WorkerExceeded,
    WorkerFailed,
    WorkerPool,
    WorkerTimeout,
    crash,
    describe,
)

CALLS = """
import os, stat, sys, time

with open(__file__ + ".importers", "a") as file:
    print(os.getpid(), file=file)
time.sleep(float(os.environ.get("IMPORT_SECONDS", 0)))

def run(text):
    return eval(text)

def remember():
    os.environ["REMEMBERED"] = str(os.getpid())
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """An entry that evaluates a Python expression, in a module that is only on our import path."""
    (tmp_path / "calls_for_test.py").write_text(CALLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "calls_for_test:run"


@pytest.fixture
def worker(calls):
    worker = Worker(calls, env={"ONLY_THERE": "yes", "PATH": None})
    yield worker
    worker.close()


@pytest.fixture
def importers(tmp_path):
    """A function that waits until the entry's module is imported and returns the ids of the processes that did so."""
    file = tmp_path / "calls_for_test.py.importers"

    def importers():
        assert comes_true(lambda: file.exists() and file.read_text().endswith("\n"))
        return [int(line) for line in file.read_text().splitlines()]

    return importers


@pytest.fixture
def pool(calls):
    pool = WorkerPool(calls, 3)
    yield pool
    pool.close()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("fresh_supervisors")
def test_one_process_answers_all_calls(worker):
    first = worker.call("os.getpid()", timeout=60)
    assert worker.call("os.getpid()", timeout=60) == first == worker.pid


def test_it_runs_in_the_given_environment(worker):
    assert worker.call("(os.environ['ONLY_THERE'], 'PATH' in os.environ)", timeout=60) == ("yes", False)


def test_an_exception_is_told_and_the_process_lives(worker):
    pid = worker.call("os.getpid()", timeout=60)
    with pytest.raises(WorkerFailed, match="ZeroDivisionError: division by zero") as caught:
        worker.call("1 / 0", timeout=60)
    assert caught.value.kind == "ZeroDivisionError"
    assert worker.call("os.getpid()", timeout=60) == pid


def test_a_crash_is_told_with_the_last_words_and_the_next_call_starts_anew(worker):
    with pytest.raises(WorkerDied, match=r"SIGKILL after printing: goodbye"):
        worker.call("(os.write(2, b'goodbye\\n'), os.kill(os.getpid(), 9))", timeout=60)
    assert worker.call("1 + 1", timeout=60) == 2


def test_an_exit_is_told_with_its_code(worker):
    with pytest.raises(WorkerDied, match="exit code 3"):
        worker.call("os._exit(3)", timeout=60)


def test_a_slow_call_is_killed_in_time(worker):
    pid = worker.call("os.getpid()", timeout=60)
    begin = time.perf_counter()
    with pytest.raises(WorkerTimeout, match=r"no answer within 0\.3 s"):
        worker.call("time.sleep(60)", timeout=0.3)
    assert time.perf_counter() - begin < 30
    assert not alive(pid)


def test_noise_on_stdout_does_not_reach_the_answers(worker):
    assert worker.call("(print('noise'), os.write(1, b'more'), sys.stdout.flush(), 7)[-1]", timeout=60) == 7


def test_closing_ends_the_process(worker):
    pid = worker.call("os.getpid()", timeout=60)
    worker.close()
    assert not alive(pid)


def test_a_module_that_does_not_import_is_told():
    worker = Worker("no_such_module_anywhere:run")
    with pytest.raises(WorkerDied, match="No module named 'no_such_module_anywhere'"):
        worker.call(timeout=60)


def test_a_busy_worker_ends_soon_after_its_parent(calls, worker):
    """A worker that has a busy worker of its own is killed; the grandchild must end too."""
    script = (
        f"[w := __import__('tilewise.tuner.workers.worker', fromlist=['x']).Worker({calls!r}), w.start(),"
        " w.call('1', timeout=60), w._connection.send((w.pid, ('time.sleep(60)',))),"
        " globals().update(kept=w), w.pid][-1]"
    )
    grandchild = worker.call(script, timeout=60)
    assert alive(grandchild)
    worker.close()
    assert ends(grandchild)


def running(pid):
    """Return True if the process is alive and not a zombie; in a container an orphan may stay one for long."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second if it ends between the opening and the reading
        return False


def ends(pid):
    return comes_true(lambda: not running(pid))


def comes_true(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


# Limits and damage of a call -----------------------------------------------------------------------------------------

COMPILER = "__import__('subprocess').Popen(['sleep', '60']).pid"
JUNK = "open(os.path.join(os.environ['TMPDIR'], 'junk'), 'wb').write(b'x' * (8 << 20))"
SOCKETS = "[n for n in range(3, 64) if os.path.exists(f'/dev/fd/{n}') and stat.S_ISSOCK(os.stat(n).st_mode)]"


def test_a_call_that_takes_too_much_memory_is_killed(worker):
    with pytest.raises(WorkerExceeded, match=r"it used 0\.\d+ GiB of memory; the limit is 0\.\d+ GiB"):
        worker.call("[b'x' * (16 << 20) for _ in range(400)], time.sleep(60)", timeout=30, memory_bytes=200 << 20)
    assert worker.call("1 + 1", timeout=60) == 2


def test_a_call_that_fills_the_disk_is_killed_and_what_it_wrote_is_gone(calls):
    worker = Worker(calls, disk_bytes=4 << 20)
    try:
        folder = worker.call("os.environ['TMPDIR']", timeout=60)
        with pytest.raises(WorkerExceeded, match=r"GiB of disk"):
            worker.call(f"{JUNK}, time.sleep(60)", timeout=30)
        assert worker.call("os.listdir(os.environ['TMPDIR'])", timeout=60) == []
    finally:
        worker.close()
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    "deed", ["os.closerange(3, 64)", f"[os.write(n, b'junk' * 100) for n in {SOCKETS}], time.sleep(60)"]
)
def test_a_call_that_meddles_with_the_connection_costs_only_itself(worker, deed):
    with pytest.raises((WorkerDied, WorkerTimeout)):
        worker.call(deed, timeout=1)
    assert worker.call("1 + 1", timeout=60) == 2


def test_leaving_is_a_death_with_its_code(worker):
    with pytest.raises(WorkerDied, match="exit code 3"):
        worker.call("sys.exit(3)", timeout=60)


@pytest.mark.usefixtures("fresh_supervisors")
def test_the_last_lines_are_kept_of_whatever_ends_a_call(worker):
    with pytest.raises(WorkerTimeout) as caught:
        worker.call("[print(n, flush=True) for n in range(9)], time.sleep(60)", timeout=2)
    assert caught.value.last_lines == ("4", "5", "6", "7", "8")


def test_a_call_that_another_thread_closes_is_told_so(worker):
    worker.call("0", timeout=60)
    errors = []

    def call():
        with pytest.raises(WorkerDied) as raised:
            worker.call("time.sleep(60)", timeout=60)
        errors.append(raised.value)

    calling = threading.Thread(target=call)
    calling.start()
    time.sleep(0.3)
    worker.close()
    calling.join(20)
    assert len(errors) == 1


def test_a_crash_leaves_the_imports_to_be_used_again(worker):
    """The next process is forked by the supervisor, which has the imports."""
    supervisor = worker.call("os.getppid()", timeout=60)
    with pytest.raises(WorkerDied):
        worker.call("os.abort()", timeout=60)
    assert worker.call("os.getppid()", timeout=60) == supervisor


def test_a_call_to_a_process_that_had_ended_by_then_is_not_answered_by_the_next(worker):
    os.kill(worker.call("os.getpid()", timeout=60), signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.call("'first'", timeout=60)
    assert [worker.call(f"{number}", timeout=60) for number in (2, 3)] == [2, 3]


def test_a_restart_is_another_process(worker):
    pid = worker.call("os.getpid()", timeout=60)
    worker.restart()
    assert not alive(pid)
    assert worker.call("os.getpid()", timeout=60) != pid


@pytest.mark.parametrize("end", ["time-out", "crash", "close"])
def test_what_a_call_has_started_ends_with_it(worker, end):
    compiler = worker.call(COMPILER, timeout=60)
    assert running(compiler)
    if end == "close":
        worker.close()
    else:
        with pytest.raises((WorkerDied, WorkerTimeout)):
            worker.call("time.sleep(60)" if end == "time-out" else "os.abort()", timeout=0.3)
    assert ends(compiler)


SCRIPT = """
import sys, time
from tilewise.tuner.workers.worker import Worker
worker = Worker(sys.argv[1])
print(*worker.call("(os.getpid(), os.environ['TMPDIR'], {compiler})", timeout=60), flush=True)
worker.call("[0 for _ in iter(int, 1)]", timeout=60)
"""


def test_nothing_outlives_a_parent_that_is_killed(calls):
    """Neither the busy process, nor a process that it has started, nor its temporary files."""
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("{compiler}", COMPILER), calls],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        pid, folder, compiler = parent.stdout.readline().split()
        assert running(pid)
        assert running(compiler)
    finally:
        parent.kill()
        parent.communicate()
    assert ends(pid)
    assert ends(compiler)
    assert comes_true(lambda: not os.path.exists(folder))


# Pools ---------------------------------------------------------------------------------------------------------------


def test_a_pool_runs_calls_side_by_side_and_a_crash_costs_one_call(calls):
    pool = WorkerPool(calls, 2)
    try:
        crash = pool.submit("os._exit(1)", timeout=60)
        others = [pool.submit(f"{n} * {n}", timeout=60) for n in range(4)]
        assert [future.result() for future in others] == [0, 1, 4, 9]
        with pytest.raises(WorkerDied):
            crash.result()
    finally:
        pool.close()


def test_closing_a_pool_does_not_wait_for_its_calls(calls):
    pool = WorkerPool(calls, 1)
    pool.submit("0", timeout=60).result()
    running_call = pool.submit("time.sleep(60)", timeout=90)
    waiting = pool.submit("1", timeout=90)
    time.sleep(0.2)
    begin = time.perf_counter()
    pool.close()
    assert time.perf_counter() - begin < 30
    assert isinstance(running_call.exception(), WorkerDied)
    assert waiting.cancelled()


PIDS = "(time.sleep(0.3), (os.getpid(), os.getppid()))[1]"
"""Takes long enough for three calls to need three workers."""


def test_the_workers_of_a_pool_are_children_of_one_process_that_imports_once(pool, importers):
    pool.start()
    calls = [pool.submit(PIDS, timeout=60) for _ in range(3)]
    pids, supervisors = zip(*[call.result() for call in calls], strict=True)
    assert len(set(pids)) == 3
    assert importers() == list(set(supervisors))


def test_a_function_among_the_imports_is_called_once_for_all_workers(calls):
    pool = WorkerPool(calls, 2, imports=("calls_for_test:remember",))
    try:
        asked = "(time.sleep(0.3), os.getpid(), os.environ['REMEMBERED'])[1:]"
        answers = [pool.submit(asked, timeout=60) for _ in range(2)]
        pids, remembered = zip(*[answer.result() for answer in answers], strict=True)
        assert len(set(pids)) == 2
        assert len(set(remembered)) == 1
        assert remembered[0] not in map(str, pids)
    finally:
        pool.close()


def test_a_pool_forks_no_worker_that_is_not_called(pool):
    children = "open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read()"
    for _ in range(2):
        pid, text = pool.submit(f"(os.getpid(), {children})", timeout=60).result()
        assert text.split() == [str(pid)]


def test_a_worker_holds_no_other_connection_than_its_own(pool):
    pool.start()
    calls = [pool.submit(f"(time.sleep(0.3), {SOCKETS})[1]", timeout=60) for _ in range(3)]
    assert [len(call.result()) for call in calls] == [1, 1, 1]


def test_the_end_of_one_worker_leaves_calls_of_the_others_alone(pool):
    calls = [pool.submit(f"(time.sleep(1), {PIDS})[1]", timeout=60) for _ in range(2)]
    supervisors = []
    for deed in ("os.abort()", "os.kill(os.getpid(), 9)", "time.sleep(60)", "os.closerange(3, 64)"):
        supervisors.append(pool.submit("os.getppid()", timeout=60).result())
        assert isinstance(pool.submit(deed, timeout=0.2).exception(), WorkerDied | WorkerTimeout)
    assert {call.result()[1] for call in calls} == set(supervisors)
    assert len(set(supervisors)) == 1


def test_the_output_of_two_workers_is_told_apart(pool):
    calls = [pool.submit(f"(print({n}, flush=True), time.sleep(60))", timeout=0.5) for n in range(3)]
    assert [call.exception().last_lines for call in calls] == [("0",), ("1",), ("2",)]


def test_calls_in_flight_end_with_their_supervisor_and_the_next_are_answered(pool, importers):
    idle, _, compiler = pool.submit(f"(os.getpid(), time.sleep(0.3), {COMPILER})", timeout=60).result()
    calls = [pool.submit("time.sleep(60)", timeout=90) for _ in range(2)]
    pid, supervisor = pool.submit(PIDS, timeout=60).result()
    os.kill(supervisor, signal.SIGKILL)
    for call in calls:
        assert re.search("died of SIGKILL", str(call.exception()))
    assert ends(idle)
    assert ends(pid)
    again = [pool.submit(PIDS, timeout=60) for _ in range(3)]
    [fresh] = {call.result()[1] for call in again}
    assert ends(compiler)
    assert importers() == [supervisor, fresh]


def test_a_busy_process_ends_with_its_supervisor_even_if_nobody_waits_for_it(worker):
    pid, supervisor = worker.call("(os.getpid(), os.getppid())", timeout=60)
    worker._connection.send((pid, ("time.sleep(60)",)))
    os.kill(supervisor, signal.SIGKILL)
    assert ends(pid)


def test_a_worker_closed_during_the_imports_leaves_them_to_the_others(calls, importers):
    supervisor = Supervisor(calls, env={"IMPORT_SECONDS": "1"})
    closed, other = Worker(supervisor), Worker(supervisor)
    closed.start()
    other.start()
    importers()
    closed.close()
    try:
        assert [other.call("os.getppid()", timeout=60)] == importers()
    finally:
        other.close()
        supervisor.close()


def test_imports_that_take_too_long_are_given_up(calls, importers):
    worker = Worker(calls, env={"IMPORT_SECONDS": "60"}, start_seconds=0.1)
    worker.start()
    [importer] = importers()
    try:
        with pytest.raises(WorkerTimeout):
            worker.call("1", timeout=60)
        assert ends(importer)
    finally:
        worker.close()


def test_closing_a_pool_does_not_wait_for_its_imports(calls, importers):
    pool = WorkerPool(calls, 2, env={"IMPORT_SECONDS": "60"})
    call = pool.submit("1", timeout=60)
    [importer] = importers()
    begin = time.perf_counter()
    pool.close()
    assert time.perf_counter() - begin < 30
    assert isinstance(call.exception(), WorkerDied)
    assert not alive(importer)


POOL_SCRIPT = """
import sys, time
from tilewise.tuner.workers.worker import WorkerPool
pool = WorkerPool(sys.argv[1], 3)
pool.start()
seen = "(os.getpid(), os.getppid(), {compiler}, os.path.dirname(os.environ['TMPDIR']))"
print(*pool.submit(seen, timeout=60).result(), flush=True)
pool.submit("[0 for _ in iter(int, 1)]", timeout=60)
if sys.argv[2] == "close":
    pool.close()
time.sleep(60)
"""


@pytest.mark.parametrize("end", ["close", "kill"])
def test_no_process_and_no_folder_outlives_a_pool(calls, end):
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen(
        [sys.executable, "-c", POOL_SCRIPT.replace("{compiler}", COMPILER), calls, end],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        *pids, folder = parent.stdout.readline().split()
        if end == "kill":
            parent.kill()
        assert [ends(pid) for pid in pids] == [True] * 3
        assert comes_true(lambda: not os.path.exists(folder))
    finally:
        parent.kill()
        parent.communicate()


def test_the_memory_of_a_process_is_what_it_has_in_use_and_none_once_it_has_ended():
    status = Path("/proc/self/status").read_text()
    resident = 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])
    assert worker_module._resident(os.getpid()) == pytest.approx(resident, rel=0.1)
    with subprocess.Popen(["sleep", "60"]) as process:
        assert worker_module._resident(process.pid) > 0
        process.kill()
        assert comes_true(lambda: worker_module._resident(process.pid) == 0)  # a zombie at first
    assert worker_module._resident(process.pid) == 0
    assert list(worker_module.family(process.pid)) == [process.pid]


def test_what_a_call_used_and_may_use_is_told_in_gib(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_module, "_size", lambda folder: 5 << 29)
    watched = SimpleNamespace(
        memory_bytes=lambda: 3 << 30, _folder=tmp_path, _disk_bytes=3 << 30, _last_lines=lambda: ["last"]
    )
    Worker._watch(watched, 3 << 30)  # the limit itself may be reached
    with pytest.raises(WorkerExceeded, match=r"^it used 3\.00 GiB of memory; the limit is 1\.50 GiB") as caught:
        Worker._watch(watched, 3 << 29)
    assert caught.value.last_lines == ("last",)
    watched._disk_bytes = 1 << 30
    with pytest.raises(WorkerExceeded, match=r"^it used 2\.50 GiB of disk; the limit is 1\.00 GiB"):
        Worker._watch(watched, 3 << 30)


def test_a_crash_by_an_assertion_is_told_in_one_line():
    printed = (
        b"tool: /home/a/lib/Analysis.cpp:2028: static void f(Op, Data &): Assertion `size == 1' failed.\nStack dump:"
    )
    told = describe(subprocess.CalledProcessError(-6, ["/usr/bin/tool", "x"], stderr=printed))
    assert told == "tool crashed, as its assertion 'size == 1' failed (Analysis.cpp:2028)"


def test_another_crash_is_told_by_its_message_or_its_signal():
    assert crash("tool", -6, "LLVM ERROR: no maps\nPLEASE submit a bug report\n") == "tool crashed: no maps"
    dumped = subprocess.CalledProcessError(-11, ["/usr/bin/tool"], stderr=b"PLEASE submit a bug report\nStack dump:\n")
    assert describe(dumped) == "tool crashed (SIGSEGV)"
    assert crash("tool", -1, "") == "tool crashed (SIGHUP)"
    assert [crash("tool", code, "LLVM ERROR: no maps") for code in (0, 1)] == ["", ""]


def test_a_worker_whose_supervisor_is_closed_says_so():
    def fork(connection, output):
        raise EOFError("the workers are closed")

    supervisor = Supervisor("calls_for_test:run")
    supervisor.fork = fork
    with pytest.raises(WorkerDied, match=r"^the workers are closed$"):
        Worker(supervisor).call("1", timeout=1.0)


def test_a_pool_is_made_anew_with_all_its_workers(pool):
    before = {future.result(30) for future in [pool.submit("(time.sleep(0.2), os.getpid())[1]", timeout=30)] * 1}
    for one in pool._workers:
        one.call("os.getpid()", timeout=30)
    pids = {one.pid for one in pool._workers}
    assert None not in pids and before & pids
    pool.restart()
    after = {one.call("os.getpid()", timeout=30) for one in pool._workers}
    assert len(after) == len(pool._workers) and not after & pids


def test_a_pool_that_starts_starts_each_worker_once(monkeypatch):
    pool = WorkerPool("calls_for_test:run", 3)
    started = []
    for one in pool._workers:
        monkeypatch.setattr(one, "start", lambda one=one: started.append(one))
    pool.start()
    assert started == pool._workers and len(started) == 3
    pool.close()
