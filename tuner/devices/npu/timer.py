"""Clocks of an Ascend NPU, best first: MSPTI's records, the profiler's records, and events.

One clock is chosen when the device is opened and times everything there, so that its times stay comparable. A better
clock is trusted only if it records as many kernels as ran and agrees with the events on how long they took. The three
report in nanoseconds, microseconds and milliseconds, and units have changed between releases before.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.errors import Unavailable
from tilewise.tuner.devices.measured.accelerator import Job, Run, Timer, turns
from tilewise.tuner.devices.npu.records import ClockError, KernelRecord, read_kernel_details, run_times_us

if TYPE_CHECKING:
    import mspti
    import torch

__all__ = ["EVICTION_BYTES", "Choice", "EventTimer", "MsptiTimer", "NpuTimer", "ProfilerTimer", "choose_timer"]

EVICTION_BYTES = 192 << 20
"""Bytes read before each run to empty the L2 cache, which is 192 MiB on the largest parts and 96 MiB on the 910B4.
triton-ascend's own `get_empty_cache_for_benchmark` uses the same size."""

PROBES = 8
"""Reads of the eviction buffer that compare two clocks; each takes 0.12 to 0.25 ms."""

AGREEMENT = (0.5, 20.0)
"""Allowed range of the events' time of kernels, as a multiple of a recording clock's. Events include the gaps between
launches, but no gap makes 0.2 ms a thousand times as long."""


class NpuTimer(Timer):
    """A timer on an NPU that empties the cache by reading `eviction`, a tensor of `EVICTION_BYTES` on the device.

    Starting a measurement is `cheap` or takes seconds.
    """

    cheap = True

    def __init__(self, eviction: torch.Tensor) -> None:
        self._eviction = eviction

    @abstractmethod
    def busy_us(self, run: Run, times: int = PROBES) -> float:
        """Return the device's microseconds for `run`, whatever kernels it launches, over `times` runs after the first.

        Raises `ClockError`.
        """

    @abstractmethod
    def names(self, run: Run) -> list[str]:
        """Return the kernels that `run` launches, named as `samples_us` expects them."""

    def _prepare(self, before: Run | None, warm: bool) -> None:
        import torch_npu

        if before is not None:
            before()
        if not warm:
            self._eviction.sum()
        torch_npu.npu.synchronize()


class _RecordingTimer(NpuTimer):
    """A timer that takes the device's own time of each kernel, without gaps, from a record of everything that ran."""

    def samples_us(
        self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None, warm: bool = False
    ) -> list[float]:
        (samples,) = self.rounds_us([Job(run, kernels, before)], count, warm)
        return samples

    def rounds_us(self, jobs: Sequence[Job], count: int, warm: bool = False) -> list[list[float]]:
        import torch_npu

        orders = turns(len(jobs), count)

        def rounds() -> None:
            for order in orders:
                for job in (jobs[index] for index in order):
                    self._prepare(job.before, warm)
                    job.run()
                    torch_npu.npu.synchronize()

        return run_times_us(self._recorded(rounds), [job.kernels for job in jobs], orders)

    def busy_us(self, run: Run, times: int = PROBES) -> float:
        run()  # torch's first launch of a kernel prepares it
        records = self._recorded(lambda: _repeat(run, times))
        if not records or len(records) % times:
            raise ClockError(f"it recorded {len(records)} kernels in {times} identical runs")
        return sum(record.us for record in records) / times

    def names(self, run: Run) -> list[str]:
        return [record.name for record in self._recorded(lambda: _repeat(run, 1))]

    @abstractmethod
    def _recorded(self, body: Run) -> list[KernelRecord]:
        """Return all kernels that ran in `body`, which leaves nothing running, sorted by start; raises `ClockError`."""


