"""Connections of a supervisor's processes, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from tilewise.tuner.workers import supervisor_process
from tilewise.tuner.workers.supervisor_process import _answer, _at, _buried, _live, _Place, _Places, _serve, _told
from tilewise.tuner.workers.worker import ANSWER, ENDED, RAISED, READY


@pytest.fixture
def ends():
    mine, other = Pipe()
    yield mine, other
    mine.close(), other.close()


def test_an_end_is_told_to_one_who_reads_and_to_no_other(ends):
    mine, other = ends
    assert _told(mine, 3) is True
    assert other.recv() == (ENDED, 3)
    other.close()
    assert _told(mine, 3) is False


def test_one_who_reads_nothing_is_not_waited_for(ends):
    mine, _ = ends
    os.set_blocking(mine.fileno(), False)
    with suppress(BlockingIOError):
        while True:
            os.write(mine.fileno(), b"x" * 65536)
    assert _told(mine, 3) is False


def test_requests_are_answered_until_the_other_side_is_gone(ends):
    mine, other = ends
    me, heard = os.getpid(), []
    for request in ((me, (7, 2)), (me + 1, (1, 1)), (me, (1, 0))):
        other.send(request)

    def divide(a, b):
        if b == 0:
            heard.extend(other.recv() for _ in range(2))
            other.close()
        return a // b

    with pytest.raises(BrokenPipeError):
        _serve(mine, divide)
    assert heard == [(READY, me), (ANSWER, 3)]  # a request to an earlier process is skipped


def test_the_end_of_requests_is_the_end(ends):
    mine, other = ends
    other.close()
    mine.send = lambda message: None  # it was told before the other side left
    assert _serve(mine, len) is None


def test_an_answer_is_what_was_returned_or_how_it_failed():
    assert _answer(divmod, (7, 2)) == (ANSWER, (3, 1))
    assert _answer(divmod, (7, 0)) == (RAISED, ("ZeroDivisionError", "integer division or modulo by zero"))


def test_a_place_is_a_module_or_a_function_of_it():
    assert _at("os.path") is os.path
    assert _at("os.path:join") is os.path.join
    with pytest.raises(AttributeError):
        _at("os.path:nothing")


def exits(code):
    def leave():
        raise SystemExit(code)

    return leave


def fails():
    raise ValueError("inside")


@pytest.mark.parametrize(
    ("become", "code", "told"),
    [
        (lambda: None, 0, ""),
        (exits(3), 3, ""),
        (exits(0), 0, ""),
        (exits("a word"), 1, ""),
        (exits(None), 1, ""),
        (fails, 1, "ValueError: inside"),
    ],
)
def test_a_child_leaves_with_a_code_and_without_cleaning_up(monkeypatch, capfd, become, code, told):
    left, served = [], []
    monkeypatch.setattr(supervisor_process, "_serve", lambda *given: served.append(given))
    monkeypatch.setattr(supervisor_process, "os", SimpleNamespace(_exit=left.append))
    _live(become, "the connection", len)
    assert left == [code]
    assert served == ([("the connection", len)] if code == 0 and become.__name__ == "<lambda>" else [])
    assert told in capfd.readouterr().err


@pytest.mark.parametrize(("code", "returned"), [("raise SystemExit(3)", 3), ("import os; os.abort()", -6)])
def test_a_child_is_buried_with_its_folder(tmp_path, code, returned):
    folder = tmp_path / "of the child"
    folder.mkdir()
    (folder / "left").touch()
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _buried(_Place(None, 0, str(folder), child.pid)) == returned
    assert not folder.exists()
    child.returncode = returned


@pytest.mark.parametrize(
    ("abandoned", "told", "acts"),
    [
        (False, True, ["told 3", "forked"]),
        (False, False, ["told 3", "unregistered", "closed"]),
        (True, True, ["closed"]),
    ],
)
def test_a_child_that_ended_is_replaced_unless_nobody_wants_another(monkeypatch, abandoned, told, acts):
    done = []
    places = _Places.__new__(_Places)
    place = SimpleNamespace(abandoned=abandoned, connection=SimpleNamespace(fileno=lambda: 7))
    place.close = lambda: done.append("closed")
    places._places = {7: place}
    places._poll = SimpleNamespace(unregister=lambda number: done.append("unregistered"))
    monkeypatch.setattr(places, "_fork", lambda place: done.append("forked"))
    monkeypatch.setattr(supervisor_process, "_buried", lambda place: 3)
    monkeypatch.setattr(supervisor_process, "_told", lambda connection, code: done.append(f"told {code}") or told)
    places._replace(place)
    assert done == acts
    assert (7 in places._places) == ("forked" in acts)


def test_a_child_whose_worker_hung_up_is_killed_and_heard_no_more(monkeypatch):
    done = []
    places = _Places.__new__(_Places)
    place = SimpleNamespace(abandoned=False, connection=SimpleNamespace(fileno=lambda: 7))
    places._poll = SimpleNamespace(unregister=done.append)
    monkeypatch.setattr(supervisor_process, "_kill", done.append)
    places._abandon(place)
    assert (place.abandoned, done) == (True, [7, place])
