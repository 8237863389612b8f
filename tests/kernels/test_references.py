"""The references of the kernels, which verification compares outputs with."""

from __future__ import annotations

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem

pytest.importorskip("torch")
from tilewise.tuner.measure.verify import Arguments


@pytest.mark.parametrize("kernel", registry.names())
def test_a_reference_has_the_shapes_of_the_outputs(kernel):
    spec = registry.load(kernel)
    sizes = (37, 300) if len(spec.dims) == 2 else (37, 16, 8, 40, 2, 16)
    problem = Problem(kernel, dict(zip(spec.dims, sizes, strict=False)), spec.dtypes[0])
    arguments = Arguments(spec, problem)
    outputs = {name: buffer.shape for name, buffer in arguments.buffers.items() if buffer.role != "in"}
    assert {name: tuple(tensor.shape) for name, tensor in arguments.expected().items()} == outputs
