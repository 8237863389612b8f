"""Nodes of a Ray cluster in one machine, as the study of a fleet kills them and starts them again."""

from __future__ import annotations

import shutil
import sys
import time

import pytest

from tilewise.benchmarks.fleet.chips import chips
from tilewise.benchmarks.fleet.raylets import RayCluster, RayNode
from tilewise.db.sql.sql_store import open_store

_TWO_ACTORS = """
import os, subprocess, sys
children = [subprocess.Popen([sys.argv[1], "120"]) for _ in range(2)]
for _ in children:
    os.wait()
"""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def node(tmp_path):
    """A node of two lanes whose processes are stand-ins of the same names."""
    actor = tmp_path / "ray::LaneActor"
    shutil.copy(shutil.which("sleep"), actor)
    made = RayNode("node0", (), tmp_path, {}, ["one", "two"])
    made._given = [sys.executable, "-c", _TWO_ACTORS, str(actor)]
    yield made
    made.end()


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_node_serves_a_head_if_each_of_its_lanes_has_an_actor_that_began_after_the_one_before_was_lost(node):
    lost = now() - 1.0
    assert not node.serves_since(lost)
    node.start()
    until(lambda: node.serves_since(lost))
    assert not node.serves_since(now() + 1.0)
    node.kill_actor()
    until(lambda: not node.serves_since(lost))


@pytest.mark.full
def test_a_node_that_starts_while_its_head_is_lost_serves_the_next_head(tmp_path):
    pytest.importorskip("ray")
    url = f"sqlite:///{tmp_path / 'tiles.db'}"
    open_store(url, create=True).close()
    [chip, _] = chips(tmp_path, 1, noise=0.02, seconds=0.2, seed=0)
    cluster = RayCluster(url, tmp_path, [[chip.id]])
    [node] = cluster.nodes
    try:
        began = now()
        cluster.start()
        until(lambda: cluster.mend() or node.serves_since(began), 180)
        node.kill()
        until(lambda: node.has_ended)
        node.start()
        time.sleep(0.5)
        lost = now()
        cluster.head.kill()
        until(lambda: cluster.mend() or node.serves_since(lost), 180)
    finally:
        cluster.end()
