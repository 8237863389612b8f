"""`tilewise bench artefacts`, `fleet`, `raylets` and `spread`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewise.benchmarks.common.promises import show_promises
from tilewise.cli.options import common, database, give
from tilewise.errors import UsageError

__all__ = ["artefacts", "fleet", "raylets", "spread"]


@click.command()
@click.option("--problems", type=click.IntRange(1, 4), default=4, show_default=True, help="Problems of each host.")
@click.option("--trials", type=click.IntRange(2), default=30, show_default=True, help="Trials of each problem.")
@click.option("--own-postgresql", is_flag=True, help="Start a PostgreSQL server for this.")
@click.option("--engine", type=click.Choice(["workers", "ray"]), default="workers", show_default=True, help="Who runs.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def artefacts(
    problems: int, trials: int, own_postgresql: bool, engine: str, file: str | None, url: str | None, as_json: bool
) -> int:
    """Tune the same problems on hosts that share compiled artefacts, and count what each compiles.

    Exit with 1 if a promise was broken: an artefact compiled twice at once, fewer than 95% found in the second run, or
    other trials than those of a host alone. --db names a new, empty database; the default is a temporary SQLite file.
    With --engine ray, nodes of a Ray cluster compile for a chip's host, which is to compile nothing.
    """
    from tilewise.benchmarks.fleet.artefacts import bench_artefacts
    from tilewise.benchmarks.fleet.farming import bench_farming
    from tilewise.cli.progress import working

    if own_postgresql and url:
        raise UsageError("--own-postgresql starts a database, and --db names one; give one of them")
    if engine == "ray" and url:
        raise UsageError("--engine ray has a database of its own; leave out --db")
    with working("artefacts:") as say:
        how: dict[str, Any] = {"problems": problems, "trials": trials, "own_postgresql": own_postgresql, "say": say}
        body = bench_farming(**how) if engine == "ray" else bench_artefacts(**how, url=url)
    give(body, as_json, file, show_promises)
    return 1 if body["faults"] else 0


@click.command()
@click.option("--problems", "count", type=click.IntRange(2), default=200, show_default=True, help="Problems to tune.")
@click.option("--devices", type=click.IntRange(2), default=8, show_default=True, help="Replayed chips, of two kinds.")
@click.option("--kills", type=click.IntRange(0), default=40, show_default=True, help="Kills and pauses of processes.")
@click.option("--trials", type=click.IntRange(2), default=40, show_default=True, help="Trials of each problem.")
@click.option("--seconds", type=click.FloatRange(0), default=0.1, show_default=True, help="Seconds of each trial.")
@click.option("--noise", type=click.FloatRange(0), default=0.02, show_default=True, help="Noise of each run, a share.")
@click.option("--engine", type=click.Choice(["workers", "ray"]), default="workers", show_default=True, help="Who runs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the speeds and of the kills' targets.")
@click.option("--own-postgresql", is_flag=True, help="Start a PostgreSQL server for this, and kill it too.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def fleet(
    count: int,
    devices: int,
    kills: int,
    trials: int,
    seconds: float,
    noise: float,
    engine: str,
    seed: int,
    own_postgresql: bool,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Tune many problems on many replayed chips while workers, jobs, the server and connections are killed.

    Exit with 1 if a promise was broken: a job lost or ended twice, a trial lost, doubled or of the wrong device, a
    winner worse than without kills. --db names a new, empty database; the default is a temporary SQLite file. Pauses
    and ended connections need PostgreSQL.
    """
    from tilewise.benchmarks.fleet.fleet import bench_fleet
    from tilewise.cli.progress import working

    if own_postgresql and url:
        raise UsageError("--own-postgresql starts a database, and --db names one; give one of them")
    with working("fleet:") as say:
        body = bench_fleet(
            count=count,
            devices=devices,
            kills=kills,
            trials=trials,
            seconds=seconds,
            noise=noise,
            url=url,
            engine=engine,
            seed=seed,
            say=say,
            own_postgresql=own_postgresql,
        )
    give(body, as_json, file, show_promises)
    return 1 if body["faults"] else 0


@click.command()
@click.option("--devices", type=click.IntRange(2), default=8, show_default=True, help="Replayed chips, on four nodes.")
@click.option("--shapes", type=click.IntRange(1), default=4, show_default=True, help="Problems of each chip.")
@click.option("--trials", type=click.IntRange(2), default=60, show_default=True, help="Trials of each problem.")
@click.option("--seconds", type=click.FloatRange(0), default=0.2, show_default=True, help="Seconds of each trial.")
@click.option("--one-problem", is_flag=True, help="Spread one problem over the chips, with --trials for each.")
@click.option("--search", type=click.Choice(["random", "guided"]), default="random", show_default=True, help="Of it.")
@click.option("--nodes", type=click.IntRange(1), default=4, show_default=True, help="Nodes for one problem's chips.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def raylets(
    devices: int,
    shapes: int,
    trials: int,
    seconds: float,
    one_problem: bool,
    search: str,
    nodes: int,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Run jobs, or one problem, on one replayed chip of a Ray cluster and on many: the speed-up.

    --db names a new, empty database; the default is a temporary SQLite file.
    """
    from tilewise.benchmarks.fleet.borrowing import bench_borrowing
    from tilewise.benchmarks.fleet.ray_speed import bench_ray_speed
    from tilewise.cli.progress import working

    with working("raylets:") as say:
        how: dict[str, Any] = {"devices": devices, "trials": trials, "seconds": seconds, "url": url, "say": say}
        if one_problem:
            body = bench_borrowing(**how, nodes=nodes, search=search)
        else:
            body = bench_ray_speed(**how, shapes=shapes)
    give(body, as_json, file, _show_raylets)


def _show_raylets(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        count = row.get("devices", row.get("chips"))
        click.echo(f"{count} devices: {row['per_second']} trials a second, {row['speed_up']}x")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--regret", is_flag=True, help="Only the regret of picks, on FILES or all landscapes of an H200.")
@click.option("--seeds", type=click.IntRange(1), default=50, show_default=True, help="Draws for each landscape.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first draw's seed.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def spread(
    files: tuple[Path, ...],
    regret: bool,
    seeds: int,
    first_seed: int,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Tune on one replayed chip and on many: the speed-up and its losses, or the regret of what many pick.

    --db names a new, empty database; the default is a temporary SQLite file.
    """
    from tilewise.benchmarks.fleet.spread import bench_regret, bench_spread
    from tilewise.cli.progress import working

    if files and not regret:
        raise UsageError("FILES are for --regret")
    drawn = range(first_seed, first_seed + seeds)
    with working("spread:") as say:
        body = bench_regret(files, seeds=drawn, say=say) if regret else bench_spread(url=url, say=say)
    give(body, as_json, file, _show_regret if regret else _show_spread)


def _show_regret(body: dict[str, Any]) -> None:
    for row in body["regret"]:
        means = (sum(row[words]) / len(row[words]) for words in ("with_anchors", "without"))
        click.echo(f"{row['landscape']}: regret {' with anchors, '.join(f'{mean:.2%}' for mean in means)} without")


def _show_spread(body: dict[str, Any]) -> None:
    for row in body["jobs"]:
        click.echo(f"jobs on {row['chips']} chips: {row['per_second']} trials a second, {row['speed_up']}x")
    for study in body["one_problem"]:
        for row in study["rows"]:
            click.echo(
                f"{study['search']}, {study['seconds_a_trial']} s a trial, {row['chips']} chips: {row['per_second']} "
                f"trials a second, {row['speed_up']}x, database {row['database_share']:.1%}, driver "
                f"{row['driver_share']:.1%}"
            )
