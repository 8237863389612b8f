"""Slow and many connections: none of them keeps others from being answered."""

from __future__ import annotations

import asyncio
import math
import resource
import socket
from contextlib import ExitStack, suppress
from functools import partial
from types import SimpleNamespace

import httpx2
import pytest
import uvicorn

from tilewise.api.http import connections, protocol
from tilewise.api.http.connections import Connections, _to_drop, most_connections
from tilewise.api.http.protocol import Protocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: "
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
LARGE = b"x" * (32 << 20)


async def app(scope, receive, send):
    body = LARGE if scope["path"] == "/large" else b"four"
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    for start in range(0, len(body), 1 << 16):
        await send({"type": "http.response.body", "body": body[start : start + (1 << 16)], "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def served():
    """A function that runs a coroutine beside a server of `app`, which has few connections."""

    async def serve(talk, most):
        http = partial(Protocol, peers=Connections(most))
        config = uvicorn.Config(app, http=http, loop="uvloop", lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            running = asyncio.create_task(server.serve(sockets=[listener]))
            connect = partial(asyncio.open_connection, *listener.getsockname())
            try:
                return await asyncio.wait_for(talk(connect), 30)
            finally:
                server.should_exit = server.force_exit = True
                await running

    return lambda talk, most=10: asyncio.run(serve(talk, most))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connections, "_SWEEP_SECONDS", 0.02)
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "READ_SECONDS"):
        monkeypatch.setattr(protocol, name, 0.2)


@pytest.mark.parametrize("sent", [HALF, POST, POST + b"x", GET + HALF])
def test_a_request_that_does_not_arrive_is_ended_with_408(served, impatient, sent):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(sent)
        return await reader.read()

    *before, last = served(talk).split(b"HTTP/1.1 ")[1:]
    assert last.startswith(b"408 ")
    assert [answer[:3] for answer in before] == [b"200"] * sent.startswith(GET)


@pytest.mark.parametrize("sent", [b"", b"\r\n", GET, GET + b"\r\n"])
def test_a_connection_without_a_request_is_closed(served, impatient, sent):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(sent)
        return await reader.read()

    assert b"408" not in served(talk).partition(b"four")[0]


def test_a_body_that_arrives_at_some_rate_is_read_to_its_end(served, impatient, monkeypatch):
    monkeypatch.setattr(protocol, "_LEAST_RATE", 50_000.0)

    async def talk(connect):
        reader, writer = await connect()
        writer.write(POST)
        for _ in range(10):
            await asyncio.sleep(0.05)
            writer.write(b"x" * 10_000)
        return await reader.readline()

    assert served(talk) == b"HTTP/1.1 200 OK\r\n"


def test_a_body_in_drips_is_given_up(served, impatient):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(POST)
        with suppress(ConnectionError):
            while not reader.at_eof() and b"HTTP" not in bytes(reader._buffer):
                writer.write(b"x")
                await asyncio.sleep(0.02)
        return await reader.readline()

    assert b" 408 " in served(talk)


def test_an_endless_head_is_refused(served):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(HALF)
        for _ in range(20):
            writer.write(b"x" * 10_000)
        return await reader.readline()

    assert b" 431 " in served(talk)


def test_an_answer_that_is_not_read_ends_its_connection(served, impatient):
    async def talk(connect):
        reader, writer = await connect()
        writer.write(GET.replace(b"/ ", b"/large "))
        await asyncio.sleep(0.6)
        with suppress(ConnectionError):
            return len(await reader.read())

    assert (served(talk) or 0) < len(LARGE)


def test_where_there_is_no_room_those_who_wait_leave_it_to_new_ones(served):
    """The address with the most waiting connections loses some, and of those the ones without a request so far."""

    async def talk(connect):
        kept = await connect(local_addr=("127.0.0.2", 0))
        asked = await connect()
        asked[1].write(GET)
        await asked[0].readuntil(b"four")
        half_open = [await connect() for _ in range(30)]
        for _, writer in half_open:
            writer.write(HALF)
        await asyncio.sleep(0.1)
        for reader, writer in (kept, asked, await connect()):
            writer.write(GET)
            assert (await reader.readuntil(b"four")).startswith(b"HTTP/1.1 200")

    served(talk, most=20)


def test_the_limit_of_open_files_is_raised_and_leaves_some_for_databases():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        most = most_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], 1 << 16)
        assert 0 < most <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 128
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("limits", "raised", "most"),
    [
        ((1024, 4096), (4096, 4096), 4096 - 128),
        ((4096, 4096), None, 4096 - 128),
        ((1024, 1 << 20), (1 << 16, 1 << 20), (1 << 16) - 128),
        ((1024, resource.RLIM_INFINITY), (1 << 16, resource.RLIM_INFINITY), (1 << 16) - 128),
        ((1 << 20, 1 << 20), None, (1 << 20) - 128),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, (1 << 16) - 128),
        ((200, 200), None, 100),  # at least half are for connections
    ],
)
def test_files_are_raised_to_the_hard_limit_up_to_65536_and_128_are_kept(limits, raised, most, monkeypatch):
    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda what, pair: found.append(pair))
    assert most_connections() == most
    assert found == ([] if raised is None else [raised])


def test_those_dropped_are_of_the_busiest_address_first_new_ones_and_then_the_oldest():
    def waiting(address, is_new, deadline):
        return SimpleNamespace(address=address, is_new=is_new, deadline=deadline)

    alone = waiting("a", True, 1.0)
    many = [waiting("b", False, 2.0), waiting("b", True, 9.0), waiting("b", True, 3.0)]
    assert _to_drop([alone, *many], 4) == [many[2], many[1], many[0], alone]
    assert _to_drop([alone, *many], 1) == [many[2]]


class Peer(SimpleNamespace):
    """A connection, which is equal to itself only."""

    __eq__, __hash__ = object.__eq__, object.__hash__


@pytest.mark.parametrize(("most", "dropped"), [(16, 1), (32, 2), (3, 1)])
def test_at_the_limit_a_sixteenth_of_the_connections_makes_room(most, dropped):
    gone = []

    def connection(number, deadline=5.0):
        found = Peer(address="a", is_new=True, deadline=deadline)
        found.drop = lambda: gone.append(number)
        return found

    async def fill(deadline):
        peers = Connections(most)
        for number in range(most + 1):
            peers.add(connection(number, deadline + number))

    asyncio.run(fill(5.0))
    assert gone == [*range(dropped)]
    gone.clear()
    asyncio.run(fill(math.inf))  # the server works for all of them
    assert gone == [most]


def test_a_server_with_few_files_answers_among_more_half_open_requests(serve, tune, address):
    tune()
    port = int(address(serve("--no-jobs", files=256)).rpartition(":")[2])
    with ExitStack() as stack:
        for _ in range(400):
            half_open = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            with suppress(ConnectionError):
                half_open.sendall(HALF)
        path = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            assert client.get(path).status_code == client.get("/readyz").status_code == 200


def test_a_forwarded_address_is_believed_from_named_proxies_only(serve, address):
    def refusals(*arguments):
        url = address(serve("--no-jobs", *arguments))
        with httpx2.Client(base_url=url) as client:
            return [
                client.post(
                    "/v1/jobs", headers={"authorization": "Bearer no", "x-forwarded-for": f"192.0.2.{n}"}
                ).status_code
                for n in range(62)
            ]

    assert refusals() == [401] * 60 + [429] * 2
    assert refusals("--trusted-proxy", "127.0.0.0/8") == [401] * 62
