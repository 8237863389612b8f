"""The socket between a host's compile processes and the farm, without a farm."""

from __future__ import annotations

import threading

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.cluster.farm_socket import FarmSocket
from tilewise.tuner.workers.artefacts import waiting_seconds
from tilewise.tuner.workers.farm import VARIABLE, WAIT_SECONDS, Order, from_farm, make

ORDER = Order("key", "compiler", "tests:maker", (1, "two"))


@pytest.fixture
def served(monkeypatch):
    """A function that serves orders by a function, to this process."""
    sockets = []

    def serve(made):
        sockets.append(FarmSocket(made))
        monkeypatch.setenv(VARIABLE, sockets[-1].address)
        return sockets[-1]

    yield serve
    for socket in sockets:
        socket.close()


def test_an_order_arrives_whole_and_its_artefact_comes_back(served):
    got = []
    socket = served(lambda order: got.append(order) or b"x" * 10**6)
    assert from_farm(ORDER) == b"x" * 10**6
    assert (got, socket.why) == ([ORDER], "")


def test_several_orders_are_made_at_once(served):
    together = threading.Barrier(3, timeout=30)
    served(lambda order: (together.wait() and b"") or b"made")
    found = []
    threads = [threading.Thread(target=lambda: found.append(from_farm(ORDER))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"made"] * 3


def test_why_an_order_was_not_made_is_known_until_one_is(served):
    answers = iter([Unavailable("no node has a CPU"), b"made"])

    def made(order):
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    socket = served(made)
    assert from_farm(ORDER) is None
    assert socket.why == "Unavailable: no node has a CPU"
    assert from_farm(ORDER) == b"made"
    assert socket.why == ""


def test_a_config_that_does_not_compile_is_no_fault_of_the_farm(served):
    socket = served(lambda order: None)
    assert from_farm(ORDER) is None
    assert socket.why == ""


def test_without_a_farm_or_after_its_end_this_process_compiles(served, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (from_farm(ORDER), waiting_seconds()) == (None, 0.0)
    socket = served(lambda order: b"made")
    assert waiting_seconds() == WAIT_SECONDS
    socket.close()
    assert from_farm(ORDER) is None


def test_who_does_not_know_the_key_gets_nothing(served, monkeypatch):
    got = []
    socket = served(lambda order: got.append(order) or b"made")
    monkeypatch.setenv(VARIABLE, socket.address.partition(":")[0] + ":guessed")
    assert from_farm(ORDER) is None
    monkeypatch.setenv(VARIABLE, socket.address)
    assert (from_farm(ORDER), got) == (b"made", [ORDER])


def test_an_order_is_made_by_its_maker():
    assert make(Order("key", "compiler", "builtins:max", ("lock",))) == "lock"
