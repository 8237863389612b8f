"""Entry point of a process of Triton's interpreter in which every access to memory is compared with the tensors."""

from __future__ import annotations

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("run this with TRITON_INTERPRET=1 in the environment")

import functools
import operator

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.tuner.measure import launch as launches
from tilewise.tuner.measure.verify import Arguments, check_outputs

interpreter_fixes.install()
launches.provide_allocator = lambda: None  # interpreted descriptors need no memory


class Descriptor:
    """A tensor descriptor, which this release's interpreter lacks: what lies outside reads as 0 and is not stored."""

    def __init__(self, base, shape, strides, block_shape):
        self._base, self._shape, self._strides = base, shape, strides
        self._block = [getattr(size, "value", size) for size in block_shape]

    def load(self, offsets):
        at, inside = self._places(offsets)
        return tl.load(at, mask=inside, other=0.0)

    def store(self, offsets, values):
        at, inside = self._places(offsets)
        tl.store(at, values, mask=inside)

    def _places(self, offsets):
        numbers, insides = [], []
        for axis, (offset, size, stride, count) in enumerate(
            zip(offsets, self._shape, self._strides, self._block, strict=True)
        ):
            along = offset + tl.arange(0, count)
            shape = [count if other == axis else 1 for other in range(len(self._block))]
            numbers.append(tl.reshape(along, shape) * stride)
            insides.append(tl.reshape((along >= 0) & (along < size), shape))
        at = functools.reduce(operator.add, numbers)
        return self._base + at, functools.reduce(operator.and_, insides)


tl.make_tensor_descriptor = Descriptor

patch_tensor = interpreter._patch_lang_tensor


def patch_tensor_with_shape(tensor):
    """Patch the language's tensor as the interpreter does, but let a transposed tensor keep its shape."""
    patch_tensor(tensor)
    tensor.T = property(tl.trans)


interpreter._patch_lang_tensor = patch_tensor_with_shape


class Memory:
    """The interpreter's memory, of which only the tensors may be touched; `strays` counts other accesses by kind."""

    def __init__(self, memory):
        self._memory, self._firsts, self._ends, self.strays = memory, np.array([]), np.array([]), {}

    def __getattr__(self, name):
        return getattr(self._memory, name)

    def watch(self, tensors):
        spans = sorted((t.data_ptr(), t.data_ptr() + _span_bytes(t)) for t in tensors)
        self._firsts, self._ends = (np.array(each, dtype=np.uint64) for each in zip(*spans, strict=True))
        self.strays = {}

    def load(self, pointers, mask, *rest):
        self._check("load", pointers, mask)
        return self._memory.load(pointers, mask, *rest)

    def store(self, pointers, values, mask):
        self._check("store", pointers, mask)
        return self._memory.store(pointers, values, mask)

    def atomic_rmw(self, operation, pointers, values, mask, *rest):
        self._check("atomic", pointers, mask)
        return self._memory.atomic_rmw(operation, pointers, values, mask, *rest)

    def _check(self, kind, pointers, mask):
        touched = np.broadcast_to(pointers, np.shape(mask))[np.asarray(mask, dtype=bool)].astype(np.uint64)
        tensor = np.searchsorted(self._firsts, touched, side="right") - 1
        inside = (tensor >= 0) & (touched < self._ends[np.maximum(tensor, 0)])
        if strays := int((~inside).sum()):
            self.strays[kind] = self.strays.get(kind, 0) + strays


MEMORY = interpreter._interpreter = Memory(interpreter._interpreter)


def call(name, problem, config):
    """Return why the outputs are wrong, or an empty text, and the number of accesses outside the tensors, by kind."""
    arguments = _launched(name, problem, config)
    verdict = check_outputs(arguments)
    return "" if verdict.agreed else verdict.reason, MEMORY.strays


def values(name, problem, config):
    """Return all tensors after a launch as arrays, and the number of accesses outside them, by kind."""
    arguments = _launched(name, problem, config)
    return {tensor: value.numpy() for tensor, value in arguments.tensors.items()}, MEMORY.strays


def _launched(name, problem, config):
    spec = registry.load(name)
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.expected()
    arguments.poison()
    MEMORY.watch(tensors.values())
    launches.launch(spec, problem, config, tensors)
    return arguments


def _span_bytes(tensor):
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return elements * tensor.element_size()
