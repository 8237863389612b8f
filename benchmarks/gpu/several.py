"""`tilewise bench several`: several problems on all GPUs of a host at once, and the faults of one beside another.

The same problems are tuned on one GPU and then on all, each time from nothing: with an empty database and an empty
cache of compiled code. Seconds are counted from the opening of the devices, which were open once before. Then sound
configs are timed on the first GPU: twice alone, and once while configs on the second crash, hang and write where they
should not.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.gpu import faults
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import Unavailable
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.devices.measured.device import Limits
from tilewise.tuner.devices.registry import chips, open_device
from tilewise.tuner.devices.several import open_free
from tilewise.tuner.measure.robust_stats import quantile
from tilewise.tuner.tuning.side_by_side import SideBySide
from tilewise.tuner.tuning.tune import tune

__all__ = ["bench_several", "timed_beside", "tuned_on"]

_SOUND = 12
"""Sound configs that are timed beside the faults."""

_FAULTS = (*faults.ON_DEVICE, "segfault", "abort")
"""Each costs two processes and up to ten seconds, so they are fewer than in `bench faults`."""

Tell = Callable[[str], None]


def bench_several(
    spec: KernelSpec, problems: Sequence[Problem], *, trials: int, rounds: int, progress: Tell
) -> dict[str, Any]:
    """Run the benchmark and return its JSON. Raises `Unavailable` if there are fewer than two free GPUs."""
    if len(ids := chips("cuda")) < 2:
        raise Unavailable("this host has fewer than two GPUs; run it where nvidia-smi lists several")
    with ExitStack() as held:
        for device in open_free("cuda"):
            held.enter_context(device)  # reads PyTorch and Triton from the disk, which is no part of either time
    progress("one GPU")
    with _opened(lambda: [open_device(ids[0])]) as (devices, one_open):
        one = tuned_on(devices, spec, problems, trials)
        name, toolchain = devices[0].target.name, devices[0].toolchain
    progress("all GPUs")
    with _opened(lambda: open_free("cuda")) as (devices, several_open):
        several = tuned_on(devices, spec, problems, trials)
    seconds = {"one": one_open + one["seconds"], "several": several_open + several["seconds"]}
    module = "tilewise.benchmarks.gpu.faults"
    limits = Limits(run_seconds=5.0, floors=0, growth_bytes=2 << 30, disk_bytes=1 << 30)
    how: dict[str, Any] = {
        "limits": limits,
        "runtime": f"{module}:FaultyRuntime",
        "compile": f"{module}:compile_config",
    }
    progress("faults beside sound configs")
    with CudaDevice(0) as sound, CudaDevice(1, **how) as faulty:
        beside = timed_beside(sound, faulty, rounds)
    return {
        **header(f"tilewise bench several --shapes {len(problems)}", "measured", name),
        "toolchain": toolchain,
        "kernel": spec.name,
        "shapes": [dict(problem.dims) for problem in problems],
        "trials": trials,
        "gpus": len(devices),
        "seconds": {which: round(whole, 1) for which, whole in seconds.items()},
        "seconds_to_open": {"one": round(one_open, 1), "several": round(several_open, 1)},
        "speed_up": round(seconds["one"] / seconds["several"], 3),
        "seconds_by_tuning": {"one": one["tunings"], "several": several["tunings"]},
        "beside_faults": beside,
    }


@contextmanager
def _opened(open_them: Callable[[], list[Device]]) -> Iterator[tuple[list[Device], float]]:
    """Open devices with empty caches for the block; yield them and the seconds that this took."""
    with _empty_caches(), ExitStack() as held:
        began = time.monotonic()
        devices = [held.enter_context(device) for device in open_them()]
        yield devices, time.monotonic() - began


@contextmanager
def _empty_caches() -> Iterator[None]:
    """Have Triton compile everything anew in the block."""
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TRITON_CACHE_DIR")
            if before is not None:
                os.environ["TRITON_CACHE_DIR"] = before


def tuned_on(devices: Sequence[Device], spec: KernelSpec, problems: Sequence[Problem], trials: int) -> dict[str, Any]:
    """Tune the problems on these devices into an empty store; return the seconds, in all and of each device's tunings.

    Raises `Unavailable` if a device is lost, since fewer then did the work.
    """
    tunings: dict[str, list[float]] = {device.id: [] for device in devices}
    with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/tiles.db") as store:

        def work(number: int, problem: Problem, device: Device) -> None:
            begun = time.monotonic()
            tune(spec, problem.dims, problem.dtype, device=device, trials=trials, search="random", db=store)
            tunings[device.id].append(round(time.monotonic() - begun, 1))

        lost: list[Unavailable] = []
        began = time.monotonic()
        SideBySide(work, stopping=threading.Event(), lost=lambda _, error: lost.append(error)).run(problems, devices)
        if lost:
            raise lost[0]
        return {"seconds": time.monotonic() - began, "tunings": tunings}


def timed_beside(sound: Device, faulty: Device, rounds: int) -> dict[str, Any]:
    """Time sound configs on one device, twice alone and once while faults happen on the other.

    Returns how far the times changed, as ratios to the first time alone, and how many faults happened meanwhile.
    """
    spec, problem = faults.SPEC, faults.PROBLEM
    good = faults.good_configs()[:_SOUND]
    wrong = faults.faulty_configs(_FAULTS, len(_FAULTS))
    enough, happened = threading.Event(), list[str]()

    def fail() -> None:
        while not enough.is_set():
            for config in wrong:
                for outcome in faulty.evaluate(spec, problem, [config]):
                    happened.append(str(outcome.status))
                if enough.is_set():
                    return

    def times() -> list[float]:
        outcomes = [outcome for config in good for outcome in sound.race(spec, problem, [config], rounds)]
        return [quantile(outcome.timing.times_us, 0.5) for outcome in outcomes if outcome.timing is not None]

    times()  # compiles, and brings the chip to its clock
    first, again = times(), times()
    failing = threading.Thread(target=fail, daemon=True)
    failing.start()
    while len(happened) < 2 and failing.is_alive():
        time.sleep(0.1)
    passes, before = list[list[float]](), len(happened)
    while failing.is_alive() and (len(passes) < 3 or len(happened) - before < len(wrong)):
        passes.append(times())
    enough.set()
    failing.join()
    beside = [statistics.median(column) for column in zip(*passes, strict=True)]
    return {
        "configs": len(first),
        "faults": len(happened),
        "alone_again": _changes(first, again),
        "beside_faults": _changes(first, beside),
    }


def _changes(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    ratios = [later / earlier for earlier, later in zip(first, second, strict=True)]
    return {
        "lowest": round(min(ratios), 4),
        "median": round(statistics.median(ratios), 4),
        "highest": round(max(ratios), 4),
    }
