"""The connection to a Ray cluster, without Ray: what it is asked for, and how its failures are told."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest

from tilewise.errors import Unavailable, UsageError
from tilewise.tuner.cluster import ray_engine
from tilewise.tuner.cluster.ray_engine import answers, check_answers, connected


@pytest.fixture
def ray(monkeypatch):
    """A stand-in for Ray that notes how it is started and ended; `fails` is what starting raises."""
    done = []

    def init(**options):
        if made.fails is not None:
            raise made.fails
        done.append(options)

    made = SimpleNamespace(init=init, shutdown=lambda: done.append("shutdown"), done=done, fails=None)
    monkeypatch.setattr(ray_engine, "import_ray", lambda: made)
    return made


SHARED = {"namespace": ray_engine.NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}


def test_a_cluster_on_this_machine_offers_what_is_asked_for_and_ends_with_the_block(ray, monkeypatch):
    monkeypatch.setenv("TILEWISE_JOBS", "3")
    with pytest.raises(KeyError), connected(None, {"chip": 2}):
        {}["an error inside"]
    options, end = ray.done
    assert options == {
        **SHARED,
        "address": "local",
        "include_dashboard": False,
        "object_store_memory": ray_engine.OBJECT_STORE_BYTES,
        "num_cpus": 3,
        "resources": {"chip": 2},
    }
    assert end == "shutdown"
    with connected(None) as found:
        assert found is ray
        assert ray.done[-1]["resources"] == {}


def test_a_cluster_elsewhere_is_asked_whether_it_answers_first(ray, monkeypatch):
    asked = []
    monkeypatch.setattr(ray_engine, "check_answers", asked.append)
    with connected("head:6379"):
        assert (asked, ray.done) == (["head:6379"], [SHARED | {"address": "head:6379"}])
    assert ray.done[-1] == "shutdown"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (None, "Ray could not start on this machine: no memory " + "x" * 190),
        ("head:6379", "Ray does not answer at head:6379: no memory " + "x" * 190),
    ],
)
def test_a_cluster_that_does_not_start_or_answer_is_told_in_one_line(ray, monkeypatch, address, told):
    monkeypatch.setattr(ray_engine, "check_answers", lambda address: None)
    ray.fails = ValueError("no\n  memory " + "x" * 300)
    with pytest.raises(Unavailable) as failed, connected(address):
        pass
    assert str(failed.value) == told
    assert ray.done == []


def test_an_address_answers_that_takes_a_connection():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert answers(address, 5.0) is True
        check_answers(address)
    assert answers(address, 5.0) is False
    with pytest.raises(Unavailable, match=f"no Ray cluster answers at {address}"):
        check_answers(address)
    assert answers("127.0.0.1:99999999", 5.0) is False
    check_answers("auto")


@pytest.mark.parametrize("address", ["head", ":6379", "head:", "head:port", "6379"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="is not the address of a Ray cluster; expected HOST:PORT"):
        answers(address, 1.0)
