"""One problem on chips of a Ray cluster that a process of a node borrows from their actors: trials a second.

The measuring process is a driver of the cluster, and a process of its own, since one cannot be a driver of two. Its
only line of output is a row of figures.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.members import Member
from tilewise.benchmarks.fleet.raylets import RayCluster
from tilewise.benchmarks.fleet.spread import time_one_problem, with_speed_up, write_chips
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Workers
from tilewise.errors import Unavailable
from tilewise.tuner.cluster.borrowed_chip import borrow
from tilewise.tuner.cluster.ray_engine import connected

__all__ = ["bench_borrowing"]

_NAME = "NVIDIA H200 replay borrowed"
_START_SECONDS = 900.0


def bench_borrowing(
    *,
    devices: int,
    nodes: int,
    trials: int,
    seconds: float,
    search: str,
    url: str | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Tune one problem on one chip of a cluster and on many, with `trials` of `seconds` for each chip.

    `url` is a new database; None makes a temporary one.
    """
    words = (
        f"--one-problem --devices {devices} --nodes {nodes} --trials {trials} --seconds {seconds:g} --search {search}"
    )
    words += " --db URL" if url else ""
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="tilewise-borrowing-") as folder:
        url = url or f"sqlite:///{Path(folder) / 'tiles.db'}"
        with open_store(url, create=True) as store:
            database = database_name(store)
            for count in dict.fromkeys((1, devices)):
                workers = Workers(store.database)
                rows.append(_row(url, workers, Path(folder), count, nodes, trials, seconds, search, say))
    return {
        **service_header(f"tilewise bench raylets {words}"),
        "database": database,
        "seconds_a_trial": seconds,
        "search": search,
        "rows": with_speed_up(rows, rows[0]["per_second"]),
    }


def _row(
    url: str,
    workers: Workers,
    folder: Path,
    count: int,
    nodes: int,
    trials: int,
    seconds: float,
    search: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    place = folder / str(count)
    place.mkdir()
    name = f"{_NAME} {count}"
    lanes = [f"replay:{file}" for file in write_chips(place, count, name, seconds, random.Random(count))]
    each = -(-count // nodes)
    cluster = RayCluster(url, place, [lanes[first : first + each] for first in range(0, count, each)])
    try:
        cluster.start()
        say(f"{count} chips start")
        give_up = time.monotonic() + _START_SECONDS
        while sum(lane.name == name for worker in workers.all() for lane in worker.lanes) < count:
            if time.monotonic() > give_up:
                raise Unavailable(f"the fleet did not start: {''.join(one.log()[-300:] for one in cluster.members)}")
            cluster.mend()
            time.sleep(0.2)
        say(f"{count} chips tune one problem")
        words = [sys.executable, "-m", __name__, cluster.head.address, name, url, search, str(trials * count)]
        driver = Member("driver", words, place, "driver-cache", cluster.environment)
        row: dict[str, Any] = json.loads(driver.output().splitlines()[-1])
    finally:
        cluster.up.end()
        cluster.end()
    return {"nodes": len(cluster.nodes), **row}


def _driver(address: str, name: str, url: str, search: str, trials: str) -> None:
    with connected(address) as ray, open_store(url) as store:
        print(json.dumps(time_one_problem(store, borrow(ray, name), search, int(trials))))


if __name__ == "__main__":
    _driver(*sys.argv[1:])
