"""Entry point of the normalisation tests in an interpreter process: runs kernels on tensors that the test gives."""

from __future__ import annotations

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("run this with TRITON_INTERPRET=1 in the environment")

import torch

from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.verify import Arguments

interpreter_fixes.install()


def call(job, name, problem, config, argument):
    return {"on": _on, "twice": _twice}[job](registry.load(name), problem, config, argument)


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
