"""`tilewise retune`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import common, database, existing_url, print_json, wait_option

if TYPE_CHECKING:
    from tilewise.db.store import Store
    from tilewise.kernels.spec import KernelSpec
    from tilewise.tuner.devices.base import Device
    from tilewise.tuner.tuning.loop import Watcher
    from tilewise.tuner.tuning.retune import Retuned, Stale

__all__ = ["retune"]


@click.command()
@click.argument("kernels", nargs=-1)
@click.option("--stale", "wanted", is_flag=True, help="Time what is stale; without this it is listed only.")
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Begin no further problem after this time; the same command goes on.",
)
@wait_option
@database
@common
def retune(
    kernels: tuple[str, ...],
    wanted: bool,
    device: str,
    budget: float | None,
    wait: float | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Time the best configs of older toolchains and sources again, and show which bests changed.

    A problem is stale if its results on this device are all of another toolchain, or of another version of the
    kernel's source. With --stale, the ten best configs of each such problem and the default are timed, those of the
    slowest problem first. KERNELS are names, or path/to/file.py:SPEC for your own; without any, all that are stored.
    """
    from tilewise.db.sql.sql_store import open_store
    from tilewise.errors import UsageError
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.tuning.retune import find_stale
    from tilewise.tuner.tuning.retune import retune as run

    if device.startswith("replay:"):
        raise UsageError("a recorded landscape has no newer toolchain; name another device")
    if budget is not None and not wanted:
        raise UsageError("--budget limits what is timed; give --stale too")
    chosen = choose(device)
    with open_store(existing_url(url), create=False) as store, open_device(chosen, wait=wait) as opened:
        found: list[Stale] = []
        for spec in _specs(kernels, store, opened):
            of_kernel, refused = find_stale(store, opened, spec)
            found += of_kernel
            _say(refused)
        found.sort(key=lambda stale: -stale.time_us)
        if not wanted:
            _list(found, opened, as_json=as_json)
            return 0
        latest = None if budget is None else time.monotonic() + budget
        done: list[Retuned] = []
        for stale in found:
            if latest is not None and time.monotonic() >= latest:
                break
            done.append(run(stale, opened, store, _progress(as_json)))
            if not as_json:
                _show(done[-1])
    left = len(found) - len(done)
    if as_json:
        print_json({"results": [one.to_json() for one in done], "left": left})
    else:
        _sum_up(done, left)
    return 1 if any(one.after is None for one in done) else 0


def _specs(kernels: Sequence[str], store: Store, device: Device) -> Iterator[KernelSpec]:
    """Yield the specs of these kernels, or of all that have results on this device; name those that have no spec."""
    from tilewise.errors import TilewiseError
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.inference.kept_specs import only_kept_spec

    if kernels:
        yield from map(registry.load, kernels)
        return
    for name in store.kernels():
        if next(store.scopes(name, device.target.name), None) is None:
            continue
        kept = None if name in registry.names() else only_kept_spec(name, read_settings().data_folder)
        if kept is None and name not in registry.names():
            _say([f"{name} is left out: its spec is in a file of your own; name it as path/to/file.py:SPEC"])
            continue
        try:
            yield registry.load(f"{kept}:SPEC" if kept else name)
        except TilewiseError as error:
            _say([f"{name} is left out: {error}"])


def _progress(quiet: bool) -> Watcher | None:
    from tilewise.cli.progress import Progress

    return None if quiet else Progress()


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(f"tilewise: {line}", err=True)


def _list(found: Sequence[Stale], device: Device, *, as_json: bool) -> None:
    if as_json:
        print_json({"stale": [{**one.before.scope.to_json(), "moved": list(one.moved)} for one in found]})
        return
    for one in found:
        was = {"toolchain": one.before.scope.toolchain, "source": one.before.scope.source_hash[:8]}
        click.echo(f"{one.problem}: {' and '.join(f'the {name} was {was[name]}' for name in one.moved)}")
    more = "; --stale times their best configs again" if found else ""
    click.echo(f"{_problems(len(found))} {'is' if len(found) == 1 else 'are'} stale on {device.target.name}{more}")


def _show(one: Retuned) -> None:
    from tilewise.tuner.space.problem_checks import config_text

    former, after = one.stale.before.winner, one.after
    assert former is not None, "a stale problem has a winner"
    if after is None or after.winner is None:
        click.echo(f"{one.stale.problem}: {one.reason}")
        return
    best, time_us = config_text(after.winner.config), after.winner.time_us or 0.0
    if not one.flipped:
        click.echo(
            f"{one.stale.problem}: {best} is still the best, {former.time_us:.2f} us before, {time_us:.2f} us now"
        )
        return
    cost = f"takes {one.cost:.3f} times as long" if one.cost is not None else f"does not run now ({one.reason})"
    click.echo(f"{one.stale.problem}: {best} is the best now, {time_us:.2f} us; {config_text(former.config)} {cost}")


def _sum_up(done: Sequence[Retuned], left: int) -> None:
    flipped = [one for one in done if one.flipped]
    costs = [one.cost for one in flipped if one.cost is not None]
    cost = f"; the former bests take {max(costs):.3f} times as long at worst" if costs else ""
    more = f"; {_problems(left)} left, which the same command times" if left else ""
    click.echo(f"{_problems(len(done))} timed again, {len(flipped)} with another best{cost}{more}")


def _problems(count: int) -> str:
    return f"{count} problem{'s' * (count != 1)}"
