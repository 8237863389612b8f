"""Hosts that share compiled artefacts: two tune the same problems at once, two more after them, and one is killed.

A host is a process tree with a cache folder and a database of results of its own.
"""

from __future__ import annotations

import secrets
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.members import Member, tilewise
from tilewise.benchmarks.fleet.postgresql import PostgresqlServer
from tilewise.benchmarks.fleet.witness import Compilation, counts, read, witness
from tilewise.db.artefacts import Artefacts
from tilewise.db.records import canonical_json
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import Unavailable

__all__ = ["HITS", "PROBLEMS", "bench_artefacts", "new_key"]

HITS = 0.95
"""Share of the second run's compilations that the first run's artefacts have to save."""

PROBLEMS = (
    ("row_reduce", "M=1000,N=8192"),
    ("softmax", "M=512,N=2048"),
    ("layer_norm", "M=300,N=1024"),
    ("row_reduce", "M=64,N=1000"),
)
_DEVICE = "model:Ascend910B4"
_LIMIT_SECONDS = 1200.0
_BEFORE_THE_KILL = 5
"""Compilations that a host has begun when it is killed."""


def bench_artefacts(
    *, problems: int, trials: int, url: str | None, own_postgresql: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run the study, and return its figures and `faults`, which are empty if every promise was kept.

    Each host tunes the first `problems` of some with `trials` each. `url` is a new database; None makes a temporary
    SQLite file. With `own_postgresql`, that is one on a PostgreSQL server of the study's own.
    """
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewise-artefacts-")))
        server = opened.enter_context(PostgresqlServer()) if own_postgresql else None
        shared = server.url if server else url or f"sqlite:///{folder / 'shared.db'}"
        store = opened.enter_context(open_store(shared, create=True))
        hosts = _Hosts(folder, shared, PROBLEMS[:problems], trials)
        say("a host alone, which shares nothing")
        needed = {one.content for one in hosts.run(["alone"], key=None)}
        key, other_key = new_key(folder / "key"), new_key(folder / "other key")
        say(f"{len(needed)} artefacts; two hosts at once")
        first = hosts.run(["A", "B"], key)
        say("two new hosts, the second run")
        second = hosts.run(["C", "D"], key)
        kept = Artefacts(store.database, key.read_bytes()).totals()
        say("two hosts with another key, of which one is killed while it compiles")
        killed, took = hosts.run_and_kill("E", "F", other_key)
        body = {
            "needed": len(needed),
            "kept": asdict(kept),
            "first_run": counts(first, ["A", "B"]),
            "second_run": {**counts(second, ["C", "D"]), "hits": 1 - len(second) / (2 * len(needed))},
            "killed": {
                **counts(killed, ["E", "F"]),
                "unfinished": sum(one.end is None for one in killed),
                "seconds_until_the_other_ended": round(took, 1),
            },
        }
        faults = [*_faults(body), *hosts.differences("alone", ["A", "B", "C", "D", "F"])]
        given = " --own-postgresql" if own_postgresql else " --db URL" if url else ""
        header = service_header(f"tilewise bench artefacts --problems {problems} --trials {trials}{given}")
        header["versions"] |= {name: version(name) for name in ("triton-ascend", "ascendnpu-ir")}
        return {
            **header,
            "database": database_name(store),
            "device": _DEVICE,
            "problems": [" ".join(problem) for problem in PROBLEMS[:problems]],
            "trials": trials,
            **body,
            "faults": faults,
        }


def new_key(file: Path) -> Path:
    """Make an operator's key in a file, and return the file."""
    file.touch(0o600)
    file.write_bytes(secrets.token_bytes(32))
    return file


class _Hosts:
    """Hosts of one machine, each of which tunes all problems, one after the other."""

    def __init__(self, folder: Path, shared: str, problems: Sequence[tuple[str, str]], trials: int) -> None:
        self._folder, self._shared, self._problems, self._trials = folder, shared, problems, trials
        self._log = folder / "compiled"
        self._log.touch()
        self._path = witness(folder / "witness", self._log)

    def run(self, names: Sequence[str], key: Path | None) -> list[Compilation]:
        """Have these hosts tune at once, and return what they compiled. Without a key they share nothing.

        Raises `Unavailable` if one fails.
        """
        hosts = [self._host(name, key) for name in names]
        try:
            for host in hosts:
                host.start()
            self._finish(hosts)
        finally:
            for host in hosts:
                host.signal(signal.SIGKILL)
        return self._compiled(names)

    def run_and_kill(self, lost: str, other: str, key: Path) -> tuple[list[Compilation], float]:
        """Kill the first host of two in the middle of a compilation. Return what both compiled, and the seconds from
        then until the other ended."""
        hosts = [self._host(name, key) for name in (lost, other)]
        try:
            for host in hosts:
                host.start()
            self._until(lambda: self._compiles(lost) or hosts[0].has_ended, hosts[0])
            if hosts[0].has_ended:
                raise Unavailable(f"host {lost} ended before it was killed: {hosts[0].log()[-300:]}")
            hosts[0].signal(signal.SIGKILL)
            began = time.monotonic()
            self._finish(hosts[1:])
        finally:
            for host in hosts:
                host.signal(signal.SIGKILL)
        return self._compiled([lost, other]), time.monotonic() - began

    def differences(self, name: str, others: Sequence[str]) -> list[str]:
        """Return a line for each host whose trials differ from those of the host `name`."""
        right = self._results(name)
        return [f"host {one} has other trials than host {name}" for one in others if self._results(one) != right]

    def _host(self, name: str, key: Path | None) -> Member:
        environment = {
            "COMPILING_HOST": name,
            "PYTHONPATH": self._path,
            "TILEWISE_DB": self._database(name),
            **({"TILEWISE_ARTEFACTS": self._shared, "TILEWISE_KERNEL_KEY": str(key)} if key else {}),
        }
        options = ["--device", _DEVICE, "--trials", str(self._trials)]
        tunings = [shlex.join(tilewise(["tune", kernel, "-s", shape, *options])) for kernel, shape in self._problems]
        return Member(name, ["sh", "-ec", "\n".join(tunings)], self._folder, f"{name}-cache", environment)

    def _database(self, name: str) -> str:
        return f"sqlite:///{self._folder / f'{name}.db'}"

    def _results(self, name: str) -> list[str]:
        """Return all trials of a host, without what differs by the clock."""
        with open_store(self._database(name)) as store:
            return sorted(
                canonical_json([scope.key, dict(trial.config), trial.status, trial.time_us])
                for scope in store.scopes()
                for trial in store.trials(scope)
            )

    def _finish(self, hosts: Sequence[Member]) -> None:
        self._until(lambda: all(host.has_ended for host in hosts), hosts[0])
        for host in hosts:
            if host.code:
                raise Unavailable(f"host {host.name} failed: {host.log()[-300:]}")

    def _until(self, is_so: Callable[[], bool], host: Member) -> None:
        give_up = time.monotonic() + _LIMIT_SECONDS
        while not is_so():
            if time.monotonic() > give_up:
                raise Unavailable(f"host {host.name} took more than {_LIMIT_SECONDS:g} s: {host.log()[-300:]}")
            time.sleep(0.01)

    def _compiles(self, name: str) -> bool:
        """Return whether a host is in the middle of a compilation, after some others."""
        found = self._compiled([name])
        return len(found) > _BEFORE_THE_KILL and any(one.end is None for one in found)

    def _compiled(self, names: Sequence[str]) -> list[Compilation]:
        return [one for one in read(self._log) if one.host in names]


def _faults(body: Mapping[str, Any]) -> Iterator[str]:
    for run in ("first_run", "second_run", "killed"):
        if count := body[run]["twice_at_once"]:
            yield f"{run}: {count} artefacts were compiled twice at once"
    if again := body["first_run"]["compiled_again"]:
        yield f"first_run: {again} artefacts were compiled again"
    if (hits := body["second_run"]["hits"]) < HITS:
        yield f"second_run: {hits:.1%} of the artefacts were there; {HITS:.0%} are expected"
    if (again := body["killed"]["compiled_again"]) > (most := body["killed"]["unfinished"]):
        yield f"killed: {again} artefacts were compiled again, of which {most} were not finished"
    if body["kept"]["count"] != body["needed"]:
        yield f"{body['kept']['count']} artefacts are kept, {body['needed']} were needed"
