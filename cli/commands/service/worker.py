"""`tilewise worker`."""

from __future__ import annotations

import click

from tilewise.cli.options import common, database, log_level_option, print_json
from tilewise.settings import read_settings

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
@log_level_option("Lowest level to log, as JSON lines on stderr.")
@database
@common
def worker(devices: str | None, kernels: tuple[str, ...], log_level: str, url: str | None, as_json: bool) -> None:
    """Run the jobs of a database on this host's devices, without a port.

    A server on the same database (tilewise serve) accepts the jobs. Each device is opened once at the start, so that
    the server knows its name and toolchain. On SIGTERM or Ctrl-C, trials that run are finished, and jobs go back to the
    queue. With --json, the devices are also printed on stdout once the worker is ready.
    """
    from tilewise.api.http import logs
    from tilewise.api.jobs.worker import lanes_of, run
    from tilewise.db.sql.database import waiting
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry

    for kernel in kernels:
        registry.register(kernel)
    store_url = waiting(url or read_settings().database_url, 30.0)
    open_store(store_url, create=True).close()  # reports a faulty database here, in one line
    ids = [one.strip() for one in devices.split(",")] if devices is not None else []
    lanes = lanes_of(ids, lambda line: click.echo(f"tilewise: {line}", err=True))
    logs.configure(log_level)

    def announce() -> None:
        click.echo(f"tilewise works on {', '.join(lane.id for lane in lanes)}", err=True)
        if as_json:
            print_json({"devices": [{"id": lane.id, "name": lane.name, "toolchain": lane.toolchain} for lane in lanes]})

    run(store_url, lanes, announce)
