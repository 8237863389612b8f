"""The supervisor of a fleet, on a stand-in for Ray whose nodes and actors the tests end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.api.cluster import supervisor as module
from tilewise.api.cluster.lane_actor import Report
from tilewise.api.cluster.supervisor import Member, Supervisor, look

KIND, OTHER = "tilewise:NVIDIA H200:abc", "tilewise:NVIDIA H200:old"


class RayActorError(Exception):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Actor:
    """A named actor: `up` answers, `away` is being started again by Ray, `dead` is not, `pending` has no node."""

    def __init__(self, ray, name):
        self.ray, self.name, self.state, self.drained = ray, name, "up", False
        self.report = SimpleNamespace(remote=lambda: ("report", self))
        self.drain = SimpleNamespace(remote=self._drain)

    def _drain(self):
        self.drained = True
        return ("drain", self)


class Ray:
    """As much of the module `ray` as the supervisor uses."""

    exceptions = SimpleNamespace(RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError)

    def __init__(self, **units):
        self.units, self.actors, self.made, self.killed, self.asked = units, {}, [], [], []
        self.farm = None
        self.util = SimpleNamespace(list_named_actors=self._list)

    def nodes(self):
        return [{"Alive": True, "Resources": {KIND: float(count)}} for count in self.units.values()]

    def remote(self, cls):
        return SimpleNamespace(options=lambda **how: SimpleNamespace(remote=lambda *about: self._made(how, about)))

    def _made(self, how, about):
        if how["name"] == "farm":
            self.farm = self.farm or SimpleNamespace(name="farm", how=how)
            return self.farm
        self.asked.append({"resource": about[1], **how})
        assert about[3] is self.farm
        if how["name"] not in self.actors:
            self.made.append(how["name"])
            self.actors[how["name"]] = Actor(self, how["name"])
        return self.actors[how["name"]]

    def _list(self, all_namespaces=False):
        if not all_namespaces:  # this process is in a namespace of its own
            return []
        named = [{"name": name, "namespace": "tilewise"} for name in self.actors]
        return [*named, {"name": "a#b", "namespace": "of others"}, {"name": "farm", "namespace": "tilewise"}]

    def get_actor(self, name, namespace):
        if self.actors[name].state == "ended":
            raise ValueError(name)
        return self.actors[name]

    def wait(self, refs, num_returns, timeout):
        assert num_returns == len(refs) > 0
        done = [ref for ref in refs if ref[1].state != "pending"]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref):
        _, actor = ref
        if actor.state == "dead":
            self.actors.pop(actor.name, None)
            raise RayActorError("dead")
        if actor.state == "away":
            raise ActorUnavailableError("away")
        return Report("alpha", 7, f"cuda:{actor.name[-1]}")

    def kill(self, actor):
        self.killed.append(actor.name)
        self.actors.pop(actor.name, None)


@pytest.fixture
def told():
    return []


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(module, "_MISSING_SECONDS", 0.0)


def test_each_unit_of_each_node_gets_one_actor(told):
    ray = Ray(alpha=2, beta=1)
    supervisor = Supervisor(ray, "sqlite://", [], told.append)
    assert [member.is_up for member in supervisor.turn()] == [True] * 3
    supervisor.turn()
    assert ray.made == [f"{KIND}#{number}" for number in range(3)]
    assert told == [f"{KIND}#{number} is up on alpha cuda:{number}" for number in range(3)]


def test_actors_of_an_earlier_supervisor_are_found_by_their_names(told):
    ray = Ray(alpha=1)
    Supervisor(ray, "sqlite://", [], told.append).turn()
    ray.units = {}
    assert [member.is_up for member in Supervisor(ray, "sqlite://", [], told.append).turn()] == [True]
    assert ray.made == [f"{KIND}#0"]


def test_an_actor_takes_a_unit_of_its_resource_and_outlives_its_supervisor(told):
    ray = Ray(alpha=1)
    Supervisor(ray, "sqlite://", ["k"], told.append).turn()
    assert ray.asked == [
        {
            "resource": KIND,
            "num_cpus": 0,
            "resources": {KIND: 1},
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": 8,
            "name": f"{KIND}#0",
            "namespace": "tilewise",
            "lifetime": "detached",
            "get_if_exists": True,
        }
    ]


@pytest.mark.parametrize(
    ("report", "up", "text"),
    [
        (None, False, "H200#1 is missing: no live node offers a free one"),
        (Report("alpha", 7, "cuda:1"), True, "H200#1 is up on alpha cuda:1"),
        (Report("alpha", 7, "", "no lane is free"), False, "H200#1 waits on alpha: no lane is free"),
        (
            Report("alpha", 7, "cuda:1", compiles_here="no node has a CPU"),
            True,
            "H200#1 is up on alpha cuda:1, and compiles there, not on the farm: no node has a CPU",
        ),
    ],
)
def test_a_device_is_told_in_a_line(report, up, text):
    member = Member("H200", 1, report)
    assert (member.is_up, str(member)) == (up, text)


@pytest.mark.parametrize("state", ["away", "pending"])
def test_a_device_without_an_answer_is_said_to_be_missing_and_to_be_back(told, at_once, state):
    ray = Ray(alpha=1)
    supervisor = Supervisor(ray, "sqlite://", [], told.append)
    supervisor.turn()
    actor = ray.actors[f"{KIND}#0"]
    for actor.state in (state, state, "up"):
        supervisor.turn()
    assert [line.removeprefix(f"{KIND}#0 is ")[:7] for line in told] == ["up on a", "missing", "up on a"]
    assert ray.made == [f"{KIND}#0"]


def test_a_device_that_is_away_for_a_moment_is_not_said_to_be_missing(told):
    ray = Ray(alpha=1)
    supervisor = Supervisor(ray, "sqlite://", [], told.append)
    supervisor.turn()
    ray.actors[f"{KIND}#0"].state = "away"
    supervisor.turn()
    assert len(told) == 1


def test_an_actor_that_ray_gave_up_is_made_anew(told):
    ray = Ray(alpha=1)
    supervisor = Supervisor(ray, "sqlite://", [], told.append)
    supervisor.turn()
    ray.actors[f"{KIND}#0"].state = "dead"
    assert [member.is_up for member in supervisor.turn()] == [False]
    assert [member.is_up for member in supervisor.turn()] == [True]
    assert ray.made == [f"{KIND}#0"] * 2


def test_all_actors_have_the_one_farm_which_outlives_its_supervisor(told):
    ray = Ray(alpha=2)
    Supervisor(ray, "sqlite://", [], told.append).turn()
    Supervisor(ray, "sqlite://", [], told.append).turn()
    assert ray.farm.how == {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 1,
        "name": "farm",
        "namespace": "tilewise",
        "lifetime": "detached",
        "get_if_exists": True,
    }


def test_draining_ends_all_actors_and_waits_for_those_that_answer(told):
    ray = Ray(alpha=2)
    supervisor = Supervisor(ray, "sqlite://", [], told.append)
    supervisor.turn()
    first, second = ray.actors.values()
    second.state = "pending"
    supervisor.turn()
    supervisor.drain()
    assert (first.drained, second.drained) == (True, False)
    assert ray.killed == [first.name, second.name, "farm"]


def test_a_look_changes_nothing_and_tells_what_is_missing():
    ray = Ray(alpha=2)
    assert [str(member) for member in look(ray)] == [
        f"{KIND}#{number} is missing: no live node offers a free one" for number in range(2)
    ]
    assert ray.made == []
    Supervisor(ray, "sqlite://", [], str).turn()
    assert [member.is_up for member in look(ray)] == [True, True]
    next(iter(ray.actors.values())).state = "ended"
    assert [member.is_up for member in look(ray)] == [False, True]
    assert ray.made == [f"{KIND}#0", f"{KIND}#1"]
