"""The speed of the service over databases of several sizes, against a bare Starlette application.

`wrk` sends the requests. Each round loads the yardstick and then each database's server, so that other work of the
machine affects all alike. The look-ups of a round are of `_HOT` problems, drawn evenly from all that are stored and
looked up once before: databases differ only in the number of other problems.

First-time look-ups are of problems drawn from all, with their parameters in an order in which they were not given
before: answers are kept in memory by the query text, so each of these goes to the database. Their rounds load the
yardstick too. The database is read once before each, so that the operating system has it in memory.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import httpx2

from tilewise.benchmarks.common.header import service_header
from tilewise.benchmarks.common.many import DEVICE, KERNEL, fill, shapes
from tilewise.db.records import Dims
from tilewise.errors import Unavailable
from tilewise.tuner.lookup.resolve import Match

__all__ = ["bench_serve", "serving"]

_HOT = 1000
_UNSEEN_A_SECOND = 15_000
"""More than are answered; a run that gets to the end of its look-ups fails."""

_NEAREST = 300
_LARGEST_EXPORT = 100_000
_START_SECONDS = 60.0

_Run = dict[str, float]
"""The result of one run of wrk: requests per second, and percentiles in milliseconds."""

_SCRIPT = """
local targets = {}
for line in io.lines("%s") do targets[#targets + 1] = wrk.format("GET", line) end
local at = 0
request = function() at = at %% #targets + 1; return targets[at] end
"""


def bench_serve(
    sizes: Sequence[int],
    *,
    seconds: int,
    connections: int,
    rounds: int,
    say: Callable[[str], None],
    workers: int = 1,
) -> dict[str, Any]:
    """Run the benchmark and return its JSON, a row for each database size; raise `Unavailable` without `wrk`.

    With several `workers`, each round also loads a server of so many processes on the same database.
    """
    if shutil.which("wrk") is None:
        raise Unavailable("wrk is not installed; install it (Debian package: wrk)")
    with tempfile.TemporaryDirectory(prefix="tilewise-serve-") as name, _hello() as hello, ExitStack() as servers:
        folder = Path(name)
        for count in sizes:
            say(f"storing {count} problems")
            fill(_url(folder, count), count)
        os.sync()  # otherwise the disk is still busy while look-ups are timed
        started = [servers.enter_context(_started(folder, count, say)) for count in sizes]
        several = [servers.enter_context(_several(one, workers)) for one in started] if workers > 1 else []
        load = _Load(folder, seconds, connections)
        runs: list[list[_Run]] = []
        shared: list[list[_Run]] = []
        for turn in range(1, rounds + 1):
            say(f"round {turn} of {rounds}")
            runs.append([load.run(hello, ["/"]), *(load.run(one.address, one.hot) for one in started)])
            shared.append([load.run(address, one.hot) for address, one in zip(several, started, strict=False)])
        rows = []
        for index, one in enumerate(started, 1):
            say(f"{one.count} problems: other requests")
            pairs = [(run[0], run[index]) for run in runs]
            warm = _resident_mb(one.process)
            unseen = _unseen(one, load, hello, rounds)
            row = {**_head(folder, one.count), **_rates(pairs), **one.first, **unseen, **_others(one, warm)}
            if several:
                both = [(run[index], other[index - 1]) for run, other in zip(runs, shared, strict=True)]
                row["several"] = {"workers": workers, **_against_one(both)}
            rows.append(row)
    stored = " ".join(f"--problems {size}" for size in sizes)
    command = f"tilewise bench serve {stored} --seconds {seconds} --connections {connections} --rounds {rounds}"
    command += f" --workers {workers}" if workers > 1 else ""
    return {
        **service_header(command),
        "workers": 1,
        "connections": connections,
        "hot_problems": _HOT,
        "rows": rows,
    }


@dataclass(frozen=True)
class _Started:
    """A database's server that has answered. `hot` are URLs; `first` are the times measured right after the start."""

    count: int
    file: Path
    address: str
    process: int
    client: httpx2.Client
    stored: Sequence[Dims]
    hot: Sequence[str]
    first: Mapping[str, float]
    empty_mb: int


def _url(folder: Path, count: int) -> str:
    return f"sqlite:///{folder / f'{count}.db'}"


@contextmanager
def _started(folder: Path, count: int, say: Callable[[str], None]) -> Iterator[_Started]:
    stored = shapes(count)
    hot = [_target(dims) for dims in random.Random(1).sample(stored, min(_HOT, count))]
    say(f"{count} problems: first answer")
    with (
        serving(_url(folder, count)) as (address, process, began),
        httpx2.Client(base_url=address, timeout=_START_SECONDS) as client,
    ):
        _expect(client, hot[0])
        answered, empty = time.monotonic() - began, _resident_mb(process.pid)
        [near] = _nearest(client, stored, 1)
        far = _portfolio(client)
        for target in hot:
            _expect(client, target)
        first = {
            "first_answer_s": round(answered, 3),
            "nearest_at_once_s": round(near, 3),
            "portfolio_at_once_s": round(far, 3),
        }
        yield _Started(count, folder / f"{count}.db", address, process.pid, client, stored, hot, first, empty)


@contextmanager
def _several(one: _Started, workers: int) -> Iterator[str]:
    """Run a server of several processes on the database of `one`; yield its address once each knows the answers."""
    with serving(_url(one.file.parent, one.count), workers=workers) as (address, *_):
        for _turn in range(4 * workers):  # on a connection each, which the kernel deals to the processes
            with httpx2.Client(base_url=address, timeout=_START_SECONDS) as client:
                for target in one.hot:
                    _expect(client, target)
        yield address


def _against_one(pairs: Sequence[tuple[_Run, _Run]]) -> dict[str, Any]:
    """Return the rates of a server of several processes beside those of one process in the same rounds."""
    return {
        "per_second": round(statistics.median(run["per_second"] for _, run in pairs)),
        "ratio_to_one": round(statistics.median(run["per_second"] / one["per_second"] for one, run in pairs), 3),
        "p50_ms": statistics.median(run["p50_ms"] for _, run in pairs),
        "p99_ms": max(run["p99_ms"] for _, run in pairs),
        "rounds": [run for _, run in pairs],
    }


def _head(folder: Path, count: int) -> dict[str, Any]:
    return {"problems": count, "database_mb": round((folder / f"{count}.db").stat().st_size / 1e6, 1)}


def _rates(pairs: Sequence[tuple[_Run, _Run]]) -> dict[str, Any]:
    """Return the rates of the yardstick and the server in the same rounds."""
    return {
        "hello_per_second": round(statistics.median(hello["per_second"] for hello, _ in pairs)),
        "per_second": round(statistics.median(run["per_second"] for _, run in pairs)),
        "ratio": round(statistics.median(run["per_second"] / hello["per_second"] for hello, run in pairs), 3),
        "p50_ms": statistics.median(run["p50_ms"] for _, run in pairs),
        "p99_ms": max(run["p99_ms"] for _, run in pairs),
        "hello_p99_ms": max(hello["p99_ms"] for hello, _ in pairs),
        "rounds": [{"hello": hello, "server": run} for hello, run in pairs],
    }


def _unseen(one: _Started, load: _Load, hello: str, rounds: int) -> dict[str, Any]:
    """Measure first-time look-ups, in rounds with the yardstick."""
    many = load.seconds * _UNSEEN_A_SECOND
    words = _other_words(random.Random(2).sample(one.stored, min(many * rounds, one.count)))
    pairs = []
    for _ in range(rounds):
        yardstick = load.run(hello, ["/"])
        _read_through(one.file)
        pairs.append((yardstick, load.run(one.address, list(islice(words, many)), once=True)))
    rates = _rates(pairs)
    return {
        "unseen_per_second": rates["per_second"],
        "unseen_ratio": rates["ratio"],
        "unseen_p50_ms": rates["p50_ms"],
        "unseen_p99_ms": rates["p99_ms"],
        "unseen_hello_per_second": rates["hello_per_second"],
        "unseen_hello_p99_ms": rates["hello_p99_ms"],
        "unseen_rounds": rates["rounds"],
    }


def _read_through(file: Path) -> None:
    """Read the file once, so that the operating system has it in memory."""
    with file.open("rb") as opened:
        while opened.read(1 << 24):
            pass


def _others(one: _Started, warm: int) -> dict[str, Any]:
    """Measure nearest look-ups, the export and memory; `warm` is the memory after the rounds."""
    near = sorted(_nearest(one.client, one.stored, _NEAREST))
    exported = {"export": _export(one.client, one.process)} if one.count <= _LARGEST_EXPORT else {}
    return {
        "nearest_p50_ms": round(1e3 * near[len(near) // 2], 3),
        "nearest_p99_ms": round(1e3 * near[int(len(near) * 0.99)], 3),
        **exported,
        "memory_mb": {"first_answer": one.empty_mb, "hot": warm, "after_all": _resident_mb(one.process)},
    }


class _Load:
    """Rounds of requests by wrk, with one thread."""

    def __init__(self, folder: Path, seconds: int, connections: int) -> None:
        self._folder, self.seconds, self._connections = folder, seconds, connections

    def run(self, address: str, targets: Sequence[str], *, once: bool = False) -> _Run:
        """Request the targets in turn, from the first again after the last unless `once` is set."""
        listed = self._folder / "targets"
        listed.write_text("\n".join(targets) + "\n")
        script = self._folder / "targets.lua"
        script.write_text(_SCRIPT % listed)
        arguments = ["-t1", f"-c{self._connections}", f"-d{self.seconds}", "--latency", "-s", str(script), address]
        done = subprocess.run(["wrk", *arguments], capture_output=True, text=True, check=True)
        if found := re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: .*", done.stdout):
            raise Unavailable(f"the benchmark's requests failed: {found[0]}")
        rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
        made = re.search(r"(\d+) requests in", done.stdout)
        assert rate is not None and made is not None, done.stdout
        if once and int(made[1]) + self._connections > len(targets):
            raise Unavailable(f"the {len(targets)} first-time look-ups were not enough; raise _UNSEEN_A_SECOND")
        percent = {f"p{name}_ms": _milliseconds(done.stdout, name) for name in ("50", "99")}
        return {"per_second": float(rate[1]), **percent}


def _milliseconds(text: str, percentile: str) -> float:
    found = re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)\b", text)
    assert found is not None, text
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def _target(dims: Dims) -> str:
    return f"/v1/configs/{KERNEL}?{'&'.join(_parameters(dims))}"


def _other_words(stored: Sequence[Dims]) -> Iterator[str]:
    """Yield URLs of the problems, none of which `_target` uses, each once."""
    for match, order in product(Match, permutations(range(len(_parameters(stored[0])) + 1))):
        for dims in stored:
            given = [*_parameters(dims), f"match={match}"]  # what is stored is the exact answer whatever may match
            yield f"/v1/configs/{KERNEL}?{'&'.join(given[index] for index in order)}"


def _parameters(dims: Dims) -> list[str]:
    return [*(f"{name}={size}" for name, size in dims.items()), "dtype=float32", f"device={DEVICE}"]


def _expect(client: httpx2.Client, target: str) -> None:
    response = client.get(target)
    if response.status_code != 200:
        raise Unavailable(f"{target} answered {response.status_code}: {response.text[:200]}")


def _nearest(client: httpx2.Client, stored: Sequence[Dims], count: int) -> list[float]:
    """Return the seconds of `nearest` look-ups of shapes that are not stored."""
    known = {tuple(dims.values()) for dims in stored}
    drawn = random.Random(count)
    times: list[float] = []
    while len(times) < count:
        dims = {name: max(1, size + drawn.randint(-3, 3)) for name, size in drawn.choice(stored).items()}
        if tuple(dims.values()) in known:
            continue
        began = time.perf_counter()
        _expect(client, f"{_target(dims)}&match=nearest")
        times.append(time.perf_counter() - began)
    return times


def _portfolio(client: httpx2.Client) -> float:
    """Return the seconds of a look-up far from all stored shapes."""
    began = time.perf_counter()
    answer = client.get(f"{_target({'M': 1, 'N': 1})}&match=portfolio").json()
    if answer.get("match") != "portfolio":
        raise Unavailable(f"a look-up far from all shapes gave {str(answer)[:200]}; expected a portfolio match")
    return time.perf_counter() - began


def _export(client: httpx2.Client, process: int) -> dict[str, float]:
    """Export everything as one file; `memory_mb` is the server's peak meanwhile."""
    Path(f"/proc/{process}/clear_refs").write_text("5")  # reset the peak so far
    size, first, began = 0, 0.0, time.perf_counter()
    with client.stream("GET", "/v1/export") as response:
        for piece in response.iter_bytes():
            first = first or time.perf_counter() - began
            size += len(piece)
    seconds = time.perf_counter() - began
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert peak is not None
    return {
        "mb": round(size / 1e6, 1),
        "first_byte_s": round(first, 3),
        "seconds": round(seconds, 2),
        "memory_mb": round(int(peak[1]) * 1.024e-3),
    }


@contextmanager
def _hello() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tilewise.benchmarks.service.hello", str(port)])
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(lambda: httpx2.get(address).status_code == 200, process)
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def serving(
    url: str, files: int | None = None, workers: int = 1, options: Sequence[str] = ()
) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """Run a server of so many processes, each with so many open `files`; yield its URL, its first process, and the time
    of its start."""
    words = ["serve", "--port", "0", "--db", url, "--log-level", "error", "--workers", str(workers), *options]
    command = [sys.executable, "-m", "tilewise.cli", *words]
    if files:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    began = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        if not line.startswith("tilewise serves on "):
            raise Unavailable(f"the server did not start: {line.strip()}")
        yield line.split()[-1], process, began
    finally:
        process.kill()
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        try:
            if ready():
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise Unavailable("the yardstick's server did not start")


def _resident_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
