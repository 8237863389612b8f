"""`tilewise fleet`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from tilewise.cli.options import Group, common, database, print_json
from tilewise.settings import read_settings

__all__ = ["fleet"]

F = TypeVar("F", bound=Callable[..., Any])

_DEVICES = click.option(
    "--devices", metavar="LIST", help="Devices, such as cuda:0,model:Ascend910B4.  [default: every NPU and GPU]"
)


def _address(purpose: str) -> Callable[[F], F]:
    return click.option(
        "--address", metavar="HOST:PORT", help=f"Ray cluster {purpose}, of which this machine is a node."
    )


@click.group(cls=Group)
def fleet() -> None:
    """Run a database's jobs on all devices of a Ray cluster."""


@fleet.command()
@_DEVICES
@common
def offer(devices: str | None, as_json: bool) -> None:
    """Offer this host's devices to a cluster: note them, and print the value of `ray start --resources`.

    Run it on each host with devices before Ray starts there. Each device is opened once. With --json, the devices are
    printed instead.
    """
    from tilewise.tuner.cluster.offer import note, resources_of

    note(lanes := _lanes(devices))
    print_json({"devices": [asdict(lane) for lane in lanes]} if as_json else resources_of(lanes))


@fleet.command("settings")
@common
def settings_(as_json: bool) -> None:
    """Print Ray's settings for all hosts of a fleet, so that a lost head is noticed within ten seconds.

    They are variables of the environment in which `ray start` and `tilewise fleet up` run.
    """
    from tilewise.tuner.cluster.ray_engine import SETTINGS

    if as_json:
        print_json(SETTINGS)
    else:
        click.echo("\n".join(f"{name}={value}" for name, value in SETTINGS.items()))


@fleet.command()
@_address("to use instead of a local one")
@_DEVICES
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="FILE.py:SPEC",
    help="A kernel of your own whose jobs to run as well; repeatable. The file has to be on all nodes.",
)
@database
@click.option("--debug", is_flag=True, expose_value=False, help="On an error, show the traceback.")
def up(address: str | None, devices: str | None, kernels: tuple[str, ...], url: str | None) -> None:
    """Keep an actor on each device of a Ray cluster, which runs the jobs of a database, and say what is missing.

    Without --address, start a cluster on this machine with its own devices or those of --devices. If the head is lost,
    connect again. On SIGTERM or Ctrl-C, trials that run are finished, and jobs go back to the queue.
    """
    from tilewise.api.cluster.up import keep_up
    from tilewise.db.sql.database import waiting
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.tuner.cluster.offer import note
    from tilewise.tuner.cluster.ray_engine import check_answers, import_ray

    if address is not None and devices is not None:
        raise click.UsageError("--devices names those of a local cluster; nodes of another offer their own")
    import_ray()
    if address is not None:
        check_answers(address)
    for kernel in kernels:
        registry.register(kernel)
    store_url = waiting(url or read_settings().database_url, 30.0)
    open_store(store_url, create=True).close()  # reports a faulty database here, in one line
    lanes = _lanes(devices) if address is None else []
    if lanes:
        note(lanes)
    keep_up(address, store_url, kernels, lanes, lambda line: click.echo(f"tilewise: {line}", err=True))


@fleet.command()
@_address("to look at  [default: the one that this machine is a node of]")
@common
def status(address: str | None, as_json: bool) -> int:
    """List the devices of a Ray cluster and where their actors run, and what its farm compiled. Exit with 1 if any
    device is missing.
    """
    from tilewise.api.cluster.supervisor import look
    from tilewise.tuner.cluster.farm import farm_report
    from tilewise.tuner.cluster.ray_engine import connected

    with connected(address or "auto") as ray:
        members, farm = look(ray), farm_report(ray)
    up = sum(member.is_up for member in members)
    if as_json:
        rows = [
            {"resource": member.resource, "number": member.number, "up": member.is_up}
            | ({} if member.report is None else asdict(member.report))
            for member in members
        ]
        body = {"devices": rows, "up": up, "missing": len(members) - up}
        print_json(body | ({"farm": asdict(farm)} if farm else {}))
    else:
        for member in members:
            click.echo(str(member))
        click.echo(f"{up} of {len(members)} devices are up")
        if farm:
            click.echo(str(farm))
    return 0 if members and up == len(members) else 1


def _lanes(devices: str | None) -> list[Any]:
    from tilewise.api.jobs.worker import lanes_of

    ids = [one.strip() for one in devices.split(",")] if devices is not None else []
    return lanes_of(ids, lambda line: click.echo(f"tilewise: {line}", err=True))
