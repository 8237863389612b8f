"""Device time of kernels on an NVIDIA GPU as CUPTI records it: from the first block's start to the last one's end.

Chosen by measurement (`tilewise bench timing`, docs/timing.md): events around a launch add 2.7 to 3.0 us to the
kernel's time, and a graph's replay 0.5 to 0.7 us. CUPTI is reached through torch's profiler, which comes with torch.

Before each run a buffer of twice the L2 cache is *read*. Zeroing it, as `triton.testing.do_bench` does, made a kernel
of 15 us 6 us slower, probably because the cache is then full of lines that are written back while the kernel runs.
Reading gives the same times, within 1.2%, as rotating inputs that together exceed the cache, and needs no copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewise.tuner.devices.cuda.event_timer import CYCLES_PER_US, CudaTimer
from tilewise.tuner.devices.measured.accelerator import Job, Run, Timer, turns

__all__ = ["CuptiTimer", "Record", "choose_timer", "split"]

Record = tuple[str, int, int]
"""A kernel's name, and its start and duration in nanoseconds."""

IDLE_SECONDS, WAKE_SECONDS = 0.02, 0.01
"""A device idle for longer than the first is kept busy for the second before timing: its clocks may have dropped."""

LAUNCHES = 256
"""Launches enqueued at once when the host must stay ahead: a quarter of the queue's capacity."""


class CuptiTimer(Timer):
    """A timer that finds kernels by name, so other work between them (clearing the cache, resetting a buffer) does no
    harm.

    A run of several kernels lasts from the start of its first to the end of its last. The host stays ahead of the
    device, so that the gaps between them are the device's own.
    """

    name = "cupti"

    def __init__(self, index: int = 0) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._device = torch.device("cuda", index)
        cache_bytes = torch.cuda.get_device_properties(self._device).L2_cache_size
        self._eviction = torch.zeros(2 * cache_bytes // 4, dtype=torch.int32, device=self._device)
        self._used = 0.0

    def samples_us(
        self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None, warm: bool = False
    ) -> list[float]:
        (samples,) = self.rounds_us([Job(run, kernels, before)], count, warm)
        return samples

    def rounds_us(self, jobs: Sequence[Job], count: int, warm: bool = False) -> list[list[float]]:
        self._wake()
        several = any(len(job.kernels) > 1 for job in jobs)
        host_us = self._host_us(jobs, warm) if several else 0.0
        launches = sum(len(job.kernels) + 2 for job in jobs)
        chunk = max(1, LAUNCHES // launches) if several else count

        orders = turns(len(jobs), count)

        def rounds() -> None:
            for first in range(0, count, chunk):
                batch = orders[first : first + chunk]
                if several:
                    self._cuda._sleep(int(2 * host_us * len(batch) * CYCLES_PER_US))
                for order in batch:
                    self._round([jobs[index] for index in order], warm)

        records = self._recorded(rounds)
        self._used = time.perf_counter()
        return split(records, [job.kernels for job in jobs], orders)

    def names(self, run: Run) -> list[str]:
        """Return the kernels that a function launches, in order."""
        return [name for name, _, _ in self._recorded(run)]

    def works(self) -> bool:
        """Return whether kernels are recorded at all: CUPTI may be missing, or forbidden to this user."""
        try:
            return bool(self.names(self._eviction.max))
        except RuntimeError:
            return False

    def _round(self, jobs: Sequence[Job], warm: bool) -> None:
        for job in jobs:
            if job.before is not None:
                job.before()
            if not warm:
                self._eviction.max()
            job.run()

    def _host_us(self, jobs: Sequence[Job], warm: bool) -> float:
        """Return the microseconds that the host takes for a round."""
        self._round(jobs, warm)
        self._cuda.synchronize(self._device)
        began = time.perf_counter()
        self._round(jobs, warm)
        host_us = (time.perf_counter() - began) * 1e6
        self._cuda.synchronize(self._device)
        return host_us

    def _recorded(self, run: Callable[[], Any]) -> list[Record]:
        """Return the kernels that ran on the device during `run`, in order; memory operations are left out."""
        from torch._C._autograd import DeviceType
        from torch.autograd.profiler import profile

        with profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiled:
            run()
            self._cuda.synchronize(self._device)
        found = [
            (event.name(), event.start_ns(), event.duration_ns())
            for event in profiled.kineto_results.events()
            if event.device_type() == DeviceType.CUDA and not event.name().startswith(("Memset", "Memcpy"))
        ]
        return sorted(found, key=lambda record: record[1])

    def _wake(self) -> None:
        if time.perf_counter() - self._used < IDLE_SECONDS:
            return
        end = time.perf_counter() + WAKE_SECONDS
        while time.perf_counter() < end:
            self._eviction.max()
            self._cuda.synchronize(self._device)


def split(
    records: Sequence[Record], jobs: Sequence[Sequence[str]], orders: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Return microseconds by job and round, from records sorted by start.

    `jobs` holds the kernels of each job, `orders` the order of the jobs in each round. Raises `RuntimeError` if the
    records do not match the launches exactly: some may have been lost.
    """
    known = {name for kernels in jobs for name in kernels}
    ours = [record for record in records if record[0] in known]
    launched = [name for order in orders for index in order for name in jobs[index]]
    if [name for name, _, _ in ours] != launched:
        raise RuntimeError(f"CUPTI recorded {len(ours)} kernels of {len(launched)} launched, or in another order")
    times: list[list[float]] = [[] for _ in jobs]
    at = 0
    for order in orders:
        for index in order:
            _, start, _ = ours[at]
            at += len(jobs[index])
            _, last, duration = ours[at - 1]
            times[index].append((last + duration - start) / 1e3)
    return times


def choose_timer(index: int = 0) -> Timer:
    """Return the CUPTI timer if it works, else the event timer. One per device, so that its times stay comparable."""
    timer = CuptiTimer(index)
    return timer if timer.works() else CudaTimer(index)
