"""`tilewise worker`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import common, database, log_level_option, print_json
from tilewise.errors import UsageError
from tilewise.settings import read_settings

if TYPE_CHECKING:
    from tilewise.api.jobs.remote import Server

__all__ = ["worker"]


@click.command()
@click.option(
    "--devices", metavar="LIST", help="Devices, such as cuda:0,model:Ascend910B4.  [default: every NPU and GPU]"
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="FILE.py:SPEC",
    help="A kernel of your own whose jobs to run as well; repeatable.",
)
@click.option("--server", metavar="URL", help="A server whose jobs to run, instead of those of a database.")
@click.option("--token", help="A token with the right `work` there (default: $TILEWISE_TOKEN, which no list shows).")
@log_level_option("Lowest level to log, as JSON lines on stderr.")
@database
@common
def worker(
    devices: str | None,
    kernels: tuple[str, ...],
    server: str | None,
    token: str | None,
    log_level: str,
    url: str | None,
    as_json: bool,
) -> None:
    """Run the jobs of a database or a server on this host's devices, without a port.

    A server on the same database (tilewise serve) accepts the jobs. With --server, the worker needs no database: it
    asks that server for all. Each device is opened once at the start, so that the server knows its name and toolchain.
    On SIGTERM or Ctrl-C, trials that run are finished, and jobs go back to the queue. With --json, the devices are also
    printed on stdout once the worker is ready.
    """
    from tilewise.api.http import logs
    from tilewise.api.jobs.worker import lanes_of, run
    from tilewise.kernels import registry

    if server and url:
        raise UsageError("--server and --db exclude each other: the server has the database")
    for kernel in kernels:
        registry.register(kernel)
    place = _server(server, token) if server else _database(url)
    ids = [one.strip() for one in devices.split(",")] if devices is not None else []
    lanes = lanes_of(ids, lambda line: click.echo(f"tilewise: {line}", err=True))
    logs.configure(log_level)

    def announce() -> None:
        click.echo(f"tilewise works on {', '.join(lane.id for lane in lanes)}", err=True)
        if as_json:
            print_json({"devices": [{"id": lane.id, "name": lane.name, "toolchain": lane.toolchain} for lane in lanes]})

    run(place, lanes, announce)


def _database(url: str | None) -> str:
    """Return the URL of a database that opens."""
    from tilewise.db.sql.database import waiting
    from tilewise.db.sql.sql_store import open_store

    found = waiting(url or read_settings().database_url, 30.0)
    open_store(found, create=True).close()
    return found


def _server(url: str, token: str | None) -> Server:
    """Return a server that answers and lets the token's holder work."""
    from tilewise.api.jobs.remote import Link, Server

    found = Server(url, token or read_settings().token)
    with closing(Link(found)) as link:
        link.check()
    return found
