"""The contract of workers: registered, alive by their signs of life, and gone when they leave."""

from __future__ import annotations

import pytest
from served import ServedStore, ServedWorkers

from tilewise.db.workers import Lane, Workers

H200 = Lane("cuda:1", "NVIDIA H200", "measured", "cuda 12")
MODEL = Lane("model:Ascend910B4", "Ascend910B4", "modelled")


@pytest.fixture
def workers(store) -> Workers:
    return ServedWorkers(store) if isinstance(store, ServedStore) else Workers(store.database)


def test_a_worker_is_listed_with_what_it_has_until_it_leaves(workers):
    first = workers.register("one/1/a", "one", "0.1.0", [H200, MODEL], ["softmax", "cumsum"])
    second = workers.register("two/2/b", "two", "0.1.0", [], [])
    assert [worker.id for worker in workers.all()] == [first, second]
    worker = workers.all()[0]
    assert (worker.owner, worker.host, worker.version) == ("one/1/a", "one", "0.1.0")
    assert (worker.lanes, worker.kernels) == ([H200, MODEL], ["cumsum", "softmax"])
    assert (worker.beats, worker.draining) == (0, False)
    assert workers.beat(first)
    assert workers.beat(first, draining=True)
    assert (workers.all()[0].beats, workers.all()[0].draining) == (2, True)
    workers.leave(first)
    assert not workers.beat(first)
    assert [worker.id for worker in workers.all()] == [second]


def test_a_worker_that_gave_a_sign_of_life_is_not_removed(workers):
    number = workers.register("one/1/a", "one", "0.1.0", [H200], [])
    [seen] = workers.all()
    workers.beat(number)
    workers.forget(seen)
    assert [worker.id for worker in workers.all()] == [number]
    workers.forget(workers.all()[0])
    assert workers.all() == []


@pytest.mark.parametrize(
    ("device", "toolchain", "takes"),
    [
        ("cuda:1", "", True),
        ("cuda", "", True),
        ("NVIDIA H200", "cuda 12", True),
        ("NVIDIA H200", "cuda 13", False),
        ("cuda:0", "", False),
        ("NVIDIA L4", "", False),
    ],
)
def test_a_chip_is_asked_for_by_its_id_its_kind_or_its_name(device, toolchain, takes):
    assert H200.takes(device, toolchain) is takes


def test_a_modelled_part_is_asked_for_by_its_id_alone():
    assert MODEL.requests == {"model:Ascend910B4"}
    assert not MODEL.takes("model:Ascend910B4", "a toolchain")
