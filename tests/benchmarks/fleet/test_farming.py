"""The study of a fleet's compile farm, on a real Ray cluster."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.fleet.farming import bench_farming
from tilewise.tuner.devices.ascend_model import toolchain


@pytest.mark.full
def test_nodes_compile_each_artefact_once_for_a_host_that_compiles_none():
    pytest.importorskip("ray")
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    body = bench_farming(problems=1, trials=6, own_postgresql=False, say=str)
    assert body["faults"] == []
    assert body["first_run"]["compilations"] > 0
    assert body["first_run"]["by_host"]["node0"] == 0
    assert body["second_run"]["hits"] == body["third_run"]["hits"] == 1
