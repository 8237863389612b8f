"""`tilewise bench serve`, `conform`, `helion`, `hostile`, `memory`, `page` and `soak`."""

from __future__ import annotations

import json
from typing import Any

import click

from tilewise.benchmarks.common.promises import show_promises
from tilewise.cli.formatting import output
from tilewise.cli.options import common, database, give

__all__ = ["conform", "helion", "hostile", "memory", "page", "serve", "soak"]


@click.command()
@click.option(
    "--problems",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    default=(1_000, 100_000, 1_000_000),
    show_default=True,
    help="Stored problems; repeatable.",
)
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True, help="Seconds per round.")
@click.option("--connections", type=click.IntRange(1), default=64, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds; the median counts.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Also time a server of so many processes, if over 1.",
)
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def serve(
    sizes: tuple[int, ...],
    seconds: int,
    connections: int,
    rounds: int,
    workers: int,
    file: str | None,
    as_json: bool,
) -> None:
    """Time the service's look-ups with wrk, against a bare Starlette application."""
    from tilewise.benchmarks.service.serve import bench_serve
    from tilewise.cli.progress import working

    with working("serving") as progress:
        body = bench_serve(
            sizes, seconds=seconds, connections=connections, rounds=rounds, workers=workers, say=progress
        )
    give(body, as_json, file, _show_serve)


def _show_serve(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['connections']} connections, one worker; {body['machine']}", title_justify="left")
    more = ("first answer s", "unseen/s", "unseen ratio", "unseen p99 ms", "nearest ms", "MB")
    for heading in ("problems", "hello/s", "look-ups/s", "ratio", "p99 ms", *more):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        cells = (f"{row[key]}" for key in ("problems", "hello_per_second", "per_second", "ratio", "p99_ms"))
        unseen = ("unseen_per_second", "unseen_ratio", "unseen_p99_ms")
        rest = (f"{row[key]}" for key in ("first_answer_s", *unseen, "nearest_p50_ms"))
        table.add_row(*cells, *rest, str(row["memory_mb"]["hot"]))
    output().print(table)
    for row in body["rows"]:
        if several := row.get("several"):
            click.echo(
                f"{several['workers']} workers, {row['problems']} problems: {several['per_second']} look-ups/s, "
                f"{several['ratio_to_one']} of one worker's; p99 {several['p99_ms']} ms"
            )


@click.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option("--clients", type=click.IntRange(1), default=32, show_default=True)
@click.option(
    "--kills", type=click.IntRange(0), default=50, show_default=True, help="Kills of the server and of its jobs."
)
@click.option("--jobs", type=click.IntRange(0), default=40, show_default=True, help="Jobs to submit.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the times and targets of kills.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def soak(
    minutes: float, clients: int, kills: int, jobs: int, seed: int, file: str | None, url: str | None, as_json: bool
) -> int:
    """Load a service with all kinds of requests while its processes are killed at random.

    Exit with 1 if a promise was broken: an acknowledged write lost, a wrong answer, a 5xx, a job lost or ended twice.
    --db names a new, empty database; the default is a temporary SQLite file.
    """
    from tilewise.benchmarks.service.soak import soak as run
    from tilewise.cli.progress import working

    with working("soaking:") as say:
        body = run(seconds=60 * minutes, clients=clients, kills=kills, jobs=jobs, url=url, seed=seed, say=say)
    give(body, as_json, file, show_promises)
    return 1 if body["faults"] else 0


@click.command()
@click.option(
    "--clients",
    type=click.IntRange(1),
    multiple=True,
    default=(8, 64),
    show_default=True,
    help="Hostile readers; repeatable.",
)
@click.option("--half-open", type=click.IntRange(1), default=1500, show_default=True, help="Half-open requests.")
@click.option("--files", type=click.IntRange(64), default=1024, show_default=True, help="Open files of the server.")
@click.option("--seconds", type=click.IntRange(1), default=20, show_default=True, help="Seconds for each row.")
@click.option(
    "--problems", type=click.IntRange(1), default=100_000, show_default=True, help="Problems of the imported export."
)
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def hostile(
    clients: tuple[int, ...],
    half_open: int,
    files: int,
    seconds: int,
    problems: int,
    file: str | None,
    as_json: bool,
) -> None:
    """Time look-ups of stored problems beside readers that ask what costs most, and beside half-open requests; then
    import an export of many problems, and a file made to fill the memory."""
    from tilewise.benchmarks.service.hostile import bench_hostile
    from tilewise.cli.progress import working

    with working("serving") as progress:
        body = bench_hostile(clients, half_open, files=files, seconds=seconds, problems=problems, say=progress)
    give(body, as_json, file, _show_hostile)


