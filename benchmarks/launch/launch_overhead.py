"""The cost of looking up a launch's config, against calling the jitted function with constants.

Measures the host time of one call, from Python to its return, with the garbage collector off. Compared are the function
itself, a `tuned` one over it, and `triton.autotune` and FlagGems' `libtuner` over it with warm caches. The caches hold
1, 10^3 and 10^5 shapes, called in random order. On a GPU the function is the real `row_reduce` kernel on small tensors.
Elsewhere a stand-in launches nothing, so that only dispatch is measured.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tilewise.benchmarks.launch.libtuner import filled, libtuned
from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.exchange.native.runtime_file import encode_winners
from tilewise.db.records import Clock, Result, Scope, Status, Trial
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config, Problem, Target
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.runtime.autotune import AutotunedFunction
from tilewise.tuner.runtime.current_device import current_device
from tilewise.tuner.runtime.tuned import TunedFunction, tuned

__all__ = ["bench_runtime"]

ENTRIES = (1, 1000, 100_000)
CALLS = 20_000
_SPEC = "row_reduce"
_N = 64

Call = Callable[[int], Any]
"""A launch of the shape with the given number of rows."""


def bench_runtime(
    *, entries: Sequence[int] = ENTRIES, calls: int = CALLS, progress: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Run the benchmark and return the JSON of `tilewise bench runtime`; times per call are in microseconds."""
    bench = _Real() if _has_gpu() else _Stubbed()
    rows = []
    with tempfile.TemporaryDirectory() as folder, _recording_off():
        for count in entries:
            progress(f"{count} entries")
            rows.append(_row(bench, Path(folder), count, calls))
    return {
        "launch": bench.name,
        "host": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("triton", "triton-ascend", "torch", "flag_gems")},
        "calls": calls,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
    }


def _row(bench: _Bench, folder: Path, count: int, calls: int) -> dict[str, Any]:
    shapes = list(range(1, count + 1))
    file = folder / f"{count}.json"
    file.write_bytes(encode_winners(result.to_json() for result in _results(bench.target, shapes)))
    load_s, load_mb = _load_cost(file)
    function: TunedFunction = bench.tuned(file)
    constants = bench.direct()
    look_up = bench.looked_up(function)
    first = [_timed(look_up, m) for m in shapes]
    run_under = bench.looked_up(bench.under_run(file))
    first_run = [_timed(run_under, m) for m in shapes]
    launches: dict[str, Call] = {"constants": constants, "tilewise": look_up, "tilewise run": run_under}
    launches |= {"constants by name": bench.named(bench.function, **bench.config)}
    launches |= {"tilewise by name": bench.named(function)}
    body: dict[str, Any] = {"entries": count, "file_mb": round(file.stat().st_size / 1e6, 2)}
    for name, make in (("triton.autotune", bench.autotuned), ("flag_gems.libtuner", partial(bench.libtuned, folder))):
        try:
            launches[name] = make(shapes)
        except Exception as error:
            body.setdefault("not_run", {})[name] = _reason(error)
    times = _in_turns(launches, shapes, calls)
    plain = statistics.median(times["constants"])
    for name, found in times.items():
        body[name] = {
            "median_us": round(statistics.median(found), 3),
            "p99_us": round(_p99(found), 3),
            "added_median_us": round(statistics.median(found) - plain, 3),
        }
    guess = count + 1  # a shape that is not tuned
    return {
        **body,
        "load": {"seconds": round(load_s, 3), "mb": round(load_mb, 1)},
        "first_call_us": {
            "exact_median": round(statistics.median(first), 1),
            "exact_p99": round(_p99(first), 1),
            "run_median": round(statistics.median(first_run), 1),
            "run_p99": round(_p99(first_run), 1),
            "guess": round(_timed(look_up, guess), 1),
            "guess_match": function.choices[-1].match,
        },
    }


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    return f"{type(error).__name__}: {one_line(error)}"


