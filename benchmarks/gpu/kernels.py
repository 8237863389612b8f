"""Tuned kernels against the alternatives without tuning: the spec's default, eager torch, and `torch.compile`.

One timer with one cache policy (`CudaTimer`) times all implementations of a case, in turns over several rounds. The
reported time is the median of the rounds' medians. The memory rate is measured in the same run.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.db.records import Result
from tilewise.db.store import Store
from tilewise.errors import NothingFeasible
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, ceil_div
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.cuda.accelerator import RATE_BYTES, CudaRuntime
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.devices.measured.bench_process import Bench
from tilewise.tuner.hardware.peaks import arithmetic
from tilewise.tuner.measure.launch import launcher
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher
from tilewise.tuner.workers.worker import describe

__all__ = ["BESIDE", "bench", "bench_kernels", "command_of", "in_rounds", "in_turns", "read_rates", "runnable"]

Run = Callable[[], Any]

BESIDE = ("eager", "compile", "max_autotune")
"""What PyTorch runs the reference with: as it is, under `torch.compile`, and under its search for the best kernels."""


def bench(
    device: Device,
    store: Store,
    problems: Sequence[tuple[KernelSpec, Problem]],
    *,
    budget: Budget,
    beside: Sequence[str] = BESIDE,
    watcher: Callable[[], Watcher] = Watcher,
) -> dict[str, Any]:
    """Tune each problem, compare, and return the JSON of `tilewise bench kernels`.

    A problem for which every config fails becomes a row with `failed`. On devices other than a GPU nothing else runs
    on the same chip: rows hold the tuned and the default time of the tuning, and `share_of_rate` is the memory floor
    over the tuned time.
    """
    results: list[tuple[KernelSpec, Problem, Result]] = []
    failed: list[dict[str, Any]] = []
    for spec, problem in problems:
        try:
            result = Tuning(spec, problem, device, store, budget=budget, watcher=watcher()).run()
            results.append((spec, problem, result))
        except NothingFeasible as error:
            row = {"kernel": spec.name, "dims": dict(problem.shape), "dtype": problem.dtype}
            failed.append({**row, "failed": {"tuned": str(error)}})
    if isinstance(device, CudaDevice):
        chosen = [(spec, problem, result.winner.config) for spec, problem, result in results if result.winner]
        body = bench_kernels(CudaRuntime(device.index), chosen, beside=beside)
    else:
        body = {"toolchain": device.toolchain}
        body["rows"] = [_found(device, spec, problem, result) for spec, problem, result in results]
    command = command_of([problem for _, problem in problems], budget, beside)
    return {**header(command, str(device.clock), device.target.name), **body, "rows": [*body["rows"], *failed]}


def command_of(problems: Sequence[Problem], budget: Budget, beside: Sequence[str]) -> str:
    """Return the command of a comparison, with the options that decide its rows."""
    names = dict.fromkeys(problem.kernel for problem in problems)
    dtypes = dict.fromkeys(f"--dtype {problem.dtype}" for problem in problems)
    others = [f"--beside {name}" for name in beside] if tuple(beside) != BESIDE else []
    return " ".join(["tilewise bench kernels", *names, *dtypes, f"--trials {budget.trials}", *others])


def _found(device: Device, spec: KernelSpec, problem: Problem, result: Result) -> dict[str, Any]:
    assert result.winner is not None and result.winner.time_us is not None, "a tuning without a winner raises"
    floor = device.floor_us(spec, problem)
    row = {
        "kernel": spec.name,
        "dims": dict(problem.shape),
        "dtype": problem.dtype,
        "config": dict(result.winner.config),
        "tuned_us": result.winner.time_us,
        "default_us": result.default.time_us if result.default else None,
        "share_of_rate": round(floor / result.winner.time_us, 4) if floor else None,
        "evaluations_to_best": result.winner.ordinal,
        "why": result.winner.why,
    }
    return {key: value for key, value in row.items() if value is not None}


def bench_kernels(
    runtime: CudaRuntime,
    cases: Sequence[tuple[KernelSpec, Problem, Config]],
    *,
    beside: Sequence[str] = BESIDE,
    rounds: int = 5,
    seconds: float = 0.1,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Time each (spec, problem, tuned config), and return the JSON of `tilewise bench kernels`.

    `seconds` is spent on each implementation in each round. Times are in microseconds, rates in 10**12 bytes per
    second; `share_of_rate` is the tuned kernel's bytes per second over the best rate. An implementation that does not
    run is absent from its row and listed in `failed` with the reason. A row whose tuned kernel is wrong has
    `"verified": false`.
    """
    progress("memory rate")
    bench, about = Bench(runtime), runtime.describe()
    rates = read_rates(runtime, rounds=rounds, seconds=seconds)
    best = max(rates.values())
    rows = []
    for spec, problem, config in cases:
        progress(f"{spec.name} {_shape(problem)} {problem.dtype}")
        rows.append(_row(bench, spec, problem, config, beside, best, rounds, seconds))
    return {
        "device": about.target.name,
        "toolchain": about.toolchain,
        "read_rate_tb_s": round(best, 4),
        "rates_tb_s": {name: round(rate, 4) for name, rate in rates.items()},
        "timer_floor_us": round(runtime.events.floor_us(), 3),
        "rows": rows,
    }