def _show_hostile(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        click.echo(
            f"{row['readers']} {row['kind']}: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms, slowest "
            f"{row['slowest_ms']} ms, /readyz at most {row['readyz_slowest_ms']} ms; {row['statuses']}; {row['others']}"
        )
    for row in body["imports"]:
        click.echo(
            f"{row['mb']} MB of {row['file']}: {row['status']} after {row['seconds']} s, {row['added']} trials added; "
            f"the server took {row['server_mb']} MB, its process {row['process_mb']} MB"
        )


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--trials",
    type=click.IntRange(2),
    multiple=True,
    default=(3_692, 50_000),
    show_default=True,
    help="Trials of the problem: the first ones of a file, and copies if it has fewer; repeatable.",
)
@click.option("--loads", type=click.IntRange(1), default=5, show_default=True, help="Loads of each page.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def page(files: tuple[str, ...], trials: tuple[int, ...], loads: int, file: str | None, as_json: bool) -> None:
    """Time how long the page of a problem in FILES, such as recorded landscapes, takes until it is usable: its first
    chart drawn, its table filled. Chromium opens it."""
    from tilewise.benchmarks.service.page import bench_page
    from tilewise.cli.progress import working

    with working("loading") as progress:
        body = bench_page(files, trials, loads=loads, say=progress)
    give(body, as_json, file, _show_page)


def _show_page(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        median = row["median"]
        click.echo(
            f"{row['trials']} trials: usable after {median['usable_ms']} ms (first load {row['first']['usable_ms']}); "
            f"first byte {median['first_byte_ms']}, page {median['page_ms']}, trials {median['trials_ms']} ms"
        )


@click.command()
@click.option("--cases", type=click.IntRange(1), default=12_000, show_default=True, help="Cases per caller.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the cases.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def conform(cases: int, seed: int, file: str | None, as_json: bool) -> int:
    """Send requests that are generated from the server's OpenAPI document, with a token and without.

    Exit with 1 if an answer is a 5xx, or is not as documented.
    """
    from tilewise.benchmarks.service.conform import bench_conform
    from tilewise.cli.progress import working

    with working("sending") as progress:
        body = bench_conform(cases, seed=seed, say=progress)
    give(body, as_json, file, _show_conform)
    return 1 if any(row["faults"] for row in body["rows"]) else 0


def _show_conform(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        click.echo(
            f"{row['cases']} cases of a {row['caller']}: {sum(row['faults'].values())} faults; {row['statuses']}"
        )
        for name, count in row["faults"].items():
            click.echo(f"  {count} x {name}")
        for example in row["examples"]:
            click.echo(example)


@click.command()
@click.option(
    "--workers", type=click.IntRange(1), multiple=True, default=(1, 2, 4), show_default=True, help="Repeatable."
)
@click.option("--problems", type=click.IntRange(1), default=10_000, show_default=True, help="Stored problems.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def memory(workers: tuple[int, ...], problems: int, file: str | None, as_json: bool) -> None:
    """Read the memory of a server's processes, just started and after questions of all kinds."""
    from tilewise.benchmarks.service.memory import bench_memory
    from tilewise.cli.progress import working

    with working("serving") as progress:
        body = bench_memory(workers, problems, say=progress)
    give(body, as_json, file, _show_memory)


def _show_memory(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        for when in ("idle", "asked"):
            click.echo(
                f"{row['workers']} workers, {when}: {row[when]['processes']} processes take {row[when]['all_mb']} MB, "
                f"the largest {row[when]['largest_mb']} MB"
            )


@click.command()
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def helion(file: str | None, as_json: bool) -> None:
    """Run Helion's real package, which has to be installed with jax, with its remote cache on a server."""
    from tilewise.benchmarks.service.helion import bench_helion

    give(bench_helion(), as_json, file, _show_helion)


def _show_helion(body: dict[str, Any]) -> None:
    for number, run in enumerate(body["processes"], 1):
        right = "right" if run["right"] else "wrong"
        output().print(f"process {number}: {right}, {json.dumps(run['counters'])}")
    output().print(f"records: {len(body['records'])}")
