"""Tuned matrix products against PyTorch's (cuBLAS): one timer, in turns, with a cold L2 cache.

The products are `torch.matmul` for 16-bit inputs, into a tensor that exists, and `torch._scaled_mm` for 8-bit ones:
with one scale for each operand of `gemm`, and with the same scales of blocks as `block_fp8_gemm`. The reported time is
the median of the rounds, each of which runs every contender once.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.gpu.kernels import in_rounds, runnable
from tilewise.db.records import Result, Shape
from tilewise.db.store import Store
from tilewise.errors import NothingFeasible
from tilewise.kernels.spec import KernelSpec, Problem, Tensors
from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.devices.measured.bench_process import Bench
from tilewise.tuner.hardware.peaks import arithmetic
from tilewise.tuner.measure.launch import launcher
from tilewise.tuner.measure.robust_stats import quantile
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher

__all__ = ["CASES", "bench_matrix", "block_scales", "torch_product"]

CASES: Mapping[str, Sequence[tuple[Shape, str]]] = {
    "gemm": (
        *(({"M": m, "N": 8192, "K": 8192}, "bfloat16") for m in (16, 64, 256, 8192)),
        ({"M": 4096, "N": 4096, "K": 4096}, "bfloat16"),
        ({"M": 8192, "N": 8192, "K": 8192, "column_major": True}, "float8_e4m3fn"),
    ),
    "block_fp8_gemm": (
        ({"M": 64, "N": 7168, "K": 2048}, "float8_e4m3fn"),
        ({"M": 4096, "N": 7168, "K": 2048}, "float8_e4m3fn"),
        ({"M": 4096, "N": 4096, "K": 7168}, "float8_e4m3fn"),
        ({"M": 8192, "N": 8192, "K": 8192}, "float8_e4m3fn"),
    ),
}
"""The shapes of a kernel's figures: few rows, as in decoding, squares, and some of DeepSeek-V3's."""


def bench_matrix(
    device: CudaDevice,
    store: Store,
    spec: KernelSpec,
    problems: Sequence[Problem],
    *,
    budget: Budget,
    rounds: int = 200,
    watcher: Callable[[], Watcher] = Watcher,
) -> dict[str, Any]:
    """Tune each problem, time it beside PyTorch, and return the JSON of `tilewise bench matrix`.

    Times are in microseconds. A contender that does not run is listed in its row's `failed` with the reason; a row
    whose kernel is wrong has `"verified": false`.
    """
    results = [_tuned(device, store, spec, problem, budget, watcher) for problem in problems]
    bench = Bench(CudaRuntime(device.index))
    about = bench.runtime.describe()
    limits = f" {spec.name} --trials {budget.trials}" + (f" --timeout {budget.seconds:g}" if budget.seconds else "")
    return {
        **header(f"tilewise bench matrix{limits} --rounds {rounds}", "measured", about.target.name),
        "toolchain": about.toolchain,
        "timer": bench.runtime.timer.name,
        "rounds": rounds,
        "rows": [_row(bench, spec, problem, result, rounds) for problem, result in zip(problems, results, strict=True)],
    }


def _tuned(
    device: CudaDevice,
    store: Store,
    spec: KernelSpec,
    problem: Problem,
    budget: Budget,
    watcher: Callable[[], Watcher],
) -> Result | str:
    """Return the tuning's result, or the reason why no config is right."""
    try:
        return Tuning(spec, problem, device, store, budget=budget, watcher=watcher()).run()
    except NothingFeasible as error:
        return str(error)


def _row(bench: Bench, spec: KernelSpec, problem: Problem, result: Result | str, rounds: int) -> dict[str, Any]:
    runtime = bench.runtime
    assert isinstance(runtime, CudaRuntime)
    row: dict[str, Any] = {"kernel": spec.name, "dims": dict(problem.shape), "dtype": problem.dtype}
    if isinstance(result, str):
        return row | {"failed": {"tuned": result}}
    assert result.winner is not None, "a tuning without a winner raises"
    config, target = result.winner.config, runtime.describe().target
    arguments = bench.arguments(spec, problem)
    runs, failed = runnable(
        {
            "tuned": (lambda: _launch(spec, problem, config, arguments), None),
            "default": (lambda: _launch(spec, problem, spec.default(problem, target), arguments), None),
            "torch": (lambda: torch_product(problem, arguments.inputs), None),
        }
    )
    times = in_rounds(runtime, {name: run for name, (run, _) in runs.items()}, rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    row |= {"config": dict(config), "trials": sum(result.counts.values()), "tuning_s": round(result.seconds, 1)}
    row |= {"evaluations_to_best": result.winner.ordinal, "searched_us": result.winner.time_us}
    row |= {f"{name}_us": round(value, 3) for name, value in medians.items()}
    row["p20_p80_us"] = {
        name: [round(quantile(values, share), 3) for share in (0.2, 0.8)] for name, values in times.items()
    }
    row["verified"] = bench.verify(spec, problem, config).answer.agreed
    if "tuned" in medians and (bound := arithmetic(spec, problem, target.name)) is not None:
        tuned = medians["tuned"]
        row |= {"tflop_s": round(bound.tflop_s(tuned), 1), "share_of_peak": round(bound.share(tuned), 4)}
        row["gb_s"] = round(spec.bytes(problem) / tuned / 1e3, 1)
    return row | ({"failed": failed} if failed else {})


def _launch(spec: KernelSpec, problem: Problem, config: Mapping[str, Any], arguments: Arguments) -> Callable[[], Any]:
    return launcher(spec, problem, config, arguments.bind(config))


def torch_product(problem: Problem, inputs: Tensors) -> Callable[[], Any]:
    """Return PyTorch's product of the inputs, without bias, activation and scales of rows and columns."""
    import torch

    a, b = inputs["a_ptr"], inputs["b_ptr"]
    if a.element_size() > 1:
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        return functools.partial(torch.matmul, a, b, out=out)
    if problem.kernel == "block_fp8_gemm":
        b = b.T
        scale_a, scale_b = block_scales(inputs["a_scale_ptr"], inputs["b_scale_ptr"])
    else:
        scale_a = scale_b = torch.ones((), device=a.device)
    fast = bool(problem.flags.get("fast_sums", False))
    return functools.partial(
        torch._scaled_mm, a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


def block_scales(rows: Any, blocks: Any) -> tuple[Any, Any]:
    """Return scales of 1 x 128 elements [M, K / 128] and of 128 x 128 [N / 128, K / 128] as `torch._scaled_mm` wants
    them: the first with its rows contiguous, the second transposed, of rows whose lengths are multiples of 4.
    """
    import torch

    held = torch.nn.functional.pad(blocks, (0, -blocks.shape[1] % 4))
    return rows.T.contiguous().T, held[:, : blocks.shape[1]].T
