"""Jobs side by side on one device of a Ray cluster and on many, which replay and sleep: trials a second."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, NAMES, TOOLCHAIN, chips
from tilewise.benchmarks.fleet.raylets import RayCluster
from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.db.workers import Workers
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash

__all__ = ["bench_ray_speed"]

_NODES = 4
_START_SECONDS = 600.0


def bench_ray_speed(
    *, devices: int, shapes: int, trials: int, seconds: float, url: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run one job for each device, of `shapes` problems of `trials` trials of `seconds`, and return the rates.

    `url` is a new database; None makes a temporary one.
    """
    words = f"--devices {devices} --shapes {shapes} --trials {trials} --seconds {seconds:g}" + (
        " --db URL" if url else ""
    )
    with tempfile.TemporaryDirectory(prefix="tilewise-raylets-") as folder:
        url = url or f"sqlite:///{Path(folder) / 'tiles.db'}"
        with open_store(url, create=True) as store:
            database = database_name(store)
            rows = [
                _rate(url, store, Path(folder), count, shapes, trials, seconds, say)
                for count in dict.fromkeys((1, devices))
            ]
    one = rows[0]["per_second"]
    return {
        **service_header(f"tilewise bench raylets {words}"),
        "database": database,
        "seconds_a_trial": seconds,
        "rows": [row | {"speed_up": round(row["per_second"] / one, 2)} for row in rows],
    }


def _rate(
    url: str,
    store: SqlStore,
    folder: Path,
    count: int,
    shapes: int,
    trials: int,
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    place = folder / str(count)
    place.mkdir()
    made = chips(place, count, noise=0.02, seconds=seconds, seed=count)[:-1]
    each = -(-count // _NODES)
    lanes = [chip.id for chip in made]
    cluster = RayCluster(url, place, [lanes[first : first + each] for first in range(0, count, each)])
    jobs, before = Jobs(store.database), _stored(store)
    try:
        cluster.start()
        say(f"{count} devices start")
        _until_registered(cluster, store, count)
        say(f"{count} devices tune")
        began = time.monotonic()
        numbers = [_submit(jobs, count, number, shapes, trials) for number in range(count)]
        while not all(jobs.get(number).state.is_final for number in numbers):
            time.sleep(0.1)
        took = time.monotonic() - began
    finally:
        cluster.up.end()
        cluster.end()
    stored = _stored(store) - before
    ended = [str(jobs.get(number).state) for number in numbers]
    return {
        "devices": count,
        "nodes": len(cluster.nodes),
        "trials": stored,
        "seconds": round(took, 2),
        "per_second": round(stored / took, 3),
        "ended": ended,
    }


def _submit(jobs: Jobs, count: int, number: int, shapes: int, trials: int) -> int:
    wanted = [{"M": 16384 + 1000 * count + 100 * number + shape, "N": 1024} for shape in range(shapes)]
    hashed, name = source_hash(registry.load(KERNEL)), NAMES[number % len(NAMES)]
    return jobs.submit(Request(KERNEL, hashed, wanted, DTYPE, name, trials, search="random", toolchain=TOOLCHAIN))[0].id


def _stored(store: SqlStore) -> int:
    return sum(len(store.trials(scope)) for scope in store.scopes())


def _until_registered(cluster: RayCluster, store: SqlStore, count: int) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while len(Workers(store.database).all()) < count:
        if time.monotonic() > give_up or any(member.has_ended for member in cluster.members):
            raise Unavailable(f"the fleet did not start: {''.join(one.log()[-300:] for one in cluster.members)}")
        time.sleep(0.2)
