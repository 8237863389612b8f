"""`tilewise bench attention`: our attention beside PyTorch's, and beside the memory rate where one query reads keys.

Each round runs all contenders of a shape once, with a cold L2 cache. PyTorch's attention
(`scaled_dot_product_attention`) runs once with each backend that takes the shape.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewise.benchmarks.common.cases import SHAPES
from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.gpu.kernels import in_rounds
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
from tilewise.tuner.measure.launch import launcher
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.problem_checks import config_text, make_problem
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["bench_attention"]

FLASH: Sequence[Config] = (
    {"VARIANT": "hopper", "BLOCK_M": 128, "BLOCK_N": 128, "NUM_STAGES": 2, "num_warps": 4},
    {"VARIANT": "hopper", "BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 3, "num_warps": 4},
    {"VARIANT": "hopper", "BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 4, "num_warps": 4},
    {"VARIANT": "plain", "BLOCK_M": 128, "BLOCK_N": 128, "NUM_STAGES": 2, "num_warps": 8},
    {"VARIANT": "plain", "BLOCK_M": 128, "BLOCK_N": 64, "NUM_STAGES": 3, "num_warps": 8},
)
DECODE: Sequence[Config] = tuple(
    {"BLOCK_N": block, "SPLITS": splits, "NUM_STAGES": 2, "num_warps": warps}
    for block, warps in ((64, 4), (128, 8))
    for splits in (1, 4, 8, 16, 32, 64)
)
"""Configs that are timed where they are in a shape's space."""

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION")
_CLOSE = 0.05
"""Largest deviation of ours from PyTorch's, relative to its element and its RMS together: both round to 16 bits."""

Run = Callable[[], Any]


def bench_attention(rounds: int, *, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Run the benchmark and return its JSON. Raises `AssertionError` if an output is not PyTorch's."""
    runtime = CudaRuntime()
    flash, decode = registry.load("flash_attention"), registry.load("decode_attention")
    rows = []
    for spec, dims in [(flash, dims) for dims in _flash_dims()] + [(decode, dims) for dims in SHAPES[decode.name]]:
        problem = make_problem(spec, dims, "bfloat16")
        progress(f"{spec.name} at {problem}")
        rows += _rows(runtime, spec, problem, rounds)
    device = runtime.describe().target.name
    return {
        **header(f"tilewise bench attention --rounds {rounds}", "measured", device),
        "timer": runtime.timer.name,
        "rows": rows,
    }


def _flash_dims() -> Iterator[Mapping[str, int | bool]]:
    for dims in SHAPES["flash_attention"]:
        for causal in (False, True):
            yield {**dims, "causal": causal}


def _rows(runtime: CudaRuntime, spec: KernelSpec, problem: Problem, rounds: int) -> list[dict[str, Any]]:
    arguments = Arguments(spec, problem, device=runtime.place)
    target = runtime.describe().target
    known = FLASH if spec.name == "flash_attention" else DECODE
    space = enumerate_space(spec, problem, target)
    configs = [config for config in known if space.index(config) is not None]
    theirs = _torch_attention(arguments, problem) if known is FLASH else _torch_read(spec, problem)
    runs = dict(theirs)
    for config in configs:
        tensors = {**arguments.tensors, **_scratch(spec, problem, config)}
        runs[config_text(config)] = launcher(spec, problem, config, tensors)
    if known is FLASH:
        _require_the_same(arguments, runs, theirs)
    times = in_rounds(runtime, runs, rounds)
    medians = {name: statistics.median(each) for name, each in times.items()}
    best = min(medians[name] for name in theirs)
    return [
        {
            "kernel": spec.name,
            "dims": dict(problem.dims),
            **({"causal": bool(problem.flags.get("causal", False))} if known is FLASH else {}),
            "contender": name,
            "median_us": round(median, 3),
            **_rate(spec, problem, median),
            "of_theirs": round(best / median, 3),
        }
        for name, median in medians.items()
    ]


def _rate(spec: KernelSpec, problem: Problem, median_us: float) -> dict[str, float]:
    """Return the rate of operations of many queries, and that of the bytes that one query needs."""
    if spec.name == "flash_attention":
        return {"tflop_s": round(spec.flops(problem) / median_us / 1e6, 1)}
    return {"tb_s": round(spec.bytes(problem) / median_us / 1e6, 3)}


def _scratch(spec: KernelSpec, problem: Problem, config: Config) -> dict[str, Any]:
    import torch

    return {
        name: torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype), device="cuda")
        for name, buffer in spec.scratch(config, problem).items()
    }


def _torch_attention(arguments: Arguments, problem: Problem) -> dict[str, Run]:
    """Return PyTorch's attention by backend, on tensors laid out as it prefers: heads before tokens."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (arguments.tensors[f"{name}_ptr"].transpose(1, 2).contiguous() for name in "qkv")
    causal = bool(problem.flags.get("causal", False))

    def attend(backend: Any) -> Run:
        def run() -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

        return run

    return {f"torch {name.lower()}": attend(getattr(SDPBackend, name)) for name in _BACKENDS}


def _torch_read(spec: KernelSpec, problem: Problem) -> dict[str, Run]:
    """Return a sum over as many bytes as the keys and values have."""
    import torch

    x = torch.randn(spec.bytes(problem) // 4, device="cuda")
    return {"torch read": x.sum}


def _require_the_same(arguments: Arguments, runs: Mapping[str, Run], theirs: Mapping[str, Run]) -> None:
    wanted = next(iter(theirs.values()))().transpose(1, 2)
    out = arguments.tensors["out_ptr"]
    for name in runs.keys() - theirs.keys():
        out.fill_(float("nan"))
        runs[name]()
        for got, right in zip(out, wanted, strict=True):  # a sequence at a time: float32 takes twice the memory
            deviation = (got.float() - right.float()).abs() / (right.float().abs() + right.float().pow(2).mean().sqrt())
            assert float(deviation.max()) <= _CLOSE, f"{name} gives something else than PyTorch"
