"""Functions for specs that were inferred from a program's launches, so that their files stay short."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from tilewise.kernels.candidate_values import powers_of_two
from tilewise.kernels.spec import Config, Target, Value

__all__ = [
    "NVIDIA_OPTIONS",
    "around",
    "between",
    "config_for",
    "configs_for",
    "exactly",
    "next_power_of_two",
    "packed",
    "unpacked",
]

NVIDIA_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Compile options that change nothing on Ascend."""


def next_power_of_two(size: int) -> int:
    """Return the least power of two that is at least `size`."""
    return powers_of_two(1, size)[-1]


def around(*values: int) -> list[int]:
    """Return the powers of two from a quarter of the smallest value to four times the largest, and the values."""
    least, most = max(1, min(values) // 4), 4 * max(values)
    return sorted({*powers_of_two(next_power_of_two(least), most), *values})


def config_for(target: Target, config: Config) -> Config:
    """Return a program's config as the target has it: Ascend has no warps or stages, and may double buffers."""
    if target.family != "ascend":
        return {name: value for name, value in config.items() if name != "multibuffer"}
    kept = {name: value for name, value in config.items() if name not in NVIDIA_OPTIONS}
    return {**kept, "multibuffer": kept.get("multibuffer", True)}


def configs_for(target: Target, configs: Sequence[Config]) -> list[Config]:
    """Return a program's configs as the target has them, each once; on Ascend with and without double buffers."""
    found: list[dict[str, Value]] = []
    for config in configs:
        kept = dict(config_for(target, config))
        both = [{**kept, "multibuffer": on} for on in (True, False)] if target.family == "ascend" else [kept]
        found += [one for one in both if one not in found]
    return list(found)


def between(low: int, high: int) -> Callable[[Any, Any], None]:
    """Return a `draw` of integers from `low` to `high`, both included."""

    def draw(tensor: Any, generator: Any) -> None:
        tensor.random_(low, high + 1, generator=generator) if low < high else tensor.fill_(low)

    return draw


def exactly(*values: int) -> Callable[[Any, Any], None]:
    """Return a `draw` of these very values: of the first ones for a smaller tensor, and again from the first on for a
    larger one of truths."""

    def draw(tensor: Any, generator: Any) -> None:
        import torch

        count = tensor.numel()
        given = itertools.islice(itertools.cycle(values), count) if tensor.dtype == torch.bool else values[:count]
        tensor.copy_(torch.tensor(list(given)).view(tensor.shape))

    return draw


def packed(values: Sequence[int]) -> str:
    """Return many integers as one word, short for those whose steps repeat."""
    steps = [after - before for before, after in itertools.pairwise((0, *values))]
    return base64.b64encode(zlib.compress(struct.pack(f"<{len(steps)}q", *steps), 9)).decode()


def unpacked(word: str) -> Sequence[int]:
    """Return the integers that `packed` made a word of."""
    steps = zlib.decompress(base64.b64decode(word))
    return list(itertools.accumulate(struct.unpack(f"<{len(steps) // 8}q", steps)))