def _in_turns(launches: dict[str, Call], shapes: Sequence[int], calls: int, rounds: int = 5) -> dict[str, list[float]]:
    """Return the microseconds of each call, timed in rounds so that a slowdown of the machine affects all alike."""
    draw = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in launches}
    with _quiet():
        for _ in range(rounds):
            order = draw.choices(shapes, k=calls // rounds)
            for name, call in launches.items():
                for m in order[:200]:
                    call(m)
                times[name] += [_timed(call, m) for m in order]
    return times


def _timed(call: Call, m: int) -> float:
    began = time.perf_counter_ns()
    call(m)
    return (time.perf_counter_ns() - began) / 1e3


class _Bench:
    """A function to launch; `tensors` and `grid` are the same in every call."""

    name: str
    target: Target
    tensors: tuple[Any, ...]
    function: Any
    device: str | None = None

    def __init__(self) -> None:
        self.spec = registry.load(_SPEC)
        self.config = dict(self.spec.default(Problem(_SPEC, {"M": 1, "N": _N}, "float32"), self.target))

    def grid(self, meta: Config) -> tuple[int, ...]:
        return (1,)

    def tuned(self, file: Path) -> TunedFunction:
        return tuned(self.spec, file, device=self.device)(self.function)

    def under_run(self, file: Path) -> AutotunedFunction:
        """Return the function as `tilewise run` has it under `triton.autotune`."""
        configs = [SimpleNamespace(all_kwargs=lambda: self.config)]
        how: dict[str, Any] = {"on_miss": "default", "source": file, "device": self.device, "spec": self.spec}
        return AutotunedFunction(self.function, configs, ["M", "N"], {}, **how)

    def named(self, function: Any, **config: Any) -> Call:
        """Return a call with all arguments by name."""
        x, w, out = self.tensors
        grid = self.grid
        return lambda m: function[grid](x_ptr=x, w_ptr=w, out_ptr=out, M=m, N=_N, **config)

    def direct(self) -> Call:
        x, w, out = self.tensors
        function, grid, config = self.function, self.grid, self.config
        return lambda m: function[grid](x, w, out, m, _N, **config)

    def looked_up(self, function: Any) -> Call:
        x, w, out = self.tensors
        grid = self.grid
        return lambda m: function[grid](x, w, out, m, _N)

    def autotuned(self, shapes: Sequence[int]) -> Call:
        """Return a call of `triton.autotune` with all shapes in its cache, although nothing was timed."""
        import triton

        timed = iter([1.0, 2.0] * len(shapes))  # the first config wins without a run
        options = {"do_bench": lambda call, quantiles: [next(timed)] * 3}
        tuner = triton.autotune(configs=self.configs(), key=["M", "N"], **options)(self.function)
        call = self.looked_up(tuner)
        for m in shapes:
            call(m)
        return call

    def libtuned(self, folder: Path, shapes: Sequence[int]) -> Call:
        """Return a call of FlagGems' `libtuner` with all shapes in its cache."""
        return filled(self.looked_up(libtuned(self.function, self.configs(), ["M", "N"], folder)), shapes)

    def configs(self) -> list[Any]:
        """Return two configs, since a single one would never be looked up."""
        import triton

        compile_options = {name: self.config[name] for name in ("num_warps", "num_stages") if name in self.config}
        constants = {name: v for name, v in self.config.items() if name not in compile_options}
        return [triton.Config({**constants, "BLOCK_SIZE_N": n}, **compile_options) for n in (64, 128)]


class _Stubbed(_Bench):
    name = "stubbed"
    device = "Ascend910B4"

    def __init__(self) -> None:
        self.target = known_target("Ascend910B4", 40)
        super().__init__()
        self.tensors = tuple(_StubTensor() for _ in range(3))
        self.function = _StubFunction()

    def libtuned(self, folder: Path, shapes: Sequence[int]) -> Call:
        raise TypeError("libentry takes only functions that Triton compiles")


class _Real(_Bench):
    name = "real"

    def __init__(self) -> None:
        import torch

        from tilewise.tuner.measure.launch import resolve_functions

        x = torch.zeros(max(ENTRIES) + 2, _N, device="cuda")
        self.target = current_device(x).target
        super().__init__()
        self.name = f"real, on {self.target.name}"
        self.tensors = (x, torch.zeros(_N, device="cuda"), torch.zeros(len(x), device="cuda"))
        (self.function,) = resolve_functions(self.spec)


class _StubTensor:
    """A stand-in for a torch tensor, with what dispatch reads."""

    dtype = "torch.float32"

    def get_device(self) -> int:
        return 0


class _StubFunction:
    """A stand-in for a JITFunction, with what dispatch uses; a launch does nothing."""

    constants = ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N", "EVICT_FIRST")
    arg_names = ("x_ptr", "w_ptr", "out_ptr", "M", "N", *constants)

    def __init__(self) -> None:
        self.fn = lambda x_ptr, w_ptr, out_ptr, M, N, **constants: None  # noqa: N803

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)  # as in triton

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        return


def _results(target: Target, shapes: Sequence[int]) -> Iterator[Result]:
    spec = registry.load(_SPEC)
    known, moment = source_hash(spec), datetime(2026, 11, 21, tzinfo=UTC)
    clock = Clock.MEASURED if target.family == "nvidia" else Clock.MODELLED
    config = spec.default(Problem(_SPEC, {"M": 1, "N": _N}, "float32"), target)
    winner = Trial(config, Status.CORRECT, time_us=10.0, p20_us=9.9, p80_us=10.1, verified=True, created=moment)
    for m in shapes:
        scope = Scope(Problem(_SPEC, {"M": m, "N": _N}, "float32"), known, target.name, clock, "bench", target.cores)
        yield Result(scope, winner, None, {}, 1.0)


_LOAD = """
import resource, sys, time
from tilewise.tuner.lookup.file_source import FileSource
def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
before, began = megabytes(), time.perf_counter()
source = FileSource(sys.argv[1])
print(time.perf_counter() - began, megabytes() - before)
"""


def _load_cost(file: Path) -> tuple[float, float]:
    """Return the seconds and resident megabytes, including pages of the file, of loading it in a new process."""
    done = subprocess.run([sys.executable, "-c", _LOAD, str(file)], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(0.99 * (len(times) - 1))]


@contextmanager
def _quiet() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _recording_off() -> Iterator[None]:
    """Keep the benchmark's own shapes out of the user's record of untuned shapes."""
    names = ("TILEWISE_MISSES", "TILEWISE_MISSES_SERVER")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ["TILEWISE_MISSES"] = "off"
    try:
        yield
    finally:
        os.environ.pop("TILEWISE_MISSES")
        os.environ.update(before)


def _has_gpu() -> bool:
    from tilewise.tuner.devices.cuda.device import row

    return row().available


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
