"""Chips that a process borrows from actors, over a stand-in for Ray that runs each call at once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, NAMES, chips, problems, true_us
from tilewise.errors import InUse, Unavailable, UsageError
from tilewise.kernels import registry
from tilewise.tuner.cluster.borrowed_chip import borrow
from tilewise.tuner.cluster.lent_chip import LentChip
from tilewise.tuner.devices.recorded_chip import RecordedChip
from tilewise.tuner.devices.spread import SpreadDevice
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import Space, enumerate_space


class RayError(Exception):
    cause = None


class Method:
    def __init__(self, call):
        self._call, self._stream = call, False

    def options(self, num_returns):
        assert num_returns == "streaming"
        method = Method(self._call)
        method._stream = True
        return method

    def remote(self, *about):
        try:
            result = self._call(*about)
            return (("got", one) for one in result) if self._stream else ("got", result)
        except Exception as error:
            return ("raised", error)


class Actor:
    """An actor of one replayed chip; `busy` has a job, and `lost` does not answer."""

    toolchain = ""

    def __init__(self, chip, busy=False):
        self.chip, self.busy, self.lost, self.loan, self.returned = chip, busy, False, None, False

    def __getattr__(self, name):
        return Method(getattr(type(self), f"do_{name}").__get__(self))

    def do_lend(self, loan):
        if self.busy:
            raise InUse("it has a job")
        self.loan, self.lent = loan, LentChip(RecordedChip(self.chip.file))
        about = self.lent.describe()
        return replace(about, toolchain=self.toolchain or about.toolchain)

    def do_evaluate_lent(self, loan, *about):
        for outcome in self.lent.evaluate(*about):
            if self.lost:
                return
            yield outcome

    def do_ask_lent(self, loan, *about):
        if self.lost:
            raise RayError("the actor died")
        return self.lent.ask(*about)

    def do_beat_lent(self, loan, *about):
        self.lent.beat(*about)

    def do_keep_lent(self, loan):
        assert loan == self.loan

    def do_give_back(self, loan):
        self.returned = loan == self.loan


class Ray:
    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, actors):
        self.actors = actors
        self.util = SimpleNamespace(list_named_actors=self._list)

    def _list(self, all_namespaces):
        named = [{"name": name, "namespace": "tilewise"} for name in self.actors]
        return [*named, {"name": "farm", "namespace": "tilewise"}]

    def get_actor(self, name, namespace):
        return self.actors[name]

    def get(self, ref, timeout=None):
        kind, value = ref
        if kind == "raised":
            error = RayError(str(value))
            error.cause = value
            raise error
        return value


@pytest.fixture
def ray(tmp_path):
    """Four actors of chips of two kinds, the last with a job."""
    made = chips(tmp_path, 8, noise=0.0, seconds=0.0, seed=0)[:-1]
    alike = [chip for chip in made if chip.planted.name == NAMES[0]]
    actors = {f"tilewise:{NAMES[0]}:abc#{number}": Actor(chip, busy=number == 3) for number, chip in enumerate(alike)}
    return Ray(actors | {f"tilewise:{NAMES[1]}:abc#0": Actor(made[1])})


SPEC = registry.load(KERNEL)
PROBLEM = make_problem(SPEC, problems(1)[0][1], DTYPE)


def configs_of(device, count) -> list:
    space: Space = enumerate_space(SPEC, PROBLEM, device.target)
    return list(space.configs)[:count]


def test_idle_chips_of_a_name_are_borrowed_and_given_back(ray):
    told = []
    borrowed = borrow(ray, NAMES[0], told=told.append)
    assert [chip.id for chip in borrowed] == [ray.actors[f"tilewise:{NAMES[0]}:abc#{n}"].chip.id for n in range(3)]
    assert told == [f"tilewise:{NAMES[0]}:abc#3 is left out: it has a job"]
    for chip in borrowed:
        chip.close()
    assert [actor.returned for actor in ray.actors.values()] == [True, True, True, False, False]


def test_a_borrowed_chip_does_what_the_chip_does(ray):
    [chip, *_] = borrow(ray, NAMES[0], told=str)
    actor = next(iter(ray.actors.values()))
    here = RecordedChip(actor.chip.file)
    configs = configs_of(here, 6)
    there = list(chip.evaluate(SPEC, PROBLEM, configs))
    assert [one.status for one in there] == [one.status for one in here.evaluate(SPEC, PROBLEM, configs)]
    assert {one.facts["chip"] for one in there} == {here.id}
    assert chip.verify(SPEC, PROBLEM, configs[0]) == here.verify(SPEC, PROBLEM, configs[0])
    assert chip.scope(SPEC, PROBLEM) == here.scope(SPEC, PROBLEM)
    assert (chip.floor_us(SPEC, PROBLEM), chip.predict_us(SPEC, PROBLEM, configs)) == (None, None)
    assert len(chip.race(SPEC, PROBLEM, configs[:2], 5)) == 2
    assert chip.memory_bytes() == here.memory_bytes()


def test_one_problem_is_spread_over_borrowed_chips_as_ratios_to_anchors(ray):
    with SpreadDevice(borrow(ray, NAMES[0], told=str)) as device:
        configs = configs_of(device, 24)
        outcomes = list(device.evaluate(SPEC, PROBLEM, configs))
    timed = [(config, one) for config, one in zip(configs, outcomes, strict=True) if one.timing is not None]
    assert len({one.facts["chip"] for _, one in timed}) == 3
    ratios = [one.timing.time_us / true_us(NAMES[0], PROBLEM, config) for config, one in timed]
    assert max(ratios) / min(ratios) == pytest.approx(1.0, abs=1e-6)


def test_a_chip_that_is_lost_leaves_its_share_to_the_others(ray):
    told = []
    with SpreadDevice(borrow(ray, NAMES[0], told=str), told=told.append) as device:
        configs = configs_of(device, 60)
        outcomes = device.evaluate(SPEC, PROBLEM, configs)
        found = [next(outcomes)]
        lost = list(ray.actors.values())[1]
        lost.lost = True
        found += outcomes
    assert len(found) == 60
    assert len(told) == 1 and told[0].startswith(f"{lost.chip.id} is drained: it is lost")


def test_chips_that_all_have_jobs_are_in_use_and_unknown_ones_unavailable(ray):
    for actor in ray.actors.values():
        actor.busy = True
    with pytest.raises(InUse, match="none of 4 chips"):
        borrow(ray, NAMES[0], told=str)
    with pytest.raises(Unavailable, match="no actor of the cluster has a chip called 'H300'"):
        borrow(ray, "H300", told=str)


def test_as_many_chips_are_borrowed_as_are_wanted_and_others_left_out_are_told_on_stderr(ray, capsys):
    assert len(borrow(ray, NAMES[0], 2)) == 2
    assert len(borrow(ray, NAMES[0])) == 3
    assert capsys.readouterr().err == f"tilewise: tilewise:{NAMES[0]}:abc#3 is left out: it has a job\n"


def test_a_chip_of_another_toolchain_is_given_back_and_named(ray):
    other, told = ray.actors[f"tilewise:{NAMES[0]}:abc#1"], []
    other.toolchain = "another 1"
    first, last = borrow(ray, NAMES[0], told=told.append)
    assert [first.id, last.id] == [ray.actors[f"tilewise:{NAMES[0]}:abc#{n}"].chip.id for n in (0, 2)]
    assert other.returned and not next(iter(ray.actors.values())).returned
    left_out = f"{other.chip.id} on {last.host} is left out: its toolchain is another than that of {first.id}"
    assert told[-1] == left_out


def test_an_actor_that_dies_is_a_lost_chip_and_what_its_device_refuses_is_refused_here(ray, monkeypatch):
    def refuse(*about):
        raise UsageError("it records only another kernel")

    [chip, *_] = borrow(ray, NAMES[0], told=str)
    actor = next(iter(ray.actors.values()))
    with monkeypatch.context() as patch:
        patch.setattr(LentChip, "ask", refuse)
        with pytest.raises(UsageError, match=r"^it records only another kernel$"):
            chip.floor_us(SPEC, PROBLEM)
    actor.lost = True
    with pytest.raises(Unavailable, match=f"^{chip.id} on {chip.host}: the actor died$"):
        chip.floor_us(SPEC, PROBLEM)
    with pytest.raises(Unavailable, match=f"^{chip.id} on {chip.host} ended its loan$"):
        list(chip.evaluate(SPEC, PROBLEM, configs_of(RecordedChip(actor.chip.file), 3)))


def test_the_time_to_beat_is_told_when_it_changes(ray, monkeypatch):
    [chip, *_] = borrow(ray, NAMES[0], told=str)
    told = []
    monkeypatch.setattr(Actor, "do_beat_lent", lambda self, loan, share, best_us: told.append((share, best_us)))
    best = iter([None, 9.0, 9.0, 7.5])
    configs = configs_of(RecordedChip(next(iter(ray.actors.values())).chip.file), 3)
    assert len(list(chip.evaluate(SPEC, PROBLEM, configs, to_beat_us=lambda: next(best)))) == 3
    assert told == [(1, 9.0), (1, 7.5)]
    list(chip.evaluate(SPEC, PROBLEM, configs[:1], to_beat_us=lambda: 7.5))
    assert told == [(1, 9.0), (1, 7.5)] and chip._share == 4