def read_rates(runtime: CudaRuntime, *, rounds: int = 5, seconds: float = 0.1) -> dict[str, float]:
    """Return the rates, in 10**12 bytes per second, of `torch.sum` (read), `copy_` (read and written) and our streaming
    kernel (read)."""
    import torch

    x = torch.randn(RATE_BYTES // 4, device=runtime.place)
    y = torch.empty_like(x)
    runs: dict[str, Run] = {"sum": lambda: torch.sum(x), "copy": lambda: y.copy_(x), **_streams(x)}
    times = in_turns(runtime, {name: (run, None) for name, run in runs.items()}, rounds, seconds)
    moved = {name: RATE_BYTES * (2 if name == "copy" else 1) for name in runs}
    rates = {name: moved[name] / statistics.median(times[name]) * 1e-6 for name in runs}
    streams = [rates.pop(name) for name in list(rates) if name.startswith("stream")]
    return {**rates, "stream": max(streams)}


def _streams(x: Any) -> dict[str, Run]:
    """Return the streaming kernel with the few configs that one would try for a plain kernel."""
    import torch

    from tilewise.benchmarks.gpu.stream import stream_kernel

    runs: dict[str, Run] = {}
    for block, trips, warps in itertools.product((4096, 8192), (1, 4), (8, 16)):
        programs = ceil_div(x.numel(), block * trips)
        out = torch.empty(programs, device=x.device)
        bound = functools.partial(
            stream_kernel[(programs,)], x, out, x.numel(), BLOCK=block, TRIPS=trips, num_warps=warps
        )
        runs[f"stream {block}x{trips}/{warps}"] = bound
    return runs


def _row(
    bench: Bench,
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    beside: Sequence[str],
    rate: float,
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    import torch

    torch._dynamo.reset()  # earlier cases' shapes would count as recompilations of this case's reference
    runtime = bench.runtime
    assert isinstance(runtime, CudaRuntime)
    arguments, target = bench.arguments(spec, problem), runtime.describe().target
    runs, failed = runnable(_implementations(target, spec, problem, config, beside, arguments))
    times = in_turns(runtime, runs, rounds, seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    row: dict[str, Any] = {
        "kernel": spec.name,
        "dims": dict(problem.shape),
        "dtype": problem.dtype,
        "config": dict(config),
        "default_config": dict(spec.default(problem, target)),
        "bytes": spec.bytes(problem),
        "verified": bench.verify(spec, problem, config).answer.agreed,
        **{f"{name}_us": round(value, 3) for name, value in medians.items()},
        "spread_us": {name: [round(min(values), 3), round(max(values), 3)] for name, values in times.items()},
    }
    if "tuned" in medians:
        achieved = spec.bytes(problem) / medians["tuned"] * 1e-6
        row |= {"tb_s": round(achieved, 4), "share_of_rate": round(achieved / rate, 4)}
        if bound := arithmetic(spec, problem, target.name):
            tuned = medians["tuned"]
            row |= {"tflop_s": round(bound.tflop_s(tuned), 1), "share_of_peak": round(bound.share(tuned), 4)}
    return row | ({"failed": failed} if failed else {})


def _implementations(
    target: Target,
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    beside: Sequence[str],
    arguments: Arguments,
) -> dict[str, tuple[Callable[[], Run], Run | None]]:
    """Return, for each implementation, a function that makes it and one to call before each of its runs."""
    reset = arguments.reset if arguments.needs_reset else None

    def launched(chosen: Config) -> Run:
        return launcher(spec, problem, chosen, arguments.bind(chosen))

    reference = spec.reference_of(problem)
    eager = functools.partial(_without_gradients, reference, arguments.inputs)
    theirs: dict[str, Callable[[], Run]] = {
        "eager": lambda: eager,
        "compile": lambda: _compiled(reference, arguments, "default"),
        "max_autotune": lambda: _compiled(reference, arguments, "max-autotune-no-cudagraphs"),
    }
    return {
        "tuned": (lambda: launched(config), reset),
        "default": (lambda: launched(spec.default(problem, target)), reset),
        **{name: (theirs[name], None) for name in beside},
    }


def _compiled(reference: Callable[..., Any], arguments: Arguments, mode: str) -> Run:
    """Return the reference under `torch.compile`, specialized to this shape (`dynamic=False`)."""
    import torch

    function = torch.compile(reference, dynamic=False, fullgraph=True, mode=mode)
    return functools.partial(_without_gradients, function, arguments.inputs)


def _without_gradients(function: Callable[..., Any], inputs: Mapping[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        return function(inputs)


def runnable(
    implementations: Mapping[str, tuple[Callable[[], Run], Run | None]],
) -> tuple[dict[str, tuple[Run, Run | None]], dict[str, str]]:
    """Return the implementations that can be made and run once, and the reason why each of the others cannot."""
    import torch

    runs: dict[str, tuple[Run, Run | None]] = {}
    failed: dict[str, str] = {}
    for name, (make, reset) in implementations.items():
        try:
            run = make()
            run()
            torch.cuda.synchronize()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {describe(error)}"
        else:
            runs[name] = (run, reset)
    return runs, failed


def in_turns(
    runtime: CudaRuntime, runs: Mapping[str, tuple[Run, Run | None]], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return the medians of each implementation's rounds, in microseconds; each round starts with another one."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            run, reset = runs[name]
            times[name].append(runtime.events.device_time_us(run, reset=reset, seconds=seconds).time_us)
    return times


def in_rounds(runtime: CudaRuntime, runs: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Return the times of each round, in microseconds, by the timer that tunings use; a round runs each once."""
    times = runtime.timer.rounds_us([runtime.job(run) for run in runs.values()], rounds)
    return dict(zip(runs, times, strict=True))


def _shape(problem: Problem) -> str:
    return ", ".join(f"{name}={size}" for name, size in problem.shape.items())
