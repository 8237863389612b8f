"""The compile farm on a real Ray cluster of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.cluster.farm import FarmReport, farm_report, fetched, start_farm
from tilewise.tuner.cluster.ray_engine import connected
from tilewise.tuner.workers.farm import Order

MAKERS = """
import os, time
from pathlib import Path
from tilewise.errors import Unavailable

LOG = Path(__file__).with_name("made")

def made(key, content):
    with LOG.open("a") as log:
        print(key, file=log)
    time.sleep(0.3)
    return content, True

def kept(key):
    return b"kept", False

def refused(key):
    raise ValueError("it does not compile")

def crashed(key):
    os._exit(3)

def elsewhere(key):
    raise Unavailable("this host has another compiler")
"""


@pytest.fixture
def ray(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short, as it holds sockets
    monkeypatch.setenv("RAY_TMPDIR", scratch)
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWISE_JOBS", "2")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "farm_makers.py").write_text(MAKERS)
    with connected(None) as ray:
        yield ray
    shutil.rmtree(scratch, ignore_errors=True)


def order(key, maker, *arguments):
    return Order(key, "tests", f"farm_makers:{maker}", arguments)


@pytest.mark.full
def test_orders_are_made_once_by_tasks_of_nodes_and_found_by_reference(ray, tmp_path):
    farm, found = start_farm(ray), []
    threads = [
        threading.Thread(target=lambda key=key: found.append(fetched(farm, order(key, "made", key.encode()))))
        for key in ("a", "b", "a", "a")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [b"a", b"a", b"a", b"b"]
    assert sorted((tmp_path / "made").read_text().split()) == ["a", "b"]
    assert fetched(farm, order("c", "kept")) == b"kept"
    assert fetched(farm, order("d", "refused")) is None
    assert fetched(farm, order("e", "crashed")) is None
    for _ in range(2):  # one that failed is not remembered
        with pytest.raises(Unavailable, match="this host has another compiler"):
            fetched(farm, order("f", "elsewhere"))
    [(node, compiled)] = farm_report(ray).compiled.items()
    assert compiled == 4
    assert farm_report(ray) == FarmReport({node: 4}, {node: 1}, again=2, failed=2)
    assert str(farm_report(ray)) == (
        f"compile farm: {node}: 4 compiled, 1 from its caches; 2 by reference, 2 failed, 0 wait"
    )


def test_a_cluster_without_a_farm_has_no_report():
    class Ray:
        class exceptions:  # noqa: N801 - as the module is called
            RayError = RuntimeError

        @staticmethod
        def get_actor(name, namespace):
            raise ValueError(name)

    assert farm_report(Ray) is None
