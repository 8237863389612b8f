"""The end of a supervisor's process, however slow it is to end."""

import subprocess
import tempfile
import threading
from types import SimpleNamespace

import pytest

from tilewise.tuner.workers import supervisor
from tilewise.tuner.workers.supervisor import LEAVE_SECONDS, SupervisorProcess, tail


class Process:
    """A process that ends once it was killed, or by itself."""

    pid, returncode = 4711, 3

    def __init__(self, slow):
        self.slow, self.waits = slow, []

    def wait(self, seconds=None):
        self.waits.append(seconds)
        if self.slow:
            raise subprocess.TimeoutExpired("supervisor", seconds or 0)


@pytest.fixture
def made(monkeypatch):
    """`made(slow=.., importing=..)` makes a supervisor's process; `killed` lists the groups that were killed."""

    def make(*, slow, importing):
        made = SupervisorProcess.__new__(SupervisorProcess)
        process, killed = Process(slow), []

        def kill(pid):
            killed.append(pid)
            process.slow = False

        monkeypatch.setattr(supervisor, "kill_group", kill)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by what is tested
        output.write(b"last words")
        folder = SimpleNamespace(cleaned=0)
        folder.cleanup = lambda: setattr(folder, "cleaned", folder.cleaned + 1)
        made._process, made._output, made._folder = process, output, folder
        made._lock, made._printed = threading.Lock(), None
        made._control = SimpleNamespace(close=lambda: None)
        made._is_importing = lambda: importing
        made.killed = killed
        return made

    return make


@pytest.mark.parametrize(
    ("slow", "importing", "kills", "waits"),
    [
        (False, False, 0, [LEAVE_SECONDS]),
        (True, False, 1, [LEAVE_SECONDS, None]),
        (False, True, 1, [LEAVE_SECONDS]),
        (True, True, 1, [LEAVE_SECONDS]),
    ],
)
def test_a_process_that_imports_or_does_not_leave_in_time_is_killed(made, slow, importing, kills, waits):
    process = made(slow=slow, importing=importing)
    process.close()
    process.close()
    assert process.killed == [4711] * kills
    assert process._process.waits == waits
    assert (process._printed, process._output.closed, process._folder.cleaned) == ("last words", True, 1)


@pytest.mark.parametrize(("importing", "closed", "kills"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_only_a_process_that_still_imports_is_given_up(made, importing, closed, kills):
    process = made(slow=False, importing=importing)
    process._printed = "" if closed else None
    process.give_up()
    assert process.killed == [4711] * kills


def test_a_process_that_lives_on_has_no_ending(made):
    process = made(slow=True, importing=False)
    assert process.ending(0.5) == (None, "")
    process._process.slow = False
    assert process.ending(0.5) == (3, "last words")


def test_the_tail_of_an_output_is_its_last_4096_bytes():
    with tempfile.TemporaryFile() as file:
        file.write(b"a" * 10 + b"b" * 4095 + b"\xff")
        assert tail(file) == "b" * 4095 + "\ufffd"
