"""Config selectors that ask a server: one that answers, and ones that hang, fail, lie or go away."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlsplit

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Question, Result, Scope, Status, Trial
from tilewise.errors import Unavailable, UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.runtime import config_selector as choosing
from tilewise.tuner.runtime import server_client as remote
from tilewise.tuner.runtime.config_selector import ConfigSelector
from tilewise.tuner.runtime.current_device import CurrentDevice

SPEC = registry.load("row_reduce")
CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}


class Tensor:
    def get_device(self):
        return 0


def answer(dims, config=CONFIG, **changes):
    problem = Problem("row_reduce", dims, "float32")
    scope = changed(Scope(problem, source_hash(SPEC), "Ascend910B4", Clock.MEASURED, "1", 40), **changes)
    return Result(scope, Trial(config, Status.CORRECT, time_us=9.0, verified=True), None, {}, 1.0)


def neighbour(dims):
    won = answer(dims)
    untimed = Trial(CONFIG, Status.CORRECT, why="won at M=1024,N=512")
    return dataclasses.replace(won, winner=untimed, match="nearest", distance=0.1)


class Server:
    """A server whose behaviour (`manner`) can be changed while it runs."""

    def __init__(self):
        self.manner, self.asked, self.leave = "answer", [], threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.respond(self)

            def log_message(self, *args):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.handle_error = lambda *_: None  # silent: clients that hang up early are part of the tests
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def respond(self, handler):
        parts = urlsplit(handler.path)
        query = dict(parse_qsl(parts.query))
        self.asked.append(query)
        dims = {name: int(query[name]) for name in ("M", "N")}
        bodies = {
            "answer": answer(dims).to_json(),
            "other toolchain": answer(dims, toolchain="2").to_json(),
            "other parameters": answer(dims, config={"FOO": 1}).to_json(),
            "other cores": answer(dims, cores=39).to_json(),
            "other source": answer(dims, source_hash="other").to_json(),
            "other question": answer({"M": 1, "N": 1}).to_json(),
            "not JSON": b"<html>\xff",
            "no result": {"config": 3},
            "a list": [],
        }
        if self.manner == "hang":
            self.leave.wait(30)
            return
        relaxing = query["match"] in ("nearest", "portfolio")
        status = int(self.manner) if self.manner.isdigit() else 200
        if self.manner == "neighbour":
            status, bodies["neighbour"] = (200, neighbour(dims).to_json()) if relaxing else (404, {})
        kind = {429: "urn:tilewise:problem:busy", 503: "urn:tilewise:problem:database"}.get(status, "about:blank")
        body = bodies.get(self.manner, {"type": kind, "detail": "no"})
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def close(self):
        self.leave.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server():
    started = Server()
    yield started
    started.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWISE_MISSES", "off")
    monkeypatch.setattr(remote, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(remote, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(remote, "_GATHER_SECONDS", 0.02)


def selector(url, timeout=5.0, **options):
    return ConfigSelector(SPEC, url, device="Ascend910B4", timeout=timeout, **options)


def choose(choices, m):
    return choices.choose({"M": m, "N": 64}, "float32", Tensor())


def eventually(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.005)


def test_a_server_that_answers_in_time_decides_the_first_launch(server):
    choice = choose(selector(server.url), 1000)
    assert (choice.match, choice.config) == ("exact", CONFIG)
    assert server.asked == [{"M": "1000", "N": "64", "dtype": "float32", "device": "Ascend910B4", "match": "older"}]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("manner", ["hang", "500", "429", "503", "not JSON", "no result", "a list", "other question"])
def test_launches_go_on_within_the_limit_and_recover_when_the_server_does(server, manner, caplog, monkeypatch):
    monkeypatch.setattr(remote, "TIMEOUT_SECONDS", 3.0)
    server.manner = manner
    changed = []
    choices = selector(server.url, timeout=0.1, on_change=changed.append, match="older")
    choose(choices, 999)  # imports
    began = time.monotonic()
    assert choose(choices, 1000).match == "default"
    assert time.monotonic() - began < 2.0  # above the limit, for a busy machine, but below TIMEOUT_SECONDS
    eventually(lambda: "does not answer" in caplog.text)
    server.manner = "answer"
    server.leave.set()
    eventually(lambda: len(changed) == 2)
    assert {choice.match for choice in choices.choices.values()} == {"exact"}
    assert "answers again" in caplog.text


def test_a_server_that_is_away_is_not_waited_for(server):
    server.manner = "500"
    choices = selector(server.url, timeout=3.0)
    choose(choices, 1)
    eventually(lambda: choices._remote.is_away)
    began = time.monotonic()
    for m in range(2, 6):
        choose(choices, m)
    assert time.monotonic() - began < 10.0  # four times the limit would be 12


def test_answers_are_kept_for_when_the_server_is_gone(server):
    first = selector(server.url)
    choose(first, 1000)
    eventually(lambda: first._remote.copy.exists())
    url = server.url
    server.close()
    later = selector(url, timeout=0.0)
    assert choose(later, 1000).match == "exact"
    assert choose(later, 1100).match == "nearest"


def test_answers_are_kept_before_a_server_that_has_gone_is_asked_again(server, monkeypatch):
    """The process may end while it waits for the server."""
    monkeypatch.setattr(remote, "_GATHER_SECONDS", 600.0)
    choices = selector(server.url, timeout=0.0)
    server.manner = "500"
    choose(choices, 999)
    eventually(lambda: choices._remote.is_away)
    assert not choices._remote.copy.exists()  # there is nothing to keep yet
    server.manner = "answer"
    eventually(lambda: not choices._remote.is_away)
    server.manner = "500"
    choose(choices, 1000)
    eventually(choices._remote.copy.exists)
    assert choose(selector(server.url, timeout=0.0), 999).match == "exact"


def test_answers_that_cannot_be_kept_are_used_all_the_same(server, caplog, tmp_path):
    (tmp_path / "cache").write_text("")
    choices = selector(server.url)
    assert choose(choices, 1000).match == "exact"
    eventually(lambda: f"cannot save the server's answers to {choices._remote.copy}: " in caplog.text)
    assert choose(choices, 1100).match == "exact"


def test_a_copy_that_is_damaged_is_as_if_there_were_none(server, caplog):
    first = selector(server.url)
    first._remote.copy.parent.mkdir(parents=True)
    first._remote.copy.write_bytes(b"{damaged")
    second = selector(server.url)
    assert "continuing without tuned configs" in caplog.text
    assert choose(second, 1000).match == "exact"


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("manner", "asked"),
    [("404", ["older", "portfolio"]), ("other source", ["older"]), ("other parameters", ["older"]), ("401", ["older"])],
)
def test_what_the_server_has_no_answer_to_is_chosen_here_and_asked_once(server, manner, asked):
    server.manner = manner
    choices = selector(server.url, timeout=20.0)
    choose(selector("nowhere.json"), 1)  # imports
    began = time.monotonic()
    assert choose(choices, 1000).match == "predicted"
    assert choose(choices, 1000).match == "predicted"
    assert time.monotonic() - began < 10.0  # "not found" is an answer: no retries
    assert [query["match"] for query in server.asked] == asked
    assert not choices._remote.is_away


def test_a_shape_that_nobody_tuned_gets_what_the_server_has_nearest(server):
    server.manner = "neighbour"
    choices = selector(server.url)
    choice = choose(choices, 1000)
    assert (choice.match, choice.config, choice.why) == ("nearest", CONFIG, "won at M=1024,N=512")
    assert choose(selector(server.url, match="older"), 1000).match == "default"
    assert choose(selector(server.url, match="nearest"), 1000).match == "nearest"
    assert [query["match"] for query in server.asked] == ["older", "portfolio", "older", "older", "nearest"]
    server.manner = "answer"
    later = selector(server.url)
    assert choose(later, 1000).match == "exact"  # the guess was not kept


def local(monkeypatch, toolchain="1", cores=40):
    """Put the tensors on a chip of this process."""
    here = CurrentDevice(known_target("Ascend910B4", cores), toolchain)
    monkeypatch.setattr(choosing, "current_device", lambda tensor: here)


@pytest.mark.parametrize(("manner", "match"), [("answer", "exact"), ("other toolchain", "older")])
def test_another_toolchain_than_that_of_this_process_is_named(server, monkeypatch, manner, match):
    local(monkeypatch)
    server.manner = manner
    assert choose(ConfigSelector(SPEC, server.url, timeout=5.0), 1000).match == match
    assert server.asked[0]["toolchain"] == "1"
    assert choose(ConfigSelector(SPEC, server.url, timeout=5.0, match="exact"), 2000).match == (
        "exact" if match == "exact" else "default"
    )


def test_a_chip_with_another_number_of_cores_is_refused(server, monkeypatch):
    local(monkeypatch)
    server.manner = "other cores"
    assert choose(ConfigSelector(SPEC, server.url, timeout=5.0), 1000).match == "predicted"
    assert choose(selector(server.url), 1000).match == "exact"  # any core count, as the device is given by name


def test_what_is_kept_is_launched_with_at_once_and_brought_up_to_date_for_the_next_process(server):
    first = selector(server.url)
    choose(first, 1000)
    eventually(lambda: first._remote.copy.exists())
    server.manner = "hang"
    second = selector(server.url, timeout=20.0)
    began = time.monotonic()
    assert choose(second, 1000).match == "exact"
    assert time.monotonic() - began < 15.0
    eventually(lambda: len(server.asked) == 2)


def test_a_server_that_refuses_is_one_line_of_the_log(server, caplog):
    server.manner = "401"
    choices = selector(server.url, match="nearest")
    for m in range(1000, 1005):
        choose(choices, m)
    eventually(lambda: len(server.asked) == 5)
    assert caplog.text.count("refuses") == 1


def test_threads_that_meet_new_shapes_at_once_wait_no_longer_than_one(server):
    server.manner = "hang"
    choices = selector(server.url, timeout=1.0)
    choose(selector("nowhere.json"), 1)  # imports
    began = time.monotonic()
    threads = [threading.Thread(target=choose, args=(choices, m)) for m in range(2, 18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 10.0  # 16 in turn would be 16
    assert len(choices.choices) == 16


@pytest.fixture
def told(server, monkeypatch):
    """Values of M that a server is told of by programs that launch from a file."""
    monkeypatch.setenv("TILEWISE_MISSES_SERVER", server.url)
    return lambda: [int(query["M"]) for query in server.asked]


def test_nobody_is_told_of_guesses_unless_the_user_names_a_server(server):
    before = set(threading.enumerate())
    choose(selector("nowhere.json"), 1000)
    assert not set(threading.enumerate()) - before
    assert server.asked == []


def test_a_server_that_the_user_names_is_told_of_each_guess_once_and_decides_nothing(server, told):
    choices = selector("nowhere.json")
    for m in (1000, 2000, 1000):
        assert choose(choices, m).match == "predicted"
    eventually(lambda: sorted(told()) == [1000, 2000])
    assert server.asked[0]["match"] == "exact"
    assert {choice.match for choice in choices.choices.values()} == {"predicted"}
    assert choices._misses_server.copy is None


@pytest.mark.in_part(1)
@pytest.mark.parametrize("manner", ["hang", "500", "not JSON"])
def test_a_server_that_fails_keeps_no_launch_waiting_and_is_told_later(server, told, manner, monkeypatch):
    monkeypatch.setattr(remote, "TIMEOUT_SECONDS", 3.0)
    server.manner = manner
    choices = selector("nowhere.json", match="nearest")  # without the time that the prior takes
    choose(choices, 999)  # imports
    began = time.monotonic()
    for m in range(1000, 1005):
        choose(choices, m)
    assert time.monotonic() - began < 10.0  # five times TIMEOUT_SECONDS would be 15
    server.asked.clear()
    server.manner = "404"
    server.leave.set()
    eventually(lambda: set(told()) >= set(range(1000, 1005)))


def test_more_guesses_than_may_wait_are_not_told(server, told, monkeypatch):
    server.manner = "hang"
    monkeypatch.setattr(remote, "_WAITING", 2)
    choices = selector("nowhere.json", match="nearest")
    for m in range(1000, 1006):
        choose(choices, m)
    assert choices._misses_server._queries.qsize() <= 2


def test_a_cache_that_is_the_server_itself_is_not_told_twice(server, told):
    server.manner = "404"
    choose(selector(server.url), 1000)
    time.sleep(0.1)
    assert [query["match"] for query in server.asked] == ["older", "portfolio"]


def test_a_server_must_have_an_address(monkeypatch):
    monkeypatch.setenv("TILEWISE_MISSES_SERVER", "tiles.example")
    with pytest.raises(UsageError, match=r"TILEWISE_MISSES_SERVER is 'tiles\.example'; expected the URL"):
        selector("nowhere.json")


def test_pauses_double_up_to_the_longest(monkeypatch):
    """Clients of earlier tests may still retry in threads of their own: their pauses do not count."""
    pauses, here = [], threading.get_ident()

    def sleep(seconds):
        if threading.get_ident() == here:
            pauses.append(seconds)

    client = remote.ServerClient("http://127.0.0.1:9", None)
    answers = iter([*[OSError] * 5, None])

    def answer(query):
        if next(answers):
            raise Unavailable("away")

    monkeypatch.setattr(client, "_answer", answer)
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(remote, "_LONGEST_PAUSE", 0.2)
    assert client._fetch(None) is None
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.2])


def test_an_answer_that_cannot_be_used_is_logged_and_the_next_is(server, caplog):
    client, used = remote.ServerClient(server.url, None), []
    problem = Problem("row_reduce", {"M": 1000, "N": 64}, "float32")

    def broken(result):
        raise RuntimeError("no launch")

    for then in (broken, used.append):
        client.ask(remote.ServerQuery(Question(problem, "Ascend910B4"), source_hash(SPEC), Match.EXACT, then=then))
    eventually(lambda: used)
    assert used[0].winner.config == CONFIG
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.getMessage() == f"failed to use an answer of {server.url}"
    assert str(record.exc_info[1]) == "no launch"


def test_the_pauses_and_limits_that_launches_depend_on():
    assert (remote.TIMEOUT_SECONDS, remote._WAITING) == (5.0, 10_000)


def test_a_late_answer_does_not_part_a_process_from_those_that_it_shares_choices_with(server, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CHOICES", str(tmp_path / "choices.jsonl"))
    first = selector(server.url, timeout=0.0)
    monkeypatch.setattr(first, "_server", "")
    server.manner = "hang"
    agreed = choose(first, 1000)
    server.manner = "answer"
    server.leave.set()
    eventually(lambda: first._remote.copy.exists())
    assert choose(first, 1000) is agreed and agreed.match == "predicted"
    other = selector(server.url)
    assert choose(other, 1000).config == agreed.config and choose(other, 1000).match == "predicted"
