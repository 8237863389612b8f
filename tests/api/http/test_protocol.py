"""The writes of answers: what is there in one turn of the event loop goes out together, a large part at once."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from functools import partial

import pytest
import uvicorn

from tilewise.api.http.connections import Connections
from tilewise.api.http.protocol import Protocol

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def served(app, talk, most=10):
    """Serve `app` on a free port while the coroutine `talk` uses a connection; return what `talk` returns."""
    http = partial(Protocol, peers=Connections(most))
    config = uvicorn.Config(app, http=http, loop="uvloop", lifespan="off", log_level="error", access_log=False)
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            return await asyncio.wait_for(talk(reader, writer), 10)
        finally:
            writer.close()
            server.should_exit = True
            await running


@pytest.fixture
def writes(monkeypatch):
    """The data of each write to the system, as uvicorn's protocol makes them."""
    made: list[bytes] = []
    hear(monkeypatch, made.append)
    return made


def hear(monkeypatch, told):
    """Have `told` hear of the data of each write to the system."""

    def heard(self, transport):
        class Listening:
            def __getattr__(self, name):
                return getattr(transport, name)

            def write(self, data):
                told(data)
                transport.write(data)

        original(self, Listening())

    original = Protocol.connection_made
    monkeypatch.setattr(Protocol, "connection_made", heard)


def test_head_and_body_are_one_write_for_each_of_pipelined_requests(writes):
    async def app(scope, receive, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"HTTP" if scope["path"] == "/second" else b"four"})

    async def talk(reader, writer):
        writer.write(GET + GET.replace(b"/ ", b"/second "))
        return await reader.readuntil(b"four"), await reader.readuntil(b"\r\n\r\nHTTP")

    first, second = asyncio.run(served(app, talk))
    assert writes == [first, second]


def test_a_head_that_waits_for_its_body_is_sent_at_once(writes):
    more = asyncio.Event()

    async def app(scope, receive, send):
        await send(HEAD)
        await more.wait()
        for part in (b"fo", b"ur"):
            await send({"type": "http.response.body", "body": part, "more_body": part == b"fo"})

    async def talk(reader, writer):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        more.set()
        return await reader.readexactly(4)

    assert asyncio.run(served(app, talk)) == b"four"
    assert writes[1:] == [b"four"]  # both parts were there in one turn of the event loop


def test_a_large_answer_goes_out_as_it_is_made(writes):
    part = b"x" * (16 << 10)

    async def app(scope, receive, send):
        await send({**HEAD, "headers": [(b"content-length", b"%d" % (2 * len(part)))]})
        for more in (True, False):
            await send({"type": "http.response.body", "body": part, "more_body": more})
            made.append(len(writes))

    async def talk(reader, writer):
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(2 * len(part))

    made: list[int] = []
    assert asyncio.run(served(app, talk)) == 2 * part
    assert made == [1, 2]  # nothing waits for the next turn, so a slow client slows the answer


def test_answers_of_one_turn_are_sent_one_after_the_other_once_all_are_made(monkeypatch):
    events: list[str] = []
    both = asyncio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/first":
            await both.wait()
        both.set()
        await asyncio.sleep(0)
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"four"})
        events.append("made")

    hear(monkeypatch, lambda data: events.append("sent"))

    async def talk(reader, writer):
        other_reader, other = await asyncio.open_connection(*writer.get_extra_info("peername"))
        writer.write(GET.replace(b"/ ", b"/first "))
        other.write(GET)
        answers = await asyncio.gather(reader.readuntil(b"four"), other_reader.readuntil(b"four"))
        other.close()
        return answers

    assert len(asyncio.run(served(app, talk))) == 2
    assert events == ["made", "made", "sent", "sent"]


def test_an_answer_to_a_client_that_closes_is_whole(writes):
    async def app(scope, receive, send):
        await send(HEAD)
        await send({"type": "http.response.body", "body": b"four"})

    async def talk(reader, writer):
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return await reader.read()

    answer = asyncio.run(served(app, talk))
    assert answer.endswith(b"\r\n\r\nfour")
    assert b"connection: close" in answer
