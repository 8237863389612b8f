"""How fast the service answers: beside a bare Starlette application, over databases of several sizes.

`wrk` sends the requests. The yardstick is measured again before and after each database, so that what else the
machine does falls on both. The look-ups of a round are of `_HOT` problems, drawn evenly from all that are stored and
asked for once before: what varies from database to database is how many others are stored beside them.
"""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from tilewise.db.records import Dims
from tilewise.errors import Unavailable
from tilewise.tuner.bench.many import DEVICE, KERNEL, fill, shapes

__all__ = ["bench_serve"]

_HOT = 1000
_NEAREST = 300
_START_SECONDS = 60.0

_SCRIPT = """
local targets = {}
for line in io.lines("%s") do targets[#targets + 1] = wrk.format("GET", line) end
local at = 0
request = function() at = at %% #targets + 1; return targets[at] end
"""


def bench_serve(
    sizes: Sequence[int], *, seconds: int, connections: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """One row a database size. Raises `Unavailable` where `wrk` is not installed."""
    if shutil.which("wrk") is None:
        raise Unavailable("wrk is not installed; install Debian's package wrk")
    with tempfile.TemporaryDirectory(prefix="tilewise-serve-") as folder, _hello() as hello:
        load = _Load(Path(folder), seconds, connections)
        rows = [_bench_size(Path(folder), count, hello, load, rounds, say) for count in sizes]
    return {
        "command": f"tilewise bench serve {' '.join(f'--problems {size}' for size in sizes)} --seconds {seconds} "
        f"--connections {connections} --rounds {rounds}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "workers": 1,
        "connections": connections,
        "hot_problems": _HOT,
        "rows": rows,
    }


def _bench_size(
    folder: Path, count: int, hello: str, load: _Load, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    url = f"sqlite:///{folder / f'{count}.db'}"
    say(f"storing {count} problems")
    fill(url, count)
    stored = shapes(count)
    hot = [_target(dims) for dims in random.Random(1).sample(stored, min(_HOT, count))]
    cold = [_target(dims) for dims in random.Random(2).sample(stored, min(50_000, count))]
    with _serving(url) as (address, process, began):
        say(f"{count} problems: asking")
        with httpx2.Client(base_url=address, timeout=_START_SECONDS) as client:
            _expect(client, hot[0])
            first = time.monotonic() - began
            empty = _resident_mb(process.pid)
            for target in hot:
                _expect(client, target)
            pairs = [(load.run(hello, ["/"]), load.run(address, hot)) for _ in range(rounds)]
            warm = _resident_mb(process.pid)
            unseen = load.run(address, cold)
            near = _nearest(client, stored)
        kept = _resident_mb(process.pid)
    yardstick = statistics.median(run["per_second"] for run, _ in pairs)
    served = statistics.median(run["per_second"] for _, run in pairs)
    return {
        "problems": count,
        "database_mb": round((folder / f"{count}.db").stat().st_size / 1e6, 1),
        "hello_per_second": round(yardstick),
        "per_second": round(served),
        "ratio": round(statistics.median(b["per_second"] / a["per_second"] for a, b in pairs), 3),
        "p50_ms": statistics.median(run["p50_ms"] for _, run in pairs),
        "p99_ms": max(run["p99_ms"] for _, run in pairs),
        "hello_p99_ms": max(run["p99_ms"] for run, _ in pairs),
        "first_answer_s": round(first, 3),
        "mostly_unseen_per_second": round(unseen["per_second"]),
        "mostly_unseen_p99_ms": unseen["p99_ms"],
        "nearest_first_s": near[0],
        "nearest_p50_ms": near[1],
        "nearest_p99_ms": near[2],
        "memory_mb": {"first_answer": empty, "hot": warm, "after_all": kept},
    }


class _Load:
    """Rounds of requests by wrk, one thread."""

    def __init__(self, folder: Path, seconds: int, connections: int) -> None:
        self._folder, self._seconds, self._connections = folder, seconds, connections

    def run(self, address: str, targets: Sequence[str]) -> dict[str, float]:
        listed = self._folder / "targets"
        listed.write_text("\n".join(targets) + "\n")
        script = self._folder / "targets.lua"
        script.write_text(_SCRIPT % listed)
        arguments = ["-t1", f"-c{self._connections}", f"-d{self._seconds}", "--latency", "-s", str(script), address]
        done = subprocess.run(["wrk", *arguments], capture_output=True, text=True, check=True)
        if found := re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: .*", done.stdout):
            raise Unavailable(f"the benchmark's requests failed: {found[0]}")
        rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
        assert rate is not None, done.stdout
        percent = {f"p{name}_ms": _milliseconds(done.stdout, name) for name in ("50", "99")}
        return {"per_second": float(rate[1]), **percent}


def _milliseconds(text: str, percentile: str) -> float:
    found = re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)\b", text)
    assert found is not None, text
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


def _target(dims: Dims) -> str:
    sizes = "&".join(f"{name}={size}" for name, size in dims.items())
    return f"/v1/configs/{KERNEL}?{sizes}&dtype=float32&device={DEVICE}"


def _expect(client: httpx2.Client, target: str) -> None:
    response = client.get(target)
    if response.status_code != 200:
        raise Unavailable(f"{target} answered {response.status_code}: {response.text[:200]}")


def _nearest(client: httpx2.Client, stored: Sequence[Dims]) -> tuple[float, float, float]:
    """Seconds of the first look-up near a shape, which reads all shapes; median and 99th percentile of others in ms."""
    known = {tuple(dims.values()) for dims in stored}
    drawn = random.Random(3)
    times: list[float] = []
    while len(times) <= _NEAREST:
        dims = {name: max(1, size + drawn.randint(-3, 3)) for name, size in drawn.choice(stored).items()}
        if tuple(dims.values()) in known:
            continue
        began = time.perf_counter()
        _expect(client, f"{_target(dims)}&match=nearest")
        times.append(time.perf_counter() - began)
    rest = sorted(times[1:])
    return round(times[0], 3), round(1e3 * rest[len(rest) // 2], 3), round(1e3 * rest[int(len(rest) * 0.99)], 3)


@contextmanager
def _hello() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tilewise.tuner.bench.hello", str(port)])
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(lambda: httpx2.get(address).status_code == 200, process)
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def _serving(url: str) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """A server of its own process: its address, the process, and when it was started."""
    command = [sys.executable, "-m", "tilewise.tuner.cli", "serve", "--port", "0", "--db", url, "--log-level", "error"]
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
