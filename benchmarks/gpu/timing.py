"""`tilewise bench timing`: a comparison of ways to time a kernel on an NVIDIA GPU.

Each method times a plain streaming kernel at several sizes in several processes, one after another. The benchmark
reports each method's median, the spread of the processes' medians (largest over smallest), and the cost of a
measurement. `triton.testing.do_bench` and `do_bench_cudagraph` with their defaults are among the methods.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tilewise.tuner.workers.worker import Worker

__all__ = ["bench_timing", "measure_all"]

SIZES = {"2 us": 64 << 10, "5 us": 10 << 20, "15 us": 52 << 20, "50 us": 205 << 20, "130 us": 555 << 20}
"""Bytes that the kernel reads, by its approximate time at 4.4 TB/s. The smallest is bound by the launch."""

COUNT = 100
COPIES = 16
"""Runs per graph."""

BLOCK, TRIPS = 4096, 4

Run = Callable[[], Any]


def bench_timing(processes: int, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run the benchmark and return its JSON: every process's medians, and their spread by method and size."""
    runs = []
    for process in range(processes):
        progress(f"process {process + 1} of {processes}")
        worker = Worker("tilewise.benchmarks.gpu.timing:measure_all")
        try:
            runs.append(worker.call(process == 0, timeout=300))
        finally:
            worker.close()
    return {
        "command": f"tilewise bench timing --processes {processes}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": runs[0]["device"],
        "clock": "measured",
        "versions": runs[0]["versions"],
        "samples": COUNT,
        "sizes": SIZES,
        "rows": [row for size in SIZES for row in _rows(size, runs)],
        "processes": [run["sizes"] for run in runs],
    }


