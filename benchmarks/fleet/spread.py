"""The speed-up of many chips over one, and the regret of their picks, on chips that replay and sleep.

- Pick regret: eight chips, which take evenly 0.9 to 1.1 times as long in a drawn order, with 2% noise in each run, time
  200 drawn configs of a recorded problem. The regret of their pick is its true time over the least true time among
  those configs, less 1.
- Jobs: a worker tunes problems side by side, a chip each.
- One problem: its configs are spread over chips in one process. Its time is divided into waiting for chips, the
  database, and the rest, which is the driver: the search, and what it makes of each outcome.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna import Study

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.members import Worker
from tilewise.db.exchange.foreign.landscapes.t4 import Row
from tilewise.db.jobs import Jobs, Request
from tilewise.db.records import Scope, Status, Trial
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.recorded_chip import SUFFIX, Planted, RecordedChip
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.devices.spread import SpreadDevice
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.tuning.loop import Budget, Tuning

__all__ = ["bench_regret", "bench_spread", "time_one_problem", "with_speed_up", "write_chips"]

_LANDSCAPES = Path(__file__).resolve().parents[2] / "landscapes"
_RECORDED = "row_reduce-1000x8192-float32-H200.json.gz"
_SPREAD, _NOISE, _PICKED_FROM, _CHIPS = 0.1, 0.02, 200, 8
_KERNEL, _NAME, _DTYPE = "row_reduce", "NVIDIA H200 replay", "float32"
_SIDE_BY_SIDE = {"seconds": 0.2, "shapes": 8, "trials": 60}
_ONE_PROBLEM = (
    {"search": "random", "chips": 8, "seconds": 0.2, "each": 40},
    {"search": "random", "chips": 64, "seconds": 0.2, "each": 30},
    {"search": "guided", "chips": 64, "seconds": 4.0, "each": 28},
)
_START_SECONDS = 180.0


def bench_spread(*, url: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the study of speed-ups and return its figures. `url` is a new database; None makes a temporary one."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewise-spread-")))
        given = " --db URL" if url else ""
        url = url or f"sqlite:///{folder / 'tiles.db'}"
        store = opened.enter_context(open_store(url, create=True))
        return {
            **service_header(f"tilewise bench spread{given}"),
            "database": database_name(store),
            "jobs": _side_by_side(url, store, folder, say),
            "one_problem": [_one_problem(store, folder, row, say) for row in _ONE_PROBLEM],
        }


# Regret ---------------------------------------------------------------------------------------------------------------


def bench_regret(files: Sequence[Path], *, seeds: range, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the regrets of picks on recorded landscapes, all those of an H200 if no `files` are given.

    Landscapes of fewer configs with a time than are drawn are left out.
    """
    named = "".join(f" {file.name}" for file in files)
    files = files or sorted(_LANDSCAPES.glob("*-H200.json.gz"))
    first = f" --first-seed {seeds.start}" if seeds.start else ""
    command = f"tilewise bench spread{named} --regret --seeds {len(seeds)}{first}"
    rows = []
    for file in files:
        timed = [row for row in ReplayDevice(file).rows if row.status is Status.CORRECT]
        if len(timed) >= _PICKED_FROM:
            say(f"regret on {file.name}")
            rows.append({"landscape": file.name, **_regrets(file, timed, seeds)})
    about = {"chips": _CHIPS, "spread": _SPREAD, "noise": _NOISE, "configs": _PICKED_FROM}
    return {**service_header(command), **about, "regret": rows}


def _regrets(file: Path, timed: Sequence[Row], seeds: range) -> dict[str, Sequence[float]]:
    with tempfile.TemporaryDirectory(prefix="tilewise-regret-") as folder:
        chips = [RecordedChip(path) for path in _evenly_spread(Path(folder), file)]
    words = (("with_anchors", True), ("without", False))
    return {word: [round(_regret(chips, timed, seed, anchors=anchors), 5) for seed in seeds] for word, anchors in words}