class MsptiTimer(_RecordingTimer):
    """MSPTI, CANN's profiling interface: start and end of each kernel in nanoseconds."""

    name = "mspti"

    def _recorded(self, body: Run) -> list[KernelRecord]:
        try:
            import mspti
        except (ImportError, OSError) as error:
            raise ClockError(f"CANN's mspti does not import: {error}") from error
        seen: list[mspti.KernelData] = []
        monitor = mspti.KernelMonitor()
        started = monitor.start(seen.append)
        if started != mspti.MsptiResult.MSPTI_SUCCESS:
            raise ClockError(f"MSPTI does not start: {started}; is libmspti.so in LD_PRELOAD?")
        try:
            body()
        finally:
            stopped = monitor.stop()  # flushes its buffers
        if stopped != mspti.MsptiResult.MSPTI_SUCCESS:
            raise ClockError(f"MSPTI does not stop: {stopped}")
        records = [KernelRecord(data.name, Decimal(data.start), (data.end - data.start) / 1e3) for data in seen]
        return sorted(records, key=lambda record: record.start)


class ProfilerTimer(_RecordingTimer):
    """torch_npu's profiler: `Duration(us)` in its `kernel_details.csv`. A process can run only one at a time, and each
    run costs extra seconds."""

    name = "profiler"
    cheap = False

    def _recorded(self, body: Run) -> list[KernelRecord]:
        with tempfile.TemporaryDirectory(prefix="tilewise_profile_") as folder:
            with self._profile(folder):
                body()
            return read_kernel_details(Path(folder))

    def _profile(self, folder: str) -> Any:
        """Set up the profiler as triton-ascend's `do_bench_npu` does. kernel_details.csv needs at least Level1."""
        import torch_npu

        return torch_npu.profiler.profile(
            activities=[torch_npu.profiler.ProfilerActivity.NPU],
            on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(folder),
            experimental_config=torch_npu.profiler._ExperimentalConfig(
                aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
                profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
                l2_cache=False,
                data_simplification=False,
            ),
        )


class EventTimer(NpuTimer):
    """Time between two events around the launch, including launch gaps, so it flatters long kernels."""

    name = "events"

    def samples_us(
        self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None, warm: bool = False
    ) -> list[float]:
        return [self._sample(run, before, warm) for _ in range(count)]

    def busy_us(self, run: Run, times: int = PROBES) -> float:
        run()
        return self._between(lambda: _repeat(run, times)) / times

    def names(self, run: Run) -> list[str]:
        return []  # it times everything between two events

    def _sample(self, run: Run, before: Run | None, warm: bool) -> float:
        self._prepare(before, warm)
        return self._between(run)

    def _between(self, run: Run) -> float:
        import torch_npu

        start, end = torch_npu.npu.Event(enable_timing=True), torch_npu.npu.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch_npu.npu.synchronize()
        return float(start.elapsed_time(end)) * 1e3  # milliseconds


@dataclass(frozen=True, slots=True)
class Choice:
    """The clock of a device, and why each better one was passed over."""

    timer: NpuTimer
    passed_over: tuple[str, ...]


def choose_timer(place: str) -> Choice:
    """Return the best clock that works here; raises `Unavailable` if one works but contradicts the events."""
    import torch

    eviction = torch.ones(EVICTION_BYTES // 4, device=place)  # float32: the sum of another type casts first
    events = EventTimer(eviction)
    passed_over: list[str] = []
    for kind in (MsptiTimer, ProfilerTimer):
        timer = kind(eviction)
        try:
            reported = timer.busy_us(eviction.sum)
        except (ClockError, RuntimeError, OSError) as error:  # no CANN profiler, nowhere to write, another layout
            passed_over.append(f"{timer.name}: {error}")
            continue
        _require_agreement(timer.name, reported, events.busy_us(eviction.sum))
        return Choice(timer, tuple(passed_over))
    return Choice(events, tuple(passed_over))


def _repeat(run: Run, times: int) -> None:
    import torch_npu

    for _ in range(times):
        run()
    torch_npu.npu.synchronize()


def _require_agreement(name: str, reported: float, events: float) -> None:
    low, high = AGREEMENT
    if not reported > 0 or not low <= events / reported <= high:
        raise Unavailable(
            f"the clock {name} reports {reported:.4g} us where events measure {events:.4g} us: its unit has changed; "
            "please report your versions of CANN and torch_npu"
        )
