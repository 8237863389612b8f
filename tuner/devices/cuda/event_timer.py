"""Device time of any work on an NVIDIA GPU, however long the host takes to launch it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewise.tuner.devices.measured.accelerator import Timer
from tilewise.tuner.measure.adaptive_timing import summarise
from tilewise.tuner.measure.outcome import Timing

__all__ = ["CudaTimer"]

MIN_SAMPLES = 20
BATCH = 16
"""Runs enqueued at once: few enough for the launch queue (1024 entries) even if one run is a dozen kernels."""

CYCLES_PER_US = 2000
"""No NVIDIA GPU sustains a faster multiprocessor clock than this; with a slower clock the wait is only longer."""


class CudaTimer(Timer):
    """A timer with events around each single run, cold caches, and a host that stays ahead of the device.

    Before each timed run a buffer of twice the L2 cache is zeroed (the policy of `triton.testing.do_bench`), so
    nothing that the run reads is cached. Runs are enqueued in batches behind a kernel that only waits. A batch counts
    only if the host had enqueued all of it before the device reached its first timed region. So no figure contains
    host time, neither for one kernel of 3 us nor for an eager chain of ten. Every figure contains the gap of an event
    pair, `floor_us`.
    """

    name = "events"

    def __init__(self, index: int = 0) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._device = torch.device("cuda", index)
        cache_bytes = torch.cuda.get_device_properties(self._device).L2_cache_size
        self._eviction = torch.empty(2 * cache_bytes // 4, dtype=torch.int32, device=self._device)
        self._warm(0.2)

    def device_time_us(
        self, run: Callable[[], Any], *, reset: Callable[[], Any] | None = None, seconds: float = 0.05
    ) -> Timing:
        """Return the median, 20th and 80th percentile over at least 20 runs and `seconds` of wall time.

        `reset` is called before each run, outside the timed region. Raises `RuntimeError` if the function waits for
        the device, because its device time cannot then be separated from outside.
        """
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while not samples or time.perf_counter() < end:
            samples += self.samples_us(run, (), MIN_SAMPLES, reset)
        return summarise(samples)

    def samples_us(
        self,
        run: Callable[[], Any],
        kernels: Sequence[str],
        count: int,
        before: Callable[[], Any] | None = None,
        warm: bool = False,
    ) -> list[float]:
        """Return the times of everything that a run launches; `kernels` is ignored."""
        host_us = self._prepare(run, before, warm)
        samples: list[float] = []
        while len(samples) < count:
            samples += self._batch_ahead(run, before, warm, host_us)
        return samples[:count]

    def floor_us(self) -> float:
        """Return the measured time of an empty region."""
        return self.device_time_us(lambda: None).time_us

    def _prepare(self, run: Callable[[], Any], reset: Callable[[], Any] | None, warm: bool) -> float:
        """Run until all other caches are warm and the clocks are up; return the host's microseconds per run."""
        self._once(run, reset, warm)
        self._cuda.synchronize(self._device)
        self._warm(0.01)
        begin = time.perf_counter()
        self._once(run, reset, warm)
        host_us = (time.perf_counter() - begin) * 1e6
        self._cuda.synchronize(self._device)
        return host_us

    def _once(self, run: Callable[[], Any], reset: Callable[[], Any] | None, warm: bool) -> None:
        self._before(reset, warm)
        run()

    def _before(self, reset: Callable[[], Any] | None, warm: bool) -> None:
        if reset is not None:
            reset()
        if not warm:
            self._eviction.zero_()

    def _batch_ahead(
        self, run: Callable[[], Any], reset: Callable[[], Any] | None, warm: bool, host_us: float
    ) -> list[float]:
        """Return a batch that the host enqueued in time; each failed attempt halves the batch and doubles the wait."""
        count, margin = BATCH, 2.0
        for _ in range(8):
            samples = self._batch(run, reset, warm, count, margin * (host_us + 20) * count)
            if samples is not None:
                return samples
            count, margin = max(1, count // 2), margin * 4
        raise RuntimeError("the timed function waits for the device, so its device time cannot be measured")

    def _batch(
        self, run: Callable[[], Any], reset: Callable[[], Any] | None, warm: bool, count: int, wait_us: float
    ) -> list[float] | None:
        pairs = [(self._event(), self._event()) for _ in range(count)]
        self._cuda._sleep(int(wait_us * CYCLES_PER_US))
        for start, end in pairs:
            self._before(reset, warm)
            start.record()
            run()
            end.record()
        in_time = not pairs[0][0].query()
        self._cuda.synchronize(self._device)
        return [start.elapsed_time(end) * 1e3 for start, end in pairs] if in_time else None

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)

    def _warm(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(BATCH):
                self._eviction.zero_()
            self._cuda.synchronize(self._device)
