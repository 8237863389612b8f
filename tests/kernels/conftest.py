"""The targets of the tested spaces, and one interpreter for all tests of kernels' values."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from places import HELPERS

from tilewise.benchmarks.model.interpreter import InterpreterVerifier
from tilewise.kernels.spec import Config, Problem, Target
from tilewise.tuner.workers.worker import Worker

settings.register_profile("same every time", derandomize=True, deadline=None)
settings.load_profile("same every time")

ASCEND = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
NVIDIA = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1)


@pytest.fixture(scope="session")
def ascend() -> Target:
    return ASCEND


@pytest.fixture(scope="session")
def nvidia() -> Target:
    return NVIDIA


@pytest.fixture(scope="session", params=[ASCEND, NVIDIA], ids=["ascend", "nvidia"])
def target(request: pytest.FixtureRequest) -> Target:
    return request.param


@pytest.fixture(scope="session")
def interpreter() -> Iterator[InterpreterVerifier]:
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch and triton")
    verifier = InterpreterVerifier()
    verifier.start()
    yield verifier
    verifier.close()


@pytest.fixture(scope="session")
def normalisations() -> Iterator[Callable[..., Any]]:
    """A function that runs the jobs of `normalisations.py` in an interpreter process."""
    path = os.pathsep.join([str(HELPERS), *sys.path])
    worker = Worker("normalisations:call", env={"TRITON_INTERPRET": "1", "PYTHONPATH": path})

    def call(job: str, name: str, problem: Problem, config: Config, argument: Any) -> Any:
        if not isinstance(argument, dict):
            return worker.call(job, name, problem, config, argument, timeout=60.0)
        import torch

        arrays = {tensor: values.numpy() for tensor, values in argument.items()}  # torch tensors would share memory
        outputs = worker.call(job, name, problem, config, arrays, timeout=60.0)
        return {tensor: torch.from_numpy(values) for tensor, values in outputs.items()}

    yield call
    worker.close()
