"""Entry point of tests in an interpreter process: runs kernels on tensors that the test gives, or counts moves."""

from __future__ import annotations

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("run this with TRITON_INTERPRET=1 in the environment")

import numpy as np
import torch
from triton.runtime.interpreter import InterpreterBuilder

from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.verify import Arguments

interpreter_fixes.install()


def call(job, name, problem, config, argument):
    return {"on": _on, "twice": _twice, "moved": _moved}[job](registry.load(name), problem, config, argument)


def _on(spec, problem, config, inputs):
    """Return the outputs for these inputs, both as numpy arrays."""
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    for tensor, values in inputs.items():
        tensors[tensor].copy_(torch.from_numpy(values))
    launch(spec, problem, config, tensors)
    return {output: tensor.numpy() for output, tensor in arguments.outputs.items()}


def _twice(spec, problem, config, reset):
    """Return the verdict on the outputs of a second run on the same tensors."""
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    launch(spec, problem, config, tensors)
    if reset:
        arguments.reset()
    launch(spec, problem, config, tensors)
    return compare(arguments.outputs, arguments.expected())


def _moved(spec, problem, config, _):
    """Return how many elements were loaded and how many loads those were, and the same of stores."""
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    loaded, stored = [], []

    def counted(method, places):
        def move(builder, ptrs, *rest):
            mask = rest[0] if method is load else rest[1]
            addresses, is_moved = np.broadcast_arrays(ptrs.data, mask.data.astype(bool))
            places.append(addresses[is_moved].ravel())
            return method(builder, ptrs, *rest)

        return move

    InterpreterBuilder.create_masked_load = counted(load, loaded)
    InterpreterBuilder.create_masked_store = counted(store, stored)
    try:
        launch(spec, problem, config, tensors)
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store
    return [number for places in (loaded, stored) for number in _counts(places)]


def _counts(places):
    addresses = np.concatenate([np.zeros(0, np.uint64), *places])
    return len(np.unique(addresses)), len(addresses)