def _evenly_spread(folder: Path, recording: Path) -> Iterator[Path]:
    for number in range(_CHIPS):
        slowness = round(1 - _SPREAD + 2 * _SPREAD * number / (_CHIPS - 1), 4)
        yield _write_chip(
            folder / f"{number}{SUFFIX}", Planted(str(recording), _NAME, "replay", slowness=slowness, noise=_NOISE)
        )


def _regret(chips: Sequence[RecordedChip], timed: Sequence[Row], seed: int, *, anchors: bool) -> float:
    drawn = random.Random(seed)
    order, picked_from = drawn.sample(chips, len(chips)), drawn.sample(timed, _PICKED_FROM)
    spec = registry.load(_KERNEL)
    problem = make_problem(spec, {"M": 1000, "N": 8192}, _DTYPE)  # chips replay the same for any
    found: dict[int, float] = {}

    def best_us() -> float | None:
        return min(found.values(), default=None)

    with SpreadDevice(order, anchors=anchors) as device:
        for first in range(0, len(picked_from), device.batch):
            configs = [row.config for row in picked_from[first : first + device.batch]]
            for index, outcome in enumerate(device.evaluate(spec, problem, configs, to_beat_us=best_us), first):
                if outcome.timing is not None:
                    found[index] = outcome.timing.time_us
    true_us = [row.time_us for row in picked_from if row.time_us is not None]
    return true_us[min(found, key=found.__getitem__)] / min(true_us) - 1


# Jobs -----------------------------------------------------------------------------------------------------------------


