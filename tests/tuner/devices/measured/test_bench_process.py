"""The bench process on a device whose clock is a test's: facts, drift, and repeats."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.db.records import ENERGY, METRICS, Status
from tilewise.tuner.devices.measured import bench_process
from tilewise.tuner.devices.measured.accelerator import Failure, Job, State, turns
from tilewise.tuner.devices.measured.bench_process import PAUSES, SECONDS, Bench
from tilewise.tuner.measure.drift import DRIFT
from tilewise.tuner.measure.outcome import Outcome, Timing

JOB = Job(lambda: None, ["kernel"])


class Reference:
    """A drift reference that answers with the given ratios."""

    def __init__(self, *ratios):
        self.ratios, self.renewed = list(ratios), 0

    def ratio(self):
        return self.ratios.pop(0)

    def renew(self):
        self.renewed += 1


@pytest.fixture
def bench(monkeypatch):
    """A bench on whose device every timing takes 0.25 s; `asked` lists the limits given, `slept` the pauses."""
    now, asked, slept = [500.0], [], []

    def timed(sample, *, to_beat_us, seconds):
        now[0] += 0.25
        asked.append((to_beat_us, seconds))
        return Timing(float(len(asked)))

    def sleep(seconds):
        now[0] += seconds
        slept.append(seconds)

    monkeypatch.setattr(bench_process, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(bench_process, "time_adaptively", timed)
    runtime = SimpleNamespace(
        timer=SimpleNamespace(name="events", samples_us=len), warm=False, state=lambda: State(1200.0, "")
    )
    made = Bench(runtime)
    made.asked, made.slept = asked, slept
    return made


def test_the_facts_of_a_timing_are_its_seconds_and_the_state_as_far_as_it_is_known(bench):
    bench._drift_reference = lambda: None
    timing, facts = bench._timed(JOB, 7.0)
    assert facts == {"timing_s": 0.25, "clock_mhz": 1200.0}
    assert (timing.time_us, timing.method, timing.l2) == (1.0, "events", "cold")
    assert bench.asked == [(7.0, SECONDS)]
    bench.runtime.warm = True
    assert bench._timed(JOB, None)[0].l2 == "warm"


@pytest.mark.parametrize(
    ("ratios", "repeats", "lasts"),
    [([None], None, False), ([1.2, None], 1, False), ([1.2, 1.1, 1.3, None], 3, False), ([1.2, 1, 1, 1], 3, True)],
)
def test_a_config_is_timed_again_while_the_device_drifts_with_ever_longer_pauses(bench, ratios, repeats, lasts):
    reference = Reference(*ratios)
    bench._drift_reference = lambda: reference
    timing, facts = bench._timed(JOB, None)
    assert timing.time_us == len(bench.asked) == len(ratios)
    pauses = list(PAUSES[: len(ratios) - 1])
    assert bench.slept == pauses
    assert facts["timing_s"] == pytest.approx(0.25 * len(ratios) + sum(pauses))
    drift = {"ratio": 1.2, "clock_mhz": 1200.0, "repeats": repeats, "lasts": lasts}
    assert facts.get(DRIFT) == (None if repeats is None else drift)
    assert reference.renewed == int(lasts)
    assert reference.ratios == []


def test_the_reference_is_timed_once_and_only_where_there_is_one(bench, monkeypatch):
    opened = []
    monkeypatch.setattr(bench_process, "Reference", lambda sampler: opened.append(sampler) or "reference")
    bench.runtime.reference = lambda: None
    assert bench._drift_reference() is None
    bench.runtime.reference = lambda: JOB
    assert [bench._drift_reference() for _ in range(2)] == ["reference"] * 2
    assert len(opened) == 1


def test_samples_are_taken_with_what_comes_before_a_run_and_the_cache_as_wanted(bench):
    given = []
    bench.runtime.timer.samples_us = lambda *positional, **more: given.append((positional, more))
    job, bench.runtime.warm = replace(JOB, before=len), True
    bench._sampler(job)(10)
    assert given == [((job.run, ["kernel"], 10), {"before": len, "warm": True})]


@pytest.mark.parametrize(
    ("needed", "told", "known"), [(True, 512.5, {METRICS: {ENERGY: 512.5}}), (True, None, {}), (False, 512.5, {})]
)
def test_energy_is_measured_after_the_time_where_the_spec_needs_it(bench, needed, told, known):
    asked = []
    nothing = SimpleNamespace(restore=lambda: None, poison=lambda: None, damage=lambda: None)
    bench.arguments, bench.job = lambda *about: nothing, lambda *about: JOB
    bench._drift_reference = lambda: None
    bench.runtime.place, bench.runtime.reference_place = "cuda:0", "cpu"
    bench.runtime.synchronize, bench.runtime.kernel_facts = lambda: None, lambda kernels: {}
    bench.runtime.energy_uj = lambda *about: asked.append(about) or told
    outcome = bench._measured(SimpleNamespace(needs_energy=needed), None, {}, None)
    assert {name: fact for name, fact in outcome.facts.items() if name == METRICS} == known
    assert asked == ([(JOB, outcome.timing.time_us)] if needed else [])


def test_turns_shuffle_every_round_in_the_same_way_each_time():
    assert turns(3, 4) == turns(3, 4)
    assert all(sorted(order) == [0, 1, 2] for order in turns(3, 50))
    assert len({tuple(order) for order in turns(3, 50)}) == 6


def test_the_order_of_the_turns_is_the_same_in_every_process():
    assert turns(4, 3) == [[3, 1, 0, 2], [3, 1, 2, 0], [2, 3, 0, 1]]


@pytest.mark.parametrize("lost", [False, True])
def test_a_race_in_which_one_config_fails_has_no_times_and_says_whether_the_process_is_lost(bench, lost):
    class Broken(Exception):
        pass

    def job(spec, problem, config):
        raise Broken("the launch failed")

    bench.job = job
    bench.runtime.failure = lambda error: Failure(Outcome(Status.RUNTIME, reason=str(error)), lost=lost)
    bench.runtime.synchronize = lambda: None
    reply = bench.race(SimpleNamespace(), None, [{}, {}], 3)
    assert (reply.answer, reply.lost) == ([], lost)
