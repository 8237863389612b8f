"""One problem on chips that a process borrows from a real Ray cluster."""

from __future__ import annotations

import pytest

from tilewise.benchmarks.fleet.borrowing import bench_borrowing


@pytest.mark.full
def test_chips_of_a_cluster_share_the_trials_of_one_problem():
    pytest.importorskip("ray")
    body = bench_borrowing(devices=2, nodes=1, trials=12, seconds=0.05, search="random", url=None, say=str)
    assert [(row["chips"], row["nodes"]) for row in body["rows"]] == [(1, 1), (2, 1)]
    for row in body["rows"]:  # the default is timed too if it was not drawn
        assert row["trials"] - 12 * row["chips"] in (0, 1)