def _side_by_side(url: str, store: SqlStore, folder: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Tune as many problems for each chip with one chip and with eight, and return the rates."""
    rows, rows_ = list[dict[str, Any]](), random.Random(0)
    for count in (1, _CHIPS):
        say(f"jobs on {count} chips")
        name = f"{_NAME} {count}"
        files = write_chips(folder, count, name, float(_SIDE_BY_SIDE["seconds"]), rows_)
        worker = Worker(f"worker of {count}", url, [f"replay:{file}" for file in files], folder, "cache")
        jobs = Jobs(store.database)
        worker.start()
        try:
            _until_registered(worker)
            began = time.monotonic()
            numbers = [_submit(jobs, name, chip) for chip in range(count)]
            while not all(jobs.get(number).state.is_final for number in numbers):
                time.sleep(0.1)
            took = time.monotonic() - began
        finally:
            worker.end()
        trials = sum(len(store.trials(scope)) for scope in store.scopes() if scope.device == name)
        ended = [str(jobs.get(number).state) for number in numbers]
        rows.append(
            {"chips": count, "trials": trials, "seconds": round(took, 2), "per_second": trials / took, "ended": ended}
        )
    return with_speed_up(rows, rows[0]["per_second"])


def _until_registered(worker: Worker) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while "works on" not in worker.log():
        if worker.has_ended or time.monotonic() > give_up:
            raise Unavailable(f"the worker did not start: {worker.log()[-500:]}")
        time.sleep(0.1)


def _submit(jobs: Jobs, name: str, chip: int) -> int:
    shapes = [{"M": 1000 + chip, "N": 8192 + number} for number in range(int(_SIDE_BY_SIDE["shapes"]))]
    trials = int(_SIDE_BY_SIDE["trials"])
    hashed = source_hash(registry.load(_KERNEL))
    return jobs.submit(Request(_KERNEL, hashed, shapes, _DTYPE, name, trials, search="random"))[0].id


def with_speed_up(rows: Sequence[dict[str, Any]], one: float) -> list[dict[str, Any]]:
    return [
        row | {"per_second": round(row["per_second"], 2), "speed_up": round(row["per_second"] / one, 2)} for row in rows
    ]


# One problem ----------------------------------------------------------------------------------------------------------


class _Waited(SpreadDevice):
    """Measures the time that the search waits for outcomes, less that in which it draws batches meanwhile."""

    waited = 0.0

    def evaluate_batches(
        self,
        spec: KernelSpec,
        problem: Problem,
        batches: Iterator[Sequence[Config]],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Sequence[Outcome]]:
        outcomes = super().evaluate_batches(spec, problem, self._drawn(batches), to_beat_us=to_beat_us)
        while True:
            began = time.monotonic()
            together = next(outcomes, None)
            self.waited += time.monotonic() - began
            if together is None:
                return
            yield together

    def _drawn(self, batches: Iterator[Sequence[Config]]) -> Iterator[Sequence[Config]]:
        while True:
            began = time.monotonic()
            configs = next(batches, None)
            self.waited -= time.monotonic() - began
            if configs is None:
                return
            yield configs


class _Stored(SqlStore):
    """Measures the time that writes take, and counts them."""

    wrote, commits = 0.0, 0

    def record(self, scope: Scope, trials: Sequence[Trial]) -> None:
        began = time.monotonic()
        super().record(scope, trials)
        self.wrote += time.monotonic() - began
        self.commits += 1


class _Endless(Tuning):
    """A tuning that uses its whole budget, even if the search expects nothing more."""

    def _enough(self, study: Study) -> bool:
        return False


def _one_problem(store: SqlStore, folder: Path, row: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Tune one problem on one chip and on many, for `each` trials of a chip, and return the rates and shares."""
    rows = list[dict[str, Any]]()
    for count in (1, row["chips"]):
        say(f"one problem on {count} chips, {row['search']}, {row['seconds']} s a trial")
        name = f"{_NAME} {row['search']} {row['chips']} {count}"
        files = write_chips(folder, count, name, row["seconds"], random.Random(count))
        chips = [RecordedChip(file) for file in files]
        rows.append(time_one_problem(store, chips, row["search"], row["each"] * count))
    found = with_speed_up(rows, rows[0]["per_second"])
    return {"search": row["search"], "seconds_a_trial": row["seconds"], "rows": found}


def time_one_problem(store: SqlStore, chips: Sequence[Device], search: str, trials: int) -> dict[str, Any]:
    """Tune one problem on chips, which are closed then, and return the rate and the shares of the time."""
    spec = registry.load(_KERNEL)
    problem = make_problem(spec, {"M": 1000, "N": 8192}, _DTYPE)
    stored = _Stored(store.database)
    with _Waited(chips) as device:
        tuning = _Endless(spec, problem, device, stored, budget=Budget(trials), search=search)
        began = time.monotonic()
        tuning.run()
        took = time.monotonic() - began
    trials = len(store.trials(tuning.scope))
    driver = took - device.waited - stored.wrote
    shares = {"waiting": device.waited, "database": stored.wrote, "driver": driver}
    return (
        {"chips": len(chips), "trials": trials, "seconds": round(took, 2), "per_second": trials / took}
        | {"trials_a_commit": round(trials / stored.commits, 1)}
        | {f"{share}_share": round(spent / took, 4) for share, spent in shares.items()}
        | {f"{share}_ms_a_trial": round(1e3 * shares[share] / trials, 2) for share in ("database", "driver")}
    )


def write_chips(folder: Path, count: int, name: str, seconds: float, drawn: random.Random) -> list[Path]:
    """Write the files of chips of one name, and return them."""
    recording, files = str(_LANDSCAPES / _RECORDED), []
    for number in range(count):
        slowness = round(drawn.uniform(1 - _SPREAD, 1 + _SPREAD), 4)
        planted = Planted(recording, name, "replay", slowness=slowness, noise=_NOISE, variation=0.1, seconds=seconds)
        files.append(_write_chip(folder / f"{name.replace(' ', '-')}-{number}{SUFFIX}", planted))
    return files


def _write_chip(path: Path, planted: Planted) -> Path:
    path.write_text(json.dumps(asdict(planted)))
    return path
