"""`tilewise serve` as a separate process on a free port of the loopback interface."""

from __future__ import annotations

import asyncio
import json
import platform
import signal
import socket
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
import uvloop

from tilewise.api import server
from tilewise.api.server import listeners


def test_it_serves_what_is_stored_and_creates_a_database_where_there_is_none(serve, tune, tmp_path, address):
    url = address(serve())
    assert (tmp_path / "tilewise.db").exists()
    question = f"{url}/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
    assert httpx2.get(question, timeout=60).status_code == 404
    tune()
    assert httpx2.get(question, timeout=60).json()["config"]["BLOCK_SIZE_M"] == 25
    assert httpx2.get(f"{url}/readyz", timeout=60).json() == {"status": "ok"}


@pytest.mark.in_part(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly(serve, number, code, address):
    process = serve()
    httpx2.get(f"{address(process)}/healthz", timeout=60)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert stdout == ""
    assert "Traceback" not in stderr


def test_json_gives_the_address_on_stdout_and_nothing_else(serve, address):
    process = serve("--json")
    url = address(process)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=120)
    assert json.loads(stdout) == {"url": url}


def test_a_port_in_use_is_one_line_and_a_failure(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve("--port", str(port))
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in stderr


def test_a_database_that_is_none_is_one_line_and_a_failure(serve, tmp_path):
    (tmp_path / "tilewise.db").write_text("this is a text file, not a database\n" * 100)
    process = serve()
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (1, "")
    assert stderr.count("\n") == 1
    assert "tilewise.db is not a database" in stderr


def test_the_command_line_asks_a_server(serve, tune, address):
    tune()
    url = address(serve())

    tilewise = str(Path(sysconfig.get_path("scripts")) / "tilewise")

    def look_up(*words):
        command = [tilewise, "lookup", "row_reduce", "--device", "Ascend910B4", "--server", url, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = look_up("-s", "M=1000,N=8192")
    assert done.returncode == 0, done.stderr
    assert "31.50 us (modelled)" in done.stdout
    assert "BLOCK_SIZE_M=25" in done.stdout
    done = look_up("-s", "M=1000,N=8192", "-s", "M=7,N=8192", "--json")
    assert done.returncode == 4
    assert [bool(result["config"]) for result in json.loads(done.stdout)["results"]] == [True, False]
    assert "is not tuned for Ascend910B4" in done.stderr
    done = look_up("-s", "M=1000,N=8190", "--match", "nearest")
    assert "not timed" in done.stdout
    assert look_up("-s", "M=1,N=1", "--db", "sqlite://").returncode == 2


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"]])
def test_a_process_serves_without_naming_its_server_and_gives_its_handler_of_sigterm_back(proxies, monkeypatch):
    def handler(number, frame):
        raise AssertionError("SIGTERM ends uvicorn, which raises it again when it is done")

    made = []

    class Server:
        def __init__(self, config, ready):
            made.append(config)

        def run(self, sockets):
            assert len(sockets) == 16
            assert sys.getswitchinterval() == pytest.approx(0.001)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(server, "_Server", Server)
    monkeypatch.setattr(server, "create_app", lambda *given: given)
    monkeypatch.setattr(server, "one_arena", lambda: made.append("one arena"))
    monkeypatch.setattr(server, "most_connections", lambda: 7)
    interval, before = sys.getswitchinterval(), signal.signal(signal.SIGTERM, handler)
    try:
        with socket.create_server(("127.0.0.1", 0)) as port:
            server.run("sqlite://", [port], made.append, proxies=proxies)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, before)
    arena, config = made
    assert arena == "one arena"
    assert (config.proxy_headers, config.forwarded_allow_ips) == (bool(proxies), proxies)
    assert (config.server_header, config.access_log, config.log_config) == (False, False, None)
    assert (config.loop, config.lifespan, config.timeout_graceful_shutdown) == ("uvloop", "on", 5)
    assert config.app[0] == "sqlite://"


@pytest.mark.parametrize(
    ("name", "url"),
    [(("127.0.0.1", 80), "http://127.0.0.1:80"), (("::1", 8000, 0, 0), "http://[::1]:8000")],
)
def test_the_address_of_a_server_is_a_url(name, url):
    assert server._url(SimpleNamespace(getsockname=lambda: name)) == url


def test_connections_that_come_at_once_are_accepted_within_a_few_turns_of_the_event_loop():
    accepted = []

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport):
            accepted.append(transport)

    async def turns_to_accept(many):
        loop, turns = asyncio.get_running_loop(), 0
        with socket.create_server(("127.0.0.1", 0), backlog=2 * many) as listener, ExitStack() as opened:
            for each in listeners(listener):
                await loop.create_server(Accepting, sock=each, backlog=2 * many)
            for _ in range(many):
                opened.enter_context(socket.create_connection(listener.getsockname(), timeout=60))
            while len(accepted) < many:
                await asyncio.sleep(0)
                turns += 1
            return turns

    assert uvloop.run(turns_to_accept(64)) < 16


ARENAS = """
import ctypes, sys, threading
from tilewise.api.server import one_arena
if "one" in sys.argv:
    one_arena()
together = threading.Barrier(8)
def allocate():
    kept = [bytes(1000 + n) for n in range(100)]
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.full
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator has arenas")
def test_threads_of_the_service_share_one_heap():
    def arenas(*words):
        done = subprocess.run([sys.executable, "-c", ARENAS, *words], capture_output=True, text=True, check=True)
        return done.stderr.count("Arena ")

    assert arenas("one") == 1 < arenas()


@pytest.mark.parametrize("library", ["glibc", "another"])
def test_all_threads_allocate_from_one_heap_where_the_c_library_can(library, monkeypatch):
    made = []
    functions = {"mallopt": lambda *given: made.append(given)} if library == "glibc" else {}
    monkeypatch.setattr(server.ctypes, "CDLL", lambda name: SimpleNamespace(**functions))
    server.one_arena()
    assert made == ([(-8, 1)] if functions else [])  # M_ARENA_MAX of malloc.h
