"""The devices that spaces are made for, and one interpreter for all tests of kernels' values."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tilewise.kernels.spec import Target
from tilewise.tuner.interpreter import InterpreterVerifier

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
