"""`tilewise serve`."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack

import click

from tilewise.cli.options import common, database, log_level_option, print_json
from tilewise.errors import Unavailable, UsageError
from tilewise.settings import read_settings

__all__ = ["listen", "serve"]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port", default=8300, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that answer on the port; one of them runs jobs.",
)
@log_level_option("Lowest level to log, as JSON lines on stderr; debug logs every request.")
@click.option(
    "--reads",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="Open look-ups to everybody, or only to holders of a token (tilewise token create).",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of a proxy whose X-Forwarded-For tells the client's address; repeatable.",
)
@click.option(
    "--writes-a-minute",
    type=click.IntRange(1),
    default=120,
    show_default=True,
    help="Limit of writes per minute for each token.",
)
@click.option(
    "--jobs-a-token",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Limit of jobs that wait or run for each token.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="FILE.py:SPEC",
    help="A kernel of your own to serve and tune as well; repeatable.",
)
@click.option(
    "--tune-misses", is_flag=True, help="Submit a job of the lowest priority for a look-up that finds nothing."
)
@click.option(
    "--jobs/--no-jobs", default=True, show_default=True, help="Run jobs on this machine, or only accept them."
)
@database
@common
def serve(
    host: str,
    port: int,
    workers: int,
    log_level: str,
    reads: str,
    proxies: tuple[str, ...],
    writes_a_minute: int,
    jobs_a_token: int,
    kernels: tuple[str, ...],
    jobs: bool,
    tune_misses: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Serve the stored configs over REST.

    Writing needs a token (tilewise token create). The database is created if it is missing. Ctrl-C or SIGTERM ends the
    service after the requests in flight. With --json, the address is also printed on stdout once the service is ready.
    """
    from tilewise.api.server import run
    from tilewise.api.service.service import Options
    from tilewise.db.signed_kernels import SignedKernels
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.kernels.signing import arrivals_here

    for proxy in proxies:
        _check_network(proxy)
    for kernel in kernels:
        registry.register(kernel)
    store_url = url or read_settings().database_url
    with open_store(store_url, create=True) as store:  # reports a faulty database here, in one line
        arrivals = arrivals_here(SignedKernels(store.database))
        for line in arrivals.receive() if arrivals else ():
            click.echo(f"tilewise: {line}", err=True)
    options = Options(
        reads_open=reads == "open",
        writes_a_minute=writes_a_minute,
        run_jobs=jobs,
        tune_misses=tune_misses,
        jobs_a_token=jobs_a_token,
    )
    with ExitStack() as opened:
        ports = [opened.enter_context(one) for one in listen(host, port, workers)]
        ready = _announce_as_json if as_json else _announce
        run(store_url, ports, ready, options=options, proxies=proxies, log_level=log_level)


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise UsageError(
            f"--trusted-proxy is {text!r}; expected an address or a network, such as 10.0.0.7 or 10.0.0.0/24"
        ) from None


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Return sockets that listen at the address. Raises `Unavailable` if it is taken or not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        alone = socket.create_server(address[:2], family=family)
        if count == 1:
            return [alone]
        with alone:  # several may share the port: only one that shares it with nobody finds another server there
            taken = alone.getsockname()[:2]
        return [socket.create_server(taken, family=family, reuse_port=True) for _ in range(count)]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host or --port"
        ) from error


def _announce(url: str) -> None:
    click.echo(f"tilewise serves on {url}", err=True)


def _announce_as_json(url: str) -> None:
    _announce(url)
    print_json({"url": url})
