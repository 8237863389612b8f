"""`tilewise worker`: a process without a port that runs jobs of a database or a server on its host's devices."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence

from tilewise.api.jobs.processes import ProcessExecutor
from tilewise.api.jobs.runner import Runner
from tilewise.api.jobs.work import Place, open_work
from tilewise.db.workers import Lane
from tilewise.errors import Unavailable
from tilewise.kernels.signing import arrivals_here
from tilewise.tuner.devices.registry import FAMILIES, chips, choose, open_device

__all__ = ["describe", "lanes_of", "run"]


def lanes_of(ids: Sequence[str], told: Callable[[str], None]) -> list[Lane]:
    """Return the lanes of these devices, by default of every chip of this host, each opened once for its toolchain.

    `told` hears of those that do not open. Raises `Unavailable` if none is left, and `UnknownDevice`.
    """
    wanted = list(dict.fromkeys(one for text in ids or _chips_here() for one in chips(choose(text))))
    lanes = []
    for device_id in wanted:
        try:
            lanes.append(describe(device_id))
        except Unavailable as error:
            told(f"{device_id} is left out: {error}")
    if not lanes:
        raise Unavailable(
            "this host has no accelerator that works; tilewise devices says why. Name others with --devices, such as "
            "model:Ascend910B4"
        )
    return lanes


def describe(device_id: str) -> Lane:
    """Open a device, and return its lane. Raises `Unavailable`."""
    with open_device(device_id) as device:
        return Lane(device_id, device.target.name, str(device.clock), device.toolchain)


def _chips_here() -> list[str]:
    return [row.id for family in FAMILIES.values() if not family.argument for row in family.rows() if row.available]


def run(place: Place, lanes: Sequence[Lane], ready: Callable[[], None]) -> None:
    """Run jobs until SIGTERM or SIGINT; then finish the trials that run, and give the jobs back to the queue."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with open_work(place) as work:
            arrivals = arrivals_here(work.kernels)
            runner = Runner(place, work.jobs, lambda: lanes, ProcessExecutor(), work.workers, arrivals=arrivals)
            runner.start()
            ready()
            stopped.wait()
            runner.drain()
            runner.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
