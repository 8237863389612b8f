"""The arguments of programs of calls: random tensors on an accelerator, and functions of libraries by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

__all__ = ["apply", "back", "call", "grad", "numbers", "real", "shares", "whole"]


def call(place: str, *args: Any, **kwargs: Any) -> Any:
    """Call `package.module:function`, imported now: a host has few of the libraries."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)(*args, **kwargs)


def apply(place: str, *args: Any) -> Any:
    """Call a torch.autograd.Function."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name).apply(*args)


def real(*shape: int, dtype: str = "float32", device: str = "npu") -> Any:
    """Return normally distributed numbers."""
    torch = importlib.import_module("torch")
    return torch.randn(shape, dtype=getattr(torch, dtype), device=device)


def whole(below: int, *shape: int, device: str = "cuda") -> Any:
    """Return whole numbers from 0 on."""
    return importlib.import_module("torch").randint(0, below, shape, device=device)


def numbers(values: Iterable[float], dtype: str = "int32") -> Any:
    """Return these numbers as a tensor."""
    torch = importlib.import_module("torch")
    return torch.tensor(list(values), dtype=getattr(torch, dtype), device="cuda")


def grad(*shape: int, dtype: str = "float32") -> Any:
    """Return normally distributed numbers whose gradient is asked for."""
    return real(*shape, dtype=dtype).requires_grad_()


def shares(*shape: int) -> Any:
    """Return numbers between 0 and 1."""
    return real(*shape).sigmoid()


def back(result: Any) -> None:
    """Launch the gradients of a result."""
    result.square().sum().backward()
