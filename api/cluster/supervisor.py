"""Keeps an actor for each device that the nodes of a Ray cluster offer, and says which are missing.

Ray starts an actor again whose process or node ended, where a unit of its resource is free. The actors outlive the
process that asked for them; the next one finds them by their names. No result depends on there being one actor for a
device: the leases of the database keep a second one from writing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.api.cluster.lane_actor import LaneActor, Report
from tilewise.tuner.cluster.farm import start_farm
from tilewise.tuner.cluster.offer import offered
from tilewise.tuner.cluster.ray_engine import NAMESPACE

__all__ = ["Member", "Supervisor", "look"]

_ANSWER_SECONDS = 2.0
_DRAIN_SECONDS = 60.0
_MISSING_SECONDS = 10.0
"""Time without an answer after which a device is said to be missing. An actor needs some of it to start."""
_CALLS_AT_ONCE = 8
"""Calls that an actor answers at the same time: it reports while a borrower of its chip waits for a time."""
_PENDING = "no live node offers a free one"


@dataclass(frozen=True, slots=True)
class Member:
    """A device of the fleet: the `number`th unit of a resource, and its actor's report, None if it is missing."""

    resource: str
    number: int
    report: Report | None

    @property
    def name(self) -> str:
        return _name(self.resource, self.number)

    @property
    def is_up(self) -> bool:
        return self.report is not None and bool(self.report.lane)

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.name} is missing: {_PENDING}"
        where = f"{self.report.host} {self.report.lane}".strip()
        if not self.is_up:
            return f"{self.name} waits on {where}: {self.report.why}"
        here = self.report.compiles_here
        return f"{self.name} is up on {where}" + (f", and compiles there, not on the farm: {here}" if here else "")


class Supervisor:
    """The actors of a fleet. `told` hears of each device that comes up, waits, or is missing."""

    def __init__(self, ray: Any, url: str, kernels: Sequence[str], told: Callable[[str], None]) -> None:
        self._ray, self._url, self._kernels, self._told = ray, url, tuple(kernels), told
        self._farm = start_farm(ray)
        self._actors: dict[str, Any] = {}
        self._answers = _Answers(ray)
        self._heard: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def turn(self) -> list[Member]:
        """Start the actors that there are not, ask all for a report, and return what they answer."""
        units = _units(self._ray)
        for resource, count in units.items():
            for number in range(count):
                self._start(resource, number)
        reports = self._answers.of(self._actors)
        for name in self._answers.dead:
            del self._actors[name]
        members = _members(units, reports)
        for member in members:
            self._say(member)
        return members

    def drain(self) -> None:
        """Have all actors finish their trials and give their jobs back, and end them."""
        draining = [self._actors[name].drain.remote() for name in self._answers.of(self._actors)]
        if draining:
            self._ray.wait(draining, num_returns=len(draining), timeout=_DRAIN_SECONDS)
        for actor in (*self._actors.values(), self._farm):
            self._ray.kill(actor)

    def _start(self, resource: str, number: int) -> None:
        name = _name(resource, number)
        if name not in self._actors:
            options = {"num_cpus": 0, "resources": {resource: 1}, "max_restarts": -1, "max_task_retries": 0}
            options["max_concurrency"] = _CALLS_AT_ONCE
            named = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
            actor = self._ray.remote(LaneActor).options(**options, **named)
            self._actors[name] = actor.remote(self._url, resource, self._kernels, self._farm)

    def _say(self, member: Member) -> None:
        """Tell of a change. One that is not there yet, or away for a moment, is not missing."""
        now = time.monotonic()
        since = self._heard.setdefault(member.name, now)
        if member.is_up:
            self._heard[member.name] = now
        elif now - since < _MISSING_SECONDS:
            return
        if self._said.get(member.name) != str(member):
            self._said[member.name] = str(member)
            self._told(str(member))


def look(ray: Any) -> list[Member]:
    """Return the devices of the fleet on a cluster, without changing anything."""
    units = _units(ray)
    actors = {}
    for name in _running(ray):
        try:
            actors[name] = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:  # it has ended meanwhile
            continue
    return _members(units, _Answers(ray).of(actors))


class _Answers:
    """The reports that actors were asked for. One that does not answer is asked once only."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._asked: dict[str, Any] = {}
        self.heard: dict[str, Report] = {}
        self.dead: set[str] = set()

    def of(self, actors: Mapping[str, Any]) -> dict[str, Report]:
        """Return the reports of the actors that answer in time, and note those that are dead for good."""
        self.heard, self.dead = {}, set()
        for name, actor in actors.items():
            self._asked.setdefault(name, actor.report.remote())
        names = {ref: name for name, ref in self._asked.items()}
        answered, _ = (
            self._ray.wait(list(names), num_returns=len(names), timeout=_ANSWER_SECONDS) if names else ([], [])
        )
        for ref in answered:
            name = names[ref]
            del self._asked[name]
            try:
                self.heard[name] = self._ray.get(ref)
            except self._ray.exceptions.ActorUnavailableError:  # Ray is about to start it again
                continue
            except self._ray.exceptions.RayActorError:
                self.dead.add(name)
        return self.heard


def _members(units: Mapping[str, int], reports: Mapping[str, Report]) -> list[Member]:
    return [
        Member(resource, number, reports.get(_name(resource, number)))
        for resource, count in sorted(units.items())
        for number in range(count)
    ]


def _units(ray: Any) -> Counter[str]:
    """Return the units of each resource that live nodes offer, or that there are actors for."""
    units = offered(ray.nodes())
    for name in _running(ray):
        resource, _, number = name.rpartition("#")
        units[resource] = max(units[resource], int(number) + 1)
    return units


def _running(ray: Any) -> list[str]:
    """Return the names of the actors, those that Ray is starting again included."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    return [one["name"] for one in listed if one["namespace"] == NAMESPACE and "#" in one["name"]]


def _name(resource: str, number: int) -> str:
    return f"{resource}#{number}"
