"""Shared by the specs of attention: tiles of heads, and the inputs that are drawn for them."""

from __future__ import annotations

from typing import Any

from tilewise.kernels.candidate_values import only_nvidia, powers_of_two
from tilewise.kernels.spec import Problem

__all__ = ["LARGEST_HEAD", "SLOTS", "WEIGHT_ROUNDING", "draw_keys", "draw_queries", "only_nvidia", "padded", "scale"]

SLOTS = 4
"""Slots of workspace in which Ascend's compiler lets as many trips overlap, unless it is told another number."""

LARGEST_HEAD = 256
"""Elements of a head, of which a program keeps a whole row of sums in registers."""

WEIGHT_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-13}
"""Largest relative error of a weight. In 16 bits it is rounded to the dtype of the values for their product: half a
unit in the last place. Where one key has almost all the weight, the sum of weighted values is off by as much. In
float32 the scores decide: on those drawn here, up to 2^8, plain float32 operations are off by 1.3e-4 of the result's
RMS."""


def padded(size: int) -> int:
    """Return a tile's side that holds `size`: a power of two, and at least the 16 of a matrix instruction."""
    return powers_of_two(16, size)[-1]


def scale(problem: Problem) -> float:
    return float(problem.dims["D"] ** -0.5)


def draw_queries(tensor: Any, generator: Any) -> None:
    """Draw queries of several magnitudes: small ones weigh all keys, large ones one key, and those overflow an
    exponential that is not relative to a maximum."""
    import torch

    powers = torch.randint(0, 6, tensor.shape[:-1], generator=generator, device=tensor.device)
    tensor.normal_(generator=generator).mul_((2.0**powers).unsqueeze(-1).to(tensor.dtype))


def draw_keys(tensor: Any, generator: Any) -> None:
    """Draw normal keys: scores of larger ones would differ by no more than float32 rounds off."""
    tensor.normal_(generator=generator)
