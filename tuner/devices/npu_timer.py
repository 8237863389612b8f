"""Kernel times on an Ascend NPU: by the profiler, or by events where it does not work; never both in one comparison."""

from __future__ import annotations

import csv
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["EVICTION_BYTES", "EventTimer", "NpuTimer", "ProfilerTimer", "choose_timer", "kernel_durations"]

EVICTION_BYTES = 192 << 20
"""Read before each run to empty the L2 cache: 192 MiB on the largest parts, 96 MiB on the 910B4 (and what
triton-ascend's own `get_empty_cache_for_benchmark` takes)."""

NAME_LENGTH = 49
"""What triton-ascend keeps of a kernel's name (`KERNEL_NAME_MAX_LEN` of its compiler.py)."""

Run = Callable[[], Any]


class NpuTimer(ABC):
    """`runtime.npu` is `torch.npu`, `runtime.profiler` is `torch_npu.profiler`; `place` is where tensors are made."""

    name: str

    def __init__(self, runtime: Any, place: str) -> None:
        import torch

        self._runtime = runtime
        self._eviction = torch.ones(EVICTION_BYTES // 4, dtype=torch.int32, device=place)

    @abstractmethod
    def samples_us(self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None) -> list[float]:
        """Microseconds of `count` runs, each with a cold L2; a run launches the kernel functions `kernels`, one after
        the other. `before` is called before each run."""

    def _prepare(self, before: Run | None) -> None:
        if before is not None:
            before()
        self._eviction.sum()
        self._runtime.npu.synchronize()


class ProfilerTimer(NpuTimer):
    """The device's own time of each kernel, without gaps: `Duration(us)` in the profiler's `kernel_details.csv`."""

    name = "profiler"

    def samples_us(self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None) -> list[float]:
        rows = self._profiled(run, count, before)
        durations = [us for name, us in rows if any(_is_kernel(name, kernel) for kernel in kernels)]
        made = count * len(kernels)
        if len(durations) != made:
            raise RuntimeError(f"the profiler lists {len(durations)} runs of {', '.join(kernels)}, {made} were made")
        return [sum(durations[i : i + len(kernels)]) for i in range(0, made, len(kernels))]

    def works(self) -> bool:
        """Whether it sees anything at all: two additions, and two clearings of the cache."""
        import torch

        probe = torch.ones(1024, device=self._eviction.device)
        try:
            return len(self._profiled(lambda: probe.add_(1), 2, None)) >= 4
        except (RuntimeError, OSError, KeyError):  # no CANN profiler, nowhere to write, another file layout
            return False

    def _profiled(self, run: Run, count: int, before: Run | None) -> list[tuple[str, float]]:
        with tempfile.TemporaryDirectory(prefix="tilewise_profile_") as folder:
            with self._profile(folder):
                for _ in range(count):
                    self._prepare(before)
                    run()
                    self._runtime.npu.synchronize()
            return kernel_durations(Path(folder))

    def _profile(self, folder: str) -> Any:
        """As triton-ascend's `do_bench_npu` sets it up; Level1 is the first that writes kernel_details.csv."""
        profiler = self._runtime.profiler
        return profiler.profile(
            activities=[profiler.ProfilerActivity.NPU],
            on_trace_ready=profiler.tensorboard_trace_handler(folder),
            experimental_config=profiler._ExperimentalConfig(
                aic_metrics=profiler.AiCMetrics.PipeUtilization,
                profiler_level=profiler.ProfilerLevel.Level1,
                l2_cache=False,
                data_simplification=False,
            ),
        )


class EventTimer(NpuTimer):
    """Time between two events around the launch: includes launch gaps, so it flatters long kernels."""

    name = "events"

    def samples_us(self, run: Run, kernels: Sequence[str], count: int, before: Run | None = None) -> list[float]:
        return [self._sample(run, before) for _ in range(count)]

    def _sample(self, run: Run, before: Run | None) -> float:
        npu = self._runtime.npu
        start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
        self._prepare(before)
        start.record()
        run()
        end.record()
        npu.synchronize()
        return float(start.elapsed_time(end)) * 1e3  # milliseconds


def kernel_durations(folder: Path) -> list[tuple[str, float]]:
    """Name and microseconds of every kernel in the one `kernel_details.csv` under `folder`, in the file's order."""
    files = list(folder.rglob("kernel_details.csv"))
    if len(files) != 1:
        raise RuntimeError(f"the profiler wrote {len(files)} kernel_details.csv, expected one")
    with files[0].open(newline="", encoding="utf-8") as file:
        return [(row["Name"], float(row["Duration(us)"])) for row in csv.DictReader(file)]


def choose_timer(runtime: Any, place: str) -> NpuTimer:
    """The profiler if it works here, else events; asked once for a device, so that its times stay comparable."""
    timer = ProfilerTimer(runtime, place)
    return timer if timer.works() else EventTimer(runtime, place)


def _is_kernel(name: str, kernel: str) -> bool:
    """triton-ascend reports a kernel under the end of its function's name; CANN may add a suffix such as `_mix_aiv`."""
    reported = kernel[-NAME_LENGTH:]
    return name == reported or name.startswith(f"{reported}_mix")
