"""Tensor descriptors that a launch hands to its function in place of tensors, made by the host.

A descriptor tells the hardware that copies tiles where a tensor lies, its sizes and strides, and the block to copy. It
is made for each launch, since it holds the tensor's address. All but that is known, and checked, beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.errors import BadSpec, UsageError
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Problem

__all__ = ["Describe", "describers", "with_descriptors"]

Describe = Callable[[Any], Any]
"""A function from a tensor to its descriptor."""

_ALIGNED = 16
"""Bytes of which a described tensor's address is a multiple (CUDA Driver API, cuTensorMapEncodeTiled)."""


def describers(spec: KernelSpec, problem: Problem, config: Config, step: Launch, function: Any) -> dict[str, Describe]:
    """Return how to describe each of the launch's described tensors, by name; raises `BadSpec`.

    Instead of a tensor, Triton's stand-in for one may be described, to compile the function.
    """
    if not step.blocks:
        return {}
    buffers = {**spec.buffers(problem), **spec.scratch(config, problem)}
    if unknown := sorted(step.blocks.keys() - buffers.keys()):
        raise BadSpec(f"kernel {spec.name} describes {', '.join(unknown)}, which are none of its buffers")
    return {
        name: _describer(f"{name} of kernel {spec.name}", buffers[name], block, function)
        for name, block in step.blocks.items()
    }


def with_descriptors(run: Callable[..., Any], describe: Mapping[str, Describe]) -> Callable[..., Any]:
    """Return the launch with its described tensors replaced by descriptors, each time anew."""

    def launched(**arguments: Any) -> Any:
        return run(**arguments | {name: of(arguments[name]) for name, of in describe.items()})

    return launched


def _describer(name: str, buffer: Buffer, block: Sequence[int], function: Any) -> Describe:
    import torch
    from triton.runtime.jit import MockTensor

    if len(block) != len(buffer.shape):
        raise BadSpec(f"{name} is described by blocks {block!r}; expected one size for each of its axes")
    strides = buffer.strides or tuple(math.prod(buffer.shape[axis + 1 :]) for axis in range(len(buffer.shape)))
    axes = sorted(range(len(strides)), key=lambda axis: -strides[axis])  # a descriptor's last axis is contiguous
    shape, strides, sizes = (tuple(each[axis] for axis in axes) for each in (buffer.shape, strides, block))
    kind, layout = _kind(function, sizes, buffer.dtype)
    try:
        fields = vars(kind(MockTensor(getattr(torch, buffer.dtype)), list(shape), list(strides), list(sizes), **layout))
    except (AssertionError, ValueError, TypeError) as error:
        raise BadSpec(f"{name} cannot be described: {error}") from error

    def describe(tensor: Any) -> Any:
        if tensor.data_ptr() % _ALIGNED:
            raise UsageError(f"{name} begins between multiples of {_ALIGNED} bytes, which its descriptor needs")
        descriptor = object.__new__(kind)  # as kind(..) makes it, whose checks take 2 us and were passed
        vars(descriptor).update(fields, base=tensor)
        return descriptor

    return describe


def _kind(function: Any, block: Sequence[int], dtype: str) -> tuple[Any, dict[str, Any]]:
    """Return the class of descriptors that the function takes and, for one in Gluon, the layout of their blocks."""
    if not getattr(function, "is_gluon", bool)():
        try:
            from triton.tools.tensor_descriptor import TensorDescriptor
        except ImportError as error:
            raise RuntimeError("tensor descriptors made by the host need upstream Triton 3.4 or newer") from error
        return TensorDescriptor, {}
    import triton.experimental.gluon.language as gl
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia import hopper

    layout = NVMMASharedLayout.get_default_for(list(block), getattr(gl, _GLUON.get(dtype, dtype)))
    return hopper.TensorDescriptor, {"layout": layout}


_GLUON = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
"""Names of dtypes in Gluon that are not torch's."""
