"""The device made of this machine's processor, where the studies of a GPU expect theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from places import HELPERS

from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec


@pytest.fixture(scope="module")
def host_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An open host device; opening one costs seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HELPERS)
        patch.setenv("TILEWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        from host import HostDevice

        with HostDevice(name="Studied") as device:
            yield device


@pytest.fixture
def in_place_of_the_gpu(host_device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a module of a study open the host device wherever it would open a GPU."""
    return lambda module: monkeypatch.setattr(module, "CudaDevice", lambda jobs=None: nullcontext(host_device))


@pytest.fixture(scope="module")
def sums() -> KernelSpec:
    """Sums of rows on the host, with twelve configs that run; `TILE` 0 takes 10 us, each step 1 us more."""
    spec = registry.load(f"{HELPERS / 'host.py'}:SPEC")
    return dataclasses.replace(
        spec, configs=lambda problem, target: [{"TILE": tile, "FAULT": ""} for tile in range(12)]
    )
