"""The compile farm of a fleet on Ray: which nodes compile what a chip's host needs, and what a second run finds.

A modelled part is the chip. Its node has no processor for tasks; two other nodes have one each and no chip. The same
problems are tuned three times: by a new cluster; with the chip's host emptied, as a host that joins; and by another new
cluster, of which only the database of artefacts is left. A witness that is no part of the product counts compilations.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.artefacts import HITS, PROBLEMS, new_key
from tilewise.benchmarks.fleet.postgresql import PostgresqlServer
from tilewise.benchmarks.fleet.raylets import RayCluster
from tilewise.benchmarks.fleet.witness import counts, read, witness
from tilewise.db.artefacts import Artefacts
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.db.workers import Workers
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.space.problem_checks import parse_dims

__all__ = ["bench_farming"]

_DEVICE = "model:Ascend910B4"
_FARM_NODES = 2
_LIMIT_SECONDS = 1200.0


def bench_farming(*, problems: int, trials: int, own_postgresql: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the study, and return its figures and `faults`, which are empty if every promise was kept.

    The first `problems` of some are tuned with `trials` each. The database of jobs and artefacts is a temporary SQLite
    file, or with `own_postgresql` on a PostgreSQL server of the study's own.
    """
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewise-farming-")))
        server = opened.enter_context(PostgresqlServer()) if own_postgresql else None
        url = server.url if server else f"sqlite:///{folder / 'tiles.db'}"
        store = opened.enter_context(open_store(url, create=True))
        study = _Study(folder, url, store, problems, trials)
        say("a new cluster")
        with study.cluster("one") as cluster:
            first = study.run(cluster)
            say("the same cluster, with the chip's host emptied")
            study.empty(cluster)
            second = study.run(cluster)
        say("another new cluster, with the database of artefacts")
        with study.cluster("two") as cluster:
            third = study.run(cluster)
        kept = Artefacts(store.database, study.key.read_bytes()).totals().count
        runs = {"first_run": first, "second_run": second, "third_run": third}
        for run in (second, third):
            run["hits"] = 1 - run["compilations"] / max(1, first["compilations"])
        command = f"tilewise bench artefacts --engine ray --problems {problems} --trials {trials}"
        header = service_header(command + (" --own-postgresql" if own_postgresql else ""))
        header["versions"] |= {name: version(name) for name in ("triton-ascend", "ascendnpu-ir")}
        return {
            **header,
            "database": database_name(store),
            "device": _DEVICE,
            "problems": [" ".join(problem) for problem in PROBLEMS[:problems]],
            "trials": trials,
            "kept": kept,
            **runs,
            "faults": list(_faults(runs, kept)),
        }


class _Study:
    """Clusters that tune the same problems, and a witness of what is compiled."""

    def __init__(self, folder: Path, url: str, store: SqlStore, problems: int, trials: int) -> None:
        self._folder, self._url, self._problems, self._trials = folder, url, PROBLEMS[:problems], trials
        self._jobs, self._workers = Jobs(store.database), Workers(store.database)
        self._log = folder / "compiled"
        self._log.touch()
        self._path = witness(folder / "witness", self._log)
        self._seen = self._runs = 0
        self.key = new_key(folder / "key")

    @contextmanager
    def cluster(self, name: str) -> Iterator[RayCluster]:
        """Start a cluster with new cache folders."""
        place = self._folder / name
        place.mkdir()
        environment = {
            "PYTHONPATH": self._path,
            "TILEWISE_ARTEFACTS": self._url,
            "TILEWISE_KERNEL_KEY": str(self.key),
            "TILEWISE_JOBS": str(_FARM_NODES),
        }
        cluster = RayCluster(self._url, place, [[_DEVICE]], farm_nodes=_FARM_NODES, environment=environment)
        try:
            cluster.start()
            self._until(lambda: bool(self._workers.all()), cluster)
            yield cluster
        finally:
            cluster.up.end()
            cluster.end()

    def run(self, cluster: RayCluster) -> dict[str, Any]:
        """Tune all problems, and return what was compiled where."""
        began, self._runs = time.monotonic(), self._runs + 1
        numbers = [self._submit(kernel, shape) for kernel, shape in self._problems]
        self._until(lambda: all(self._jobs.get(number).state.is_final for number in numbers), cluster)
        states = [self._jobs.get(number).state for number in numbers]
        found, self._seen = read(self._log)[self._seen :], len(read(self._log))
        return {
            **counts(found, [node.name for node in cluster.nodes]),
            "seconds": round(time.monotonic() - began, 1),
            "jobs_not_done": sum(state is not State.DONE for state in states),
            "farm": self._report(cluster),
        }

    def empty(self, cluster: RayCluster) -> None:
        """Remove what the chip's host has kept of compiled code."""
        shutil.rmtree(Path(cluster.nodes[0].environment["TILEWISE_CACHE"]) / "hivm")

    def _report(self, cluster: RayCluster) -> dict[str, Any]:
        """Return the farm's own counts so far, with nodes by their numbers."""
        farm: dict[str, Any] = cluster.status()["farm"]
        made = {kind: sorted(farm[kind].values(), reverse=True) for kind in ("compiled", "kept")}
        return made | {name: farm[name] for name in ("again", "failed")}

    def _submit(self, kernel: str, shape: str) -> int:
        hashed = source_hash(registry.load(kernel))
        wanted = Request(
            kernel,
            hashed,
            [parse_dims(shape)],
            "float32",
            _DEVICE,
            self._trials,
            search="random",
            revision=self._runs,
            fresh=True,
        )  # a guided search starts from what the runs before have found
        return self._jobs.submit(wanted)[0].id

    def _until(self, is_so: Callable[[], bool], cluster: RayCluster) -> None:
        give_up = time.monotonic() + _LIMIT_SECONDS
        while not is_so():
            if time.monotonic() > give_up:
                raise Unavailable(f"the fleet failed: {''.join(one.log()[-300:] for one in cluster.members)}")
            cluster.mend()
            time.sleep(0.1)


def _faults(runs: Mapping[str, Mapping[str, Any]], kept: int) -> Iterator[str]:
    for name, run in runs.items():
        chip, *_ = run["by_host"].values()
        if chip:
            yield f"{name}: the chip's host compiled {chip} artefacts"
        for what in ("twice_at_once", "compiled_again"):
            if run[what]:
                yield f"{name}: {run[what]} artefacts were {what.replace('_', ' ')}"
        if run["jobs_not_done"]:
            yield f"{name}: {run['jobs_not_done']} jobs failed"
        if (hits := run.get("hits", 1.0)) < HITS:
            yield f"{name}: {hits:.1%} of the artefacts were there; {HITS:.0%} are expected"
    if not runs["second_run"]["farm"]["again"] or not sum(runs["third_run"]["farm"]["kept"]):
        yield "a later run asked the farm for nothing"
    if kept != (made := runs["first_run"]["compilations"]):
        yield f"{kept} artefacts are kept, {made} were compiled"
