"""`tilewise serve`."""

from __future__ import annotations

import socket

import click

from tilewise.cli.options import common, database, print_json
from tilewise.errors import Unavailable
from tilewise.settings import read_settings

__all__ = ["serve"]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port", default=8300, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log, as JSON lines on stderr; debug has every request.",
)
@click.option(
    "--reads",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="Who may look up: everybody, or who has a token (tilewise token create).",
)
@click.option(
    "--writes-a-minute", type=click.IntRange(1), default=120, show_default=True, help="Writes a token may make."
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="FILE.py:SPEC",
    help="A kernel of your own to serve and tune, beside those of tilewise; repeatable.",
)
@click.option("--tune-misses", is_flag=True, help="Make look-ups that find nothing jobs of the least priority.")
@click.option("--jobs/--no-jobs", default=True, show_default=True, help="Whether to run jobs on this machine.")
@database
@common
def serve(
    host: str,
    port: int,
    log_level: str,
    reads: str,
    writes_a_minute: int,
    kernels: tuple[str, ...],
    jobs: bool,
    tune_misses: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Serve the stored configs over REST.

    Writing needs a token (tilewise token create). The database is created where it is missing. Ctrl-C or SIGTERM ends
    the service after the requests in flight. With --json the address is printed on stdout too, once the service is
    ready.
    """
    from tilewise.api.server import run
    from tilewise.api.service.service import Options
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry

    for kernel in kernels:
        registry.register(kernel)
    store_url = url or read_settings().database_url
    open_store(store_url, create=True).close()  # whatever is wrong with the database is said here, in one line
    options = Options(
        reads_open=reads == "open", writes_a_minute=writes_a_minute, run_jobs=jobs, tune_misses=tune_misses
    )
    with _listen(host, port) as listener:
        run(store_url, listener, _announce_as_json if as_json else _announce, options=options, log_level=log_level)


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; raises `Unavailable` where the address is taken or not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host, --port"
        ) from error


def _announce(url: str) -> None:
    click.echo(f"tilewise serves on {url}", err=True)


def _announce_as_json(url: str) -> None:
    _announce(url)
    print_json({"url": url})