def _rows(size: str, runs: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for method in runs[0]["sizes"][size]:
        of_method = [run["sizes"][size][method] for run in runs]
        medians = [each["median_us"] for each in of_method if "median_us" in each]
        if not medians:
            yield {"size": size, "method": method, "error": of_method[0]["error"]}
            continue
        yield {
            "size": size,
            "method": method,
            "median_us": round(statistics.median(medians), 4),
            "spread": round(max(medians) / min(medians) - 1, 5),
            "seconds": round(statistics.median(each["seconds"] for each in of_method if "seconds" in each), 4),
        }


def measure_all(with_samples: bool) -> dict[str, Any]:
    """Measure every size with every method; runs in a fresh process. With `with_samples` keep the single times too."""
    import torch
    import triton

    methods = _methods()
    sizes: dict[str, dict[str, Any]] = {}
    for size, count in SIZES.items():
        kernel = _Kernel(count)
        sizes[size] = {name: _measured(method, kernel, with_samples) for name, method in methods.items()}
        del kernel
        torch.cuda.empty_cache()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    return {"device": torch.cuda.get_device_name(), "versions": versions, "sizes": sizes}


def _measured(method: Callable[[_Kernel], list[float]], kernel: _Kernel, with_samples: bool) -> dict[str, Any]:
    import torch

    try:
        method(kernel)  # one-time costs
        torch.cuda.synchronize()
        began = time.perf_counter()
        samples = method(kernel)
        seconds = time.perf_counter() - began
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    body = {"median_us": statistics.median(samples), "seconds": seconds, "samples": len(samples)}
    return body | ({"samples_us": [round(each, 4) for each in samples]} if with_samples else {})


class _Kernel:
    """The streaming kernel on a buffer of `size` bytes; `rotated` takes the next of several buffers in turn."""

    def __init__(self, size: int) -> None:
        import torch

        from tilewise.benchmarks.gpu.stream import stream_kernel

        self.n = size // 4
        self.grid = (-(-self.n // (BLOCK * TRIPS)),)
        self.x = torch.ones(self.n, device="cuda")
        self.out = torch.empty(self.grid[0], device="cuda")
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        spare = min(2000, -(-3 * cache // size))
        self.copies = [self.x, *(self.x.clone() for _ in range(spare))] if size < cache else [self.x]
        self.turn = 0
        self._function = stream_kernel

    def run(self) -> None:
        self._function[self.grid](self.x, self.out, self.n, BLOCK, TRIPS)

    def rotated(self) -> None:
        self.turn = (self.turn + 1) % len(self.copies)
        self._function[self.grid](self.copies[self.turn], self.out, self.n, BLOCK, TRIPS)


def _methods() -> dict[str, Callable[[_Kernel], list[float]]]:
    import torch

    from tilewise.tuner.devices.cuda.event_timer import MIN_SAMPLES, CudaTimer

    cache = torch.cuda.get_device_properties(0).L2_cache_size
    buffer = torch.zeros(2 * cache // 4, dtype=torch.int32, device="cuda")
    timer = CudaTimer()

    def zero() -> None:
        buffer.zero_()

    def read() -> None:
        buffer.max()

    def nothing() -> None: ...

    def events(kernel: _Kernel) -> list[float]:
        return timer.samples_us(kernel.run, (), MIN_SAMPLES)

    def events_50_ms(kernel: _Kernel) -> list[float]:
        end, samples = time.perf_counter() + 0.05, events(kernel)
        while time.perf_counter() < end:
            samples += events(kernel)
        return samples

    return {
        "events, zeroed": events,
        "events, zeroed, 50 ms": events_50_ms,
        "cupti, zeroed": lambda kernel: _cupti(kernel.run, zero),
        "cupti, zeroed, 20": lambda kernel: _cupti(kernel.run, zero, count=20),
        "cupti, read": lambda kernel: _cupti(kernel.run, read),
        "cupti, rotated": lambda kernel: _cupti(kernel.rotated, nothing),
        "cupti, warm": lambda kernel: _cupti(kernel.run, nothing),
        "graph, zeroed": lambda kernel: _graph_difference(kernel.run, zero),
        "graph, read": lambda kernel: _graph_difference(kernel.run, read),
        "graph, rotated": lambda kernel: _graph_difference(kernel.rotated, nothing),
        "graph, warm": lambda kernel: _graph_difference(kernel.run, nothing),
        "do_bench": _do_bench,
        "do_bench_cudagraph": _do_bench_cudagraph,
    }


def _cupti(run: Run, before: Run, count: int = COUNT) -> list[float]:
    """Return each kernel's time from start to end, from CUPTI's activity records through torch's profiler."""
    import torch
    from torch.autograd.profiler import profile

    _warm()
    with profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiled:
        for _ in range(count):
            before()
            run()
        torch.cuda.synchronize()
    kernels = [event for event in profiled.kineto_results.events() if event.name() == "stream_kernel"]
    if len(kernels) != count:
        raise RuntimeError(f"{len(kernels)} records of {count} runs")
    return [event.duration_ns() / 1e3 for event in sorted(kernels, key=lambda event: event.start_ns())]


def _graph_difference(run: Run, before: Run) -> list[float]:
    """Return the time per run as the difference of two graphs, replayed in turn: copies of `before` and `run`, less
    copies of `before` alone."""
    import torch

    cuda: Any = torch.cuda
    _warm()
    both, alone = cuda.CUDAGraph(), cuda.CUDAGraph()
    before()
    run()
    cuda.synchronize()
    with cuda.graph(both):
        for _ in range(COPIES):
            before()
            run()
    empty = before.__name__ == "nothing"
    if not empty:
        with cuda.graph(alone):
            for _ in range(COPIES):
                before()
    pairs = []
    for _ in range(12):
        cuda._sleep(200_000)
        with_run = _around(both.replay)
        without = None if empty else _around(alone.replay)
        pairs.append((with_run, without))
    cuda.synchronize()
    return [(_us(pair) - (_us(other) if other else 0.0)) / COPIES for pair, other in pairs]


def _around(call: Run) -> tuple[Any, Any]:
    import torch

    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    call()
    end.record()
    return start, end


def _us(pair: tuple[Any, Any]) -> float:
    return float(pair[0].elapsed_time(pair[1])) * 1e3


def _do_bench(kernel: _Kernel) -> list[float]:
    from triton.testing import do_bench

    return [1e3 * each for each in do_bench(kernel.run, return_mode="all")]


def _do_bench_cudagraph(kernel: _Kernel) -> list[float]:
    from triton.testing import do_bench_cudagraph

    return [1e3 * each for each in do_bench_cudagraph(kernel.run, return_mode="all")]


def _warm(seconds: float = 0.01) -> None:
    """Keep the device busy, since its clocks fall when it idles."""
    import torch

    cuda: Any = torch.cuda
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        cuda._sleep(1_000_000)
        cuda.synchronize()
