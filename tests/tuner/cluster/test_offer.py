"""The offer of a host to a Ray cluster, and its actors' shares of it."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tilewise.db.workers import Lane
from tilewise.errors import InUse, Unavailable
from tilewise.tuner.cluster import offer
from tilewise.tuner.cluster.offer import note, offered, resource_of, resources_of, taken

FIRST, SECOND = (Lane(f"cuda:{number}", "NVIDIA H200", "measured", "cuda 13") for number in (0, 1))
OLDER = Lane("cuda:2", "NVIDIA H200", "measured", "cuda 12")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path))


def test_equal_devices_are_units_of_one_resource_and_another_toolchain_is_another():
    assert resource_of(FIRST) == resource_of(SECOND) != resource_of(OLDER)
    assert resource_of(FIRST).startswith("tilewise:NVIDIA H200:")
    assert resources_of([FIRST, OLDER, SECOND]) == {resource_of(FIRST): 2, resource_of(OLDER): 1}


def test_units_are_those_of_live_nodes():
    live = {"Alive": True, "Resources": {"CPU": 2.0, resource_of(FIRST): 2.0}}
    assert offered([live, live, live | {"Alive": False}]) == {resource_of(FIRST): 4}


def test_each_actor_takes_a_lane_of_its_own():
    note([OLDER, FIRST, SECOND])
    with taken(resource_of(FIRST)) as one, taken(resource_of(FIRST)) as other:
        assert (one, other) == (FIRST, SECOND)
        with pytest.raises(InUse, match="other actors have all 2 lanes"), taken(resource_of(FIRST)):
            pass
    with taken(resource_of(FIRST)) as again:
        assert again == FIRST


@pytest.mark.parametrize("text", [None, "", "[1]", '[{"lane": 1}]'])
def test_a_host_that_noted_nothing_usable_says_what_to_run(text, tmp_path):
    if text is not None:
        (tmp_path / "fleet").mkdir()
        (tmp_path / "fleet" / "lanes.json").write_text(text)
    with pytest.raises(Unavailable, match="run tilewise fleet offer"), taken(resource_of(FIRST)):
        pass


def test_a_lane_is_given_back_at_the_end_of_the_block_whatever_ended_it(monkeypatch):
    held = []

    def lock(file, purpose):
        held.append((file.parent.name, len(file.name), purpose))
        return SimpleNamespace(release=held.clear)

    note([FIRST])
    monkeypatch.setattr(offer, "try_lock", lock)
    with ExitStack() as block:
        assert block.enter_context(taken(resource_of(FIRST))) == FIRST
        assert held == [("fleet", 12, "take cuda:0")]
    assert held == []
    with pytest.raises(KeyError), taken(resource_of(FIRST)):
        {}["an error inside"]
    assert held == []
