"""The offer of a host to a Ray cluster: its lanes, as custom resources, one unit for each device.

A resource is named after the device name and the toolchain, so that Ray places an actor for a kind of device wherever
one is free. On its host the actor takes one of the offered lanes, which no other actor there has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewise.db.records import digest
from tilewise.db.workers import Lane
from tilewise.errors import InUse, Unavailable
from tilewise.settings import read_settings
from tilewise.tuner.workers.file_lock import try_lock

__all__ = ["kind_of", "lock_file", "note", "offered", "resource_of", "resources_of", "taken"]

_PREFIX = "tilewise:"
_DIGITS = 12


def resource_of(lane: Lane) -> str:
    """Return the name of the resource that a lane is a unit of."""
    return f"{_PREFIX}{lane.name}:{digest(lane.toolchain)[:_DIGITS]}"


def kind_of(resource: str) -> str:
    """Return the device name of a resource, or of one of its units (`RESOURCE#NUMBER`)."""
    return resource.removeprefix(_PREFIX).rpartition(":")[0]


def resources_of(lanes: Sequence[Lane]) -> dict[str, int]:
    """Return the units of each resource that these lanes are."""
    return dict(Counter(map(resource_of, lanes)))


def offered(nodes: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return the units of each resource on the live nodes, as `ray.nodes` lists them."""
    units = Counter[str]()
    for node in nodes:
        found = node["Resources"].items() if node["Alive"] else ()
        units.update({name: int(count) for name, count in found if name.startswith(_PREFIX)})
    return units


def note(lanes: Sequence[Lane]) -> None:
    """Note this host's lanes for the actors that Ray will start here with the same cache folder."""
    file = _folder() / "lanes.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(lane) for lane in lanes]))


@contextmanager
def taken(resource: str) -> Iterator[Lane]:
    """Take a lane that this host offers as a unit of the resource, which no other process has, until the block ends.

    Raises `Unavailable` if the host offers none, and `InUse` if others have all.
    """
    lanes = [lane for lane in _noted() if resource_of(lane) == resource]
    if not lanes:
        raise Unavailable(f"this host noted no lane of {resource}: run tilewise fleet offer with Ray's TILEWISE_CACHE")
    for lane in lanes:
        if (lock := try_lock(lock_file(lane), f"take {lane.id}")) is not None:
            try:
                yield lane
            finally:
                lock.release()
            return
    raise InUse(f"other actors have all {len(lanes)} lanes of {resource} on this host")


def lock_file(lane: Lane) -> Path:
    """Return the file whose lock the process has that has taken a lane."""
    return _folder() / digest(lane.id)[:_DIGITS]


def _noted() -> list[Lane]:
    try:
        return [Lane(**lane) for lane in json.loads((_folder() / "lanes.json").read_text())]
    except (OSError, ValueError, TypeError):  # absent, or of another version
        return []


def _folder() -> Path:
    return read_settings().cache_folder / "fleet"
