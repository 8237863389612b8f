"""A small run of `tilewise bench artefacts`, with real hosts, a real compiler, and one host killed."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.fleet.artefacts import bench_artefacts
from tilewise.tuner.devices.ascend_model import toolchain


@pytest.mark.full
def test_hosts_compile_each_artefact_once_and_go_on_without_the_one_that_died():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    body = bench_artefacts(problems=1, trials=8, url=None, own_postgresql=False, say=str)
    assert body["faults"] == []
    assert body["first_run"]["compilations"] == body["needed"] > 5
    assert body["second_run"]["hits"] == 1
    assert body["killed"]["unfinished"] >= 1
