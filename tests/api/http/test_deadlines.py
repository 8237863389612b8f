"""The time by which a client has to do something, after each event of its connection."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tilewise.api.http.protocol import _TOO_LARGE, _TOO_SLOW, Protocol

EVENTS = (
    *("connection_made", "data_received", "pause_writing", "resume_writing", "on_message_begin"),
    *("on_headers_complete", "on_body", "on_message_complete", "on_response_complete"),
)
RUNNING = SimpleNamespace(response_started=False, response_complete=False)
ANSWERING = SimpleNamespace(response_started=True, response_complete=False)
DONE = SimpleNamespace(response_started=True, response_complete=True)


class Transport:
    """A transport that notes what is done with it."""

    def __init__(self):
        self.done, self.closing = [], False

    def is_closing(self):
        return self.closing

    def write(self, data):
        self.done.append(data)

    def close(self):
        self.done.append("close")

    def abort(self):
        self.done.append("abort")


@pytest.fixture
def connection(monkeypatch):
    """A new connection at the time 100; only this project's part of the protocol runs."""
    for event in EVENTS:
        monkeypatch.setattr(HttpToolsProtocol, event, lambda *given: None)
    made = object.__new__(Protocol)
    made.loop, made.transport, made.cycle = SimpleNamespace(time=lambda: 100.0), Transport(), None
    made._peers = set()
    made.connection_made(made.transport)
    assert made in made._peers
    return made


def at(connection, time):
    connection.loop.time = lambda: time


def test_a_head_has_ten_seconds_from_the_start_of_the_connection_and_from_its_own(connection):
    assert connection.deadline == 110.0
    at(connection, 105.0)
    connection.on_message_begin()
    assert connection.deadline == 115.0


def test_a_body_may_pause_for_thirty_seconds_and_arrives_at_a_thousand_bytes_a_second_on_average(connection):
    connection.on_message_begin()
    connection.on_headers_complete()
    assert connection.deadline == 130.0
    at(connection, 110.0)
    connection.on_body(b"x" * 5000)
    assert connection.deadline == 135.0  # of the whole body: 30 s, and 5 s for what has arrived
    connection.on_body(b"x" * 50_000)
    assert connection.deadline == 140.0  # of its next piece
    connection.on_message_complete()
    assert connection.deadline == 120.0


@pytest.mark.parametrize(
    ("cycle", "deadline"), [(None, 110.0), (RUNNING, math.inf), (ANSWERING, math.inf), (DONE, 110.0)]
)
@pytest.mark.parametrize("event", ["on_message_complete", "on_response_complete", "resume_writing"])
def test_a_client_need_do_nothing_until_its_answer_is_complete(connection, event, cycle, deadline):
    connection.cycle, connection.deadline = cycle, 7.0
    getattr(connection, event)()
    assert connection.deadline == deadline


@pytest.mark.parametrize("event", ["on_response_complete", "resume_writing"])
def test_an_answer_that_comes_before_the_end_of_the_body_leaves_the_bodys_time(connection, event):
    connection.on_headers_complete()
    connection.cycle = DONE
    getattr(connection, event)()
    assert connection.deadline == 130.0


def test_an_answer_has_to_be_read_within_a_minute(connection):
    connection.pause_writing()
    assert connection.deadline == 160.0


@pytest.mark.parametrize(
    ("begun", "cycle", "done"),
    [
        ((), None, ["close"]),
        (("on_message_begin",), None, [_TOO_SLOW, "close"]),
        (("on_message_begin", "on_headers_complete"), RUNNING, [_TOO_SLOW, "close"]),
        (("on_message_begin", "on_headers_complete"), ANSWERING, ["close"]),
        (("on_message_begin",), DONE, [_TOO_SLOW, "close"]),
        (("on_message_begin", "on_headers_complete", "on_message_complete"), RUNNING, ["close"]),
    ],
)
def test_a_client_is_told_that_it_is_too_slow_if_it_has_begun_a_request_that_is_not_being_answered(
    connection, begun, cycle, done
):
    for event in begun:
        getattr(connection, event)()
    connection.cycle = cycle
    connection.expire()
    assert (connection.transport.done, connection.deadline) == (done, 160.0)
    connection.transport.closing = True
    connection.expire()
    assert connection.transport.done == [*done, "abort"]


def test_a_head_of_more_than_64_kib_is_refused_once_and_bytes_of_a_body_do_not_count(connection):
    connection.data_received(b"x" * 65_536)
    assert connection.transport.done == []
    connection.data_received(b"x")
    assert connection.transport.done == [_TOO_LARGE, "close"]
    connection.transport.closing = True
    connection.data_received(b"x")
    assert connection.transport.done == [_TOO_LARGE, "close"]


def test_the_count_of_a_heads_bytes_begins_anew_with_each_request(connection):
    for _ in range(3):
        connection.data_received(b"x" * 40_000)
        connection.on_headers_complete()
        connection.data_received(b"x" * 40_000)
        connection.on_message_complete()
    assert connection.transport.done == []


def test_a_connection_is_new_until_it_had_a_request_and_known_by_its_clients_address(connection):
    assert connection.is_new
    connection.cycle, connection.client = RUNNING, ("192.0.2.1", 7)
    assert not connection.is_new
    assert connection.address == "192.0.2.1"
    connection.client = None
    assert connection.address == ""
