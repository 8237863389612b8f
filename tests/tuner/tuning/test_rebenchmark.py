"""The end of a tuning: candidates timed in turns, ties settled by rule, a stored winner that holds."""

import dataclasses
import math
import time
from types import SimpleNamespace

import pytest
from noise import INDEPENDENT, MOVING, Noise

from tilewise.db.records import Clock, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.tuning import rebenchmark
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher
from tilewise.tuner.tuning.race import RaceResult
from tilewise.tuner.tuning.rebenchmark import CONTEST, MOST, _race_facts, rebenchmark_candidates

PROBLEM = Problem("bowl", {"M": 64}, "float32")


@pytest.fixture
def tuning(bowl, store):
    def make(device, trials=24, *, into=None, **options):
        options = {"search": "random", **options}
        return Tuning(bowl.SPEC, PROBLEM, device, into or store, budget=Budget(trials), **options)

    return make


def key(config):
    return tuple(config.values())


def trial(time_us, width=0.0, **fields):
    fields = {"config": {"x": time_us}, "verified": True, **fields}
    low, high = (time_us - width, time_us + width) if width else (None, None)
    return Trial(status=Status.CORRECT, time_us=time_us, low_us=low, high_us=high, **fields)


# --- candidates -----------------------------------------------------------------------------------------------------


def test_leaders_are_all_that_cannot_be_told_apart_from_the_fastest_verified():
    best, near, far = trial(10.0, 0.1), trial(10.3, 0.1, verified=False), trial(10.5, 0.1)
    assert rebenchmark_candidates([far, near, best]) == [best, near]


def test_exact_times_lead_alone_unless_they_are_equal():
    best, equal, near = trial(10.0), trial(10.0, config={"y": 1}), trial(10.001)
    assert rebenchmark_candidates([near, equal, best]) == [equal, best]


def test_of_too_many_leaders_the_fastest_take_part():
    many = [trial(10.0 + n / 1000, 0.1) for n in range(2 * MOST)]
    assert rebenchmark_candidates(many[::-1]) == many[:MOST]


def test_what_failed_does_not_lead_and_without_a_verified_one_nobody_does():
    failed = dataclasses.replace(trial(5.0), status=Status.RUNTIME, verified=False)
    best, unverified = trial(10.0), trial(10.1, verified=False)
    assert rebenchmark_candidates([failed, best, unverified]) == [best]
    assert rebenchmark_candidates([failed, unverified]) == []


# --- a noisy device -------------------------------------------------------------------------------------------------


def test_the_leaders_and_the_default_are_timed_in_turns_and_the_winner_says_how_sure_it_is(bowl, tuning, store):
    device = bowl.NoisyDevice(Noise("even", 1))
    result = tuning(device, None, search="exhaustive").run()
    assert len(device.races) >= 1
    assert bowl.DEFAULT in device.races[0]
    winner = result.winner
    assert winner.config == bowl.BEST
    assert winner.verified and winner.time_to_beat_us is not None
    facts = winner.facts[CONTEST]
    assert not facts["tied"] and facts["chance"] > 0.99
    assert winner.samples == facts["rounds"]
    assert winner.why.endswith(f"% sure to be the fastest of {facts['of']} timed in turns")
    body = result.to_json()
    assert (body["tie"], body["method"], body["l2"]) == (False, "noise", "cold")
    assert body["probability"] == facts["chance"]
    assert body["low_us"] < body["time_us"] < body["high_us"]


def test_most_of_the_time_goes_to_those_that_may_win(bowl, tuning, store):
    device = bowl.NoisyDevice(Noise("even", 1))
    result = tuning(device, None, search="exhaustive").run()
    trials = store.trials(result.scope)
    dropped = [t for t in trials if t.dropped]
    assert len(dropped) > 0.8 * len(trials)
    assert all(t.samples == 10 for t in dropped)
    assert result.winner.config_key not in {t.config_key for t in dropped}


def equals(bowl, config):
    """Return the true time in microseconds: three configs share one that is a little faster than the rest."""
    return (
        10.0 if config["WIDTH"] == 64 and config["TILE"] in (4, 5, 6) and config["fast"] else bowl.time_us(config) + 1
    )


def test_what_is_fastest_only_until_the_device_has_settled_does_not_win(bowl, tuning):
    """For the first rounds of a comparison the default is faster than the best config, as before a power limit acts."""

    class Cold(bowl.NoisyDevice):
        settle_seconds = 0.05

        def race(self, spec, problem, configs, rounds):
            time.sleep(0.02)
            outcomes = super().race(spec, problem, configs, rounds)
            if len(self.races) == 1:
                outcomes[configs.index(bowl.DEFAULT)] = Outcome(
                    Status.CORRECT, timing=Timing(1.0, times_us=(1.0,) * rounds)
                )
            return outcomes

    device = Cold(Noise("even", 1))
    winner = tuning(device, None, search="exhaustive").run().winner
    assert winner.config == bowl.BEST
    assert len(device.races) > 2 and winner.facts[CONTEST]["rounds"] < 20 * len(device.races)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", [*INDEPENDENT, *MOVING])
def test_a_tie_is_said_and_settled_alike_whatever_the_noise_and_the_order(bowl, tuning, kind):
    winners = set()
    for seed in range(2):
        with open_store("sqlite://") as store:
            device = bowl.NoisyDevice(Noise(kind, seed), lambda config: equals(bowl, config))
            result = tuning(device, None, search="random", seed=seed, into=store).run()
        body = result.to_json()
        winners.add((body["tie"], key(body["config"])))
    assert winners == {(True, (4, 64, True))}, "without on-chip memory the first config in alphabetical order"


def test_a_tie_goes_to_the_default_first(bowl, tuning):
    default = {"TILE": 6, "WIDTH": 64, "fast": True}
    device = bowl.NoisyDevice(Noise("even", 3), lambda config: equals(bowl, config))
    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: default)
    with open_store("sqlite://") as store:
        result = Tuning(spec, PROBLEM, device, store, budget=Budget(None), search="exhaustive").run()
    assert result.winner.config == default
    assert result.winner.why.endswith("tied with 2 others, the default goes first")


def test_a_tie_goes_to_nobody_who_looks_slower(bowl):
    """Times vary by 10%, which hides that the default takes 1.5% longer."""
    default = {"TILE": 4, "WIDTH": 64, "fast": True}

    def time_of(config):
        return 10.15 if config == default else equals(bowl, config)

    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: default)
    for seed in range(4):
        with open_store("sqlite://") as store:
            device = bowl.NoisyDevice(Noise("even", seed, 0.1), time_of)
            result = Tuning(spec, PROBLEM, device, store, budget=Budget(None), search="exhaustive").run()
            (stored,) = (t for t in store.trials(result.scope) if t.config == default)
        assert stored.facts[CONTEST]["tied"] and result.to_json()["tie"]
        assert result.winner.config in ({**default, "TILE": 5}, {**default, "TILE": 6})


def test_a_tie_goes_to_less_on_chip_memory(bowl, tuning):
    class WithFacts(bowl.NoisyDevice):
        def evaluate(self, spec, problem, configs, **options):
            for config, outcome in zip(configs, super().evaluate(spec, problem, configs, **options), strict=True):
                yield dataclasses.replace(outcome, facts={"shared_bytes": 1024 * (10 - config["TILE"])})

    device = WithFacts(Noise("even", 3), lambda config: equals(bowl, config))
    result = tuning(device, None, search="exhaustive").run()
    assert result.winner.config == {"TILE": 6, "WIDTH": 64, "fast": True}
    assert result.winner.why.endswith("tied with 2 others, settled by on-chip memory")


def test_the_declared_winner_is_what_is_looked_up_even_where_another_time_is_smaller(bowl, tuning, store):
    device = bowl.NoisyDevice(Noise("even", 0), lambda config: equals(bowl, config))
    result = tuning(device, None, search="exhaustive").run()
    found = store.lookup(result.scope.question)
    assert found.winner == result.winner
    times = [t.time_us for t in store.trials(result.scope) if t.status is Status.CORRECT]
    assert result.winner.time_to_beat_us == min(times)


def test_a_second_tuning_repeats_no_contest_that_still_holds(bowl, tuning):
    first = tuning(bowl.NoisyDevice(Noise("even", 1)), 30).run()
    device = bowl.NoisyDevice(Noise("even", 2))
    again = tuning(device, 30).run()
    assert again == first
    assert device.races == [] and device.evaluated == []


def test_a_later_contender_calls_for_another_contest_and_a_slow_one_does_not(bowl, tuning):
    def hidden(config):
        return 30.0 if config == bowl.BEST and not opened else bowl.time_us(config)

    opened = False
    device = bowl.NoisyDevice(Noise("even", 1), hidden)
    scope = tuning(device, 40).run().scope
    races = len(device.races)
    tuning(device, 44).run()
    slow_only = len(device.races) == races
    opened = True
    result = tuning(device, None, search="exhaustive").run()
    assert slow_only or races > 0
    assert result.scope == scope
    assert result.winner.facts[CONTEST]["behind"] is False


def test_a_wrong_leader_does_not_take_part(bowl, tuning, store):
    device = bowl.NoisyDevice(
        Noise("even", 5), lambda config: equals(bowl, config), wrong=lambda config: config["TILE"] == 4
    )
    result = tuning(device, None, search="exhaustive").run()
    assert all(config["TILE"] != 4 for race in device.races for config in race)
    assert result.winner.config == {"TILE": 5, "WIDTH": 64, "fast": True}
    assert result.winner.why.endswith("tied with 1 other, the first in alphabetical order")


def test_a_leader_that_fails_in_the_contest_is_recorded_so_and_another_wins(bowl, tuning, store):
    class Failing(bowl.NoisyDevice):
        def race(self, spec, problem, configs, rounds):
            outcomes = super().race(spec, problem, configs, rounds)
            return [
                dataclasses.replace(outcomes[n], timing=None, status=Status.RUNTIME, reason="it crashed")
                if config["TILE"] == 4
                else outcomes[n]
                for n, config in enumerate(configs)
            ]

    device = Failing(Noise("even", 5), lambda config: equals(bowl, config))
    result = tuning(device, None, search="exhaustive").run()
    (failed,) = [t for t in store.trials(result.scope) if t.status is Status.RUNTIME]
    assert (failed.config["TILE"], failed.reason) == (4, "in the final comparison: it crashed")
    assert result.winner.config == {"TILE": 5, "WIDTH": 64, "fast": True}


def test_a_watcher_hears_who_is_compared(bowl, tuning):
    class Ears(Watcher):
        heard = ()

        def comparing(self, trials):
            self.heard = [t.config for t in trials]

    watcher = Ears()
    device = bowl.NoisyDevice(Noise("even", 1))
    tuning(device, None, search="exhaustive", watcher=watcher).run()
    assert watcher.heard == device.races[0]


def test_history_keeps_the_times_of_before_the_contest(bowl, tuning, store, url):
    result = tuning(bowl.NoisyDevice(Noise("even", 1)), 30).run()
    assert len([t for t in store.trials(result.scope) if CONTEST in t.facts]) >= 2
    assert sum(result.counts.values()) in (30, 31)


# --- how often it is wrong ------------------------------------------------------------------------------------------


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", [*INDEPENDENT, *MOVING])
def test_the_winner_is_within_one_percent_of_the_best_that_was_tried(bowl, tuning, kind):
    """True times lie as close as 0.4%, and the config that wins ties is slower."""

    def close(config):
        return 10.0 * 1.004 ** -(config["TILE"] + 3 * (config["WIDTH"] // 64) + 7 * (not config["fast"]))

    worse = 0
    for seed in range(8):
        with open_store("sqlite://") as store:
            device = bowl.NoisyDevice(Noise(kind, seed), close)
            result = tuning(device, 24, seed=seed, into=store).run()
            best = min(close(t.config) for t in store.trials(result.scope))
        worse += close(result.winner.config) > 1.01 * best
    assert worse == 0


# --- exact times ----------------------------------------------------------------------------------------------------


def test_equal_modelled_times_are_a_tie_settled_by_the_rule_without_timing_again(bowl, tuning, store):
    device = bowl.FormulaDevice(lambda config: equals(bowl, config))
    result = tuning(device, None, search="random", seed=3).run()
    assert len(device.evaluated) == 104
    assert key(result.winner.config) == (4, 64, True)
    assert result.winner.verified
    assert (result.to_json()["tie"], result.scope.clock) == (True, Clock.MODELLED)
    assert result.winner.time_to_beat_us == result.winner.time_us == 10.0
    again = bowl.FormulaDevice(lambda config: equals(bowl, config))
    assert tuning(again, None, search="random", seed=3).run() == result
    assert again.evaluated == again.verified == []


def test_a_modelled_winner_alone_is_no_tie_and_has_no_chance(bowl, tuning):
    body = tuning(bowl.FormulaDevice(), None, search="exhaustive").run().to_json()
    assert not {"tie", "probability"} & body.keys()


# --- a device that changes ------------------------------------------------------------------------------------------


def test_after_a_change_that_lasts_the_best_is_timed_again_and_it_is_said(bowl, tuning, store):
    class Throttled(bowl.NoisyDevice):
        """Half as fast from the ninth config on."""

        def evaluate(self, spec, problem, configs, **options):
            for outcome in super().evaluate(spec, problem, configs, **options):
                drift = {"ratio": 2.0, "throttled": "power cap", "repeats": 3, "lasts": True}
                yield dataclasses.replace(outcome, facts={"drift": drift} if len(self.evaluated) == 9 else {})

        def _times(self, true_us, count):
            return super()._times(true_us * (2 if len(self.evaluated) >= 9 else 1), count)

    class Ears(Watcher):
        heard = ()

        def noticed(self, text):
            self.heard += (text,)

    watcher = Ears()
    device = Throttled(Noise("even", 1))
    result = tuning(device, 24, watcher=watcher).run()
    slow = "noisy was disturbed: its reference took 2.00 times as long as usual (power cap)"
    assert watcher.heard == (f"{slow}; the change lasts, so the best is timed again",)
    assert len(device.evaluated) == len({key(config) for config in device.evaluated}) + 1
    assert result.winner.time_us == pytest.approx(2 * bowl.time_us(result.winner.config), rel=0.02)


def test_each_candidate_bears_its_share_of_the_time_of_the_comparison(bowl, tuning, monkeypatch, store):
    clock = [1000.0]

    class Timed(bowl.NoisyDevice):
        settle_seconds = 0.0

        def race(self, spec, problem, configs, rounds):
            clock[0] += 6.0
            return super().race(spec, problem, configs, rounds)

    monkeypatch.setattr(rebenchmark, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    device = Timed(Noise("even", 1))
    result = tuning(device, None, search="exhaustive").run()
    facts = result.winner.facts[CONTEST]
    share = 6.0 * len(device.races) / facts["of"]
    assert facts["timing_s"] == pytest.approx(share, abs=1e-4)
    assert result.winner.seconds == pytest.approx(share, abs=1.0)  # the search itself takes no time here
    assert result.winner.seconds >= share


def test_a_lone_candidate_is_not_compared(bowl, tuning):
    device = bowl.NoisyDevice(Noise("even", 1), lambda config: 1.0 if config == bowl.DEFAULT else bowl.time_us(config))
    winner = tuning(device, None, search="exhaustive").run().winner
    assert winner.config == bowl.DEFAULT
    assert (device.races, winner.time_to_beat_us) == ([], None)
    assert CONTEST not in winner.facts


@pytest.mark.parametrize(("running", "words"), [(2, "tied with 1 other, "), (3, "tied with 2 others, ")])
def test_the_others_of_a_tie_are_counted(running, words):
    facts = {"chance": 0.5, "of": 5}
    declared = rebenchmark._declared(trial(10.0, why="fast", is_default=True), facts, 9.0, running)
    assert declared.why == f"fast, {words}the default goes first"
    assert (declared.time_to_beat_us, declared.facts) == (9.0, {CONTEST: facts})


@pytest.mark.parametrize(
    ("facts", "size", "rule"),
    [
        ({"on_chip_bits": {"required": 1024}}, 128.0, "settled by on-chip memory"),
        ({"on_chip_bits": {"required": 1024}, "shared_bytes": 7}, 128.0, "settled by on-chip memory"),
        ({"shared_bytes": 4096}, 4096.0, "settled by on-chip memory"),
        ({"on_chip_bits": "?"}, math.inf, "the first in alphabetical order"),
        ({}, math.inf, "the first in alphabetical order"),
    ],
)
def test_ties_are_settled_by_memory_where_it_is_known(facts, size, rule):
    tied = trial(10.0, facts=facts)
    assert rebenchmark._on_chip(facts) == size
    assert rebenchmark._rule(tied) == rule
    default = trial(10.0, is_default=True)
    assert sorted([tied, default], key=rebenchmark._preference) == [default, tied]


def test_the_facts_of_a_race_are_told_to_five_digits_and_its_chance_to_four():
    times = (10.0, 11.0, 12.0)
    result = RaceResult(times, 1.0123456, 1.0012345, 1.0234567, behind=True, tied=False, chance=0.123456)
    assert _race_facts(result, 4) == {
        "of": 4,
        "rounds": 3,
        "ratio": 1.01235,
        "ratio_low": 1.00123,
        "ratio_high": 1.02346,
        "behind": True,
        "tied": False,
        "chance": 0.1235,
    }


def declared(time_us, *, width=0.0, **fields):
    return trial(time_us, width, time_to_beat_us=time_us, **fields)


@pytest.mark.parametrize(
    ("trials", "holds"),
    [
        ([], False),
        ([trial(10.0)], False),
        ([declared(10.0)], True),
        ([declared(10.0, verified=False)], False),
        ([trial(9.0), declared(10.0)], True),  # it was there when the winner was declared
        ([declared(10.0), trial(9.0)], False),
        ([declared(10.0), trial(10.0)], False),
        ([declared(10.0), trial(10.001)], True),
        ([declared(10.0, width=0.5), trial(10.7)], False),  # within the widened interval, up to 10.71
        ([declared(10.0, width=0.5), trial(10.72)], True),
        ([declared(10.0, width=0.5), trial(11.0, 0.3)], False),
        ([declared(10.0, width=0.5), trial(11.02, 0.3)], True),
        ([declared(20.0), declared(10.0), trial(15.0)], True),  # the last declared one counts
        ([declared(10.0), declared(20.0), trial(15.0)], False),
        ([declared(10.0), dataclasses.replace(trial(9.0), status=Status.RUNTIME, time_us=None)], True),
        ([declared(10.0), dataclasses.replace(trial(9.0), status=Status.CORRECTNESS)], True),
    ],
)
def test_a_decision_holds_until_a_later_trial_may_be_faster(trials, holds):
    assert rebenchmark._still_holds(trials) is holds


class Notes:
    """A store that notes what it is told."""

    def __init__(self):
        self.recorded, self.verdicts = [], []

    def record(self, scope, trials):
        self.recorded.append(list(trials))

    def verify(self, scope, config, *, agreed, reason, status):
        self.verdicts.append((dict(config), agreed, reason, status))


def compared(bowl, device, trials):
    """Return what a comparison of these trials stores, the configs verified, and those that it was told of."""
    notes, watched = Notes(), []
    rebenchmark.Rebenchmark(bowl.SPEC, PROBLEM, device, notes, None, watched.append).run(trials)
    return notes, [[dict(t.config) for t in each] for each in watched]


def bowl_trial(tile, time_us, **fields):
    return trial(time_us, config={"TILE": tile, "WIDTH": 64, "fast": True}, **fields)


def test_a_tie_of_exact_times_is_declared_with_its_chance_and_the_former_winner_is_none_any_more(bowl):
    device = bowl.FormulaDevice(wrong=lambda config: config["TILE"] == 4)
    trials = [
        bowl_trial(9, 12.0, time_to_beat_us=12.0, why="once"),
        *(bowl_trial(tile, 10.0, verified=tile == 7, why="fast") for tile in (6, 4, 5, 7)),
    ]
    notes, watched = compared(bowl, device, trials)
    assert [config["TILE"] for config in device.verified] == [4, 5] and watched == []
    assert [(config["TILE"], agreed, str(status)) for config, agreed, _, status in notes.verdicts] == [
        (4, False, "correctness"),
        (5, True, "correctness"),
    ]
    assert notes.verdicts[0][2] == "x_ptr: off by 1.0"
    [[former, winner]] = notes.recorded
    assert (former.config["TILE"], former.time_to_beat_us) == (9, None)
    assert (winner.config["TILE"], winner.verified, winner.time_to_beat_us) == (5, True, 10.0)
    assert winner.why == "fast, tied with 3 others, the first in alphabetical order"
    told = {"of": 4, "rounds": 0, "ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0}
    assert winner.facts[CONTEST] == {**told, "behind": False, "tied": True, "chance": 0.25}


@pytest.mark.parametrize("objective", ["", "energy_uj"])
def test_nothing_is_declared_where_one_is_fastest_or_time_does_not_rank(bowl, objective):
    spec = SimpleNamespace(objective=objective)
    notes = Notes()
    tied = [bowl_trial(5, 10.0), bowl_trial(6, 10.0 if objective else 10.5)]
    rebenchmark.Rebenchmark(spec, PROBLEM, bowl.FormulaDevice(), notes, None, None).run(tied)
    assert notes.recorded == []


def test_a_race_is_recorded_with_its_times_its_failures_and_the_winner_last(bowl):
    """The default is the slowest; a candidate that fails in the race is no winner."""

    def time_of(config):
        return Status.RUNTIME if config["TILE"] == 4 else {5: 10.0, 6: 10.1, 1: 30.0, 2: 10.0}[config["TILE"]]

    device = bowl.NoisyDevice(Noise("even", seed=0, scale=1e-5), time_of)
    default = trial(30.0, 0.1, config=bowl.DEFAULT, is_default=True)
    found = [bowl_trial(tile, time_us, width=0.3, seconds=2.0) for tile, time_us in ((6, 10.0), (5, 10.2), (4, 10.1))]
    slow = bowl_trial(9, 20.0, time_to_beat_us=10.0)
    notes, [watched] = compared(bowl, device, [slow, default, *found])
    assert [config["TILE"] for config in watched] == [6, 4, 5, 1]
    [[former, *raced]] = notes.recorded
    assert (former.config["TILE"], former.time_to_beat_us) == (9, None)
    assert [t.config["TILE"] for t in raced] == [6, 4, 1, 5]
    assert [t.status for t in raced] == [Status.CORRECT, Status.RUNTIME, Status.CORRECT, Status.CORRECT]
    assert (raced[1].reason, raced[1].verified) == ("in the final comparison: it fails in the race", False)
    winner = raced[-1]
    assert winner.time_us == pytest.approx(10.0, rel=1e-3)
    assert winner.time_to_beat_us == pytest.approx(10.0, rel=1e-3) and winner.seconds > 2.0
    assert [t.time_to_beat_us for t in raced[:-1]] == [None] * 3
    facts = winner.facts[CONTEST]
    assert (facts["of"], facts["behind"], facts["tied"], facts["chance"]) == (4, False, False, 1.0)
    assert winner.why.endswith("100.0% sure to be the fastest of 4 timed in turns")
    assert raced[0].facts[CONTEST]["ratio"] == pytest.approx(1.01, rel=1e-3) and raced[0].facts[CONTEST]["behind"]
    assert raced[2].facts[CONTEST]["ratio"] == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize(("status", "to_beat_us"), [(Status.CORRECT, 5.0), (Status.RUNTIME, 10.0)])
def test_a_smaller_time_of_one_that_is_not_in_the_race_is_the_one_to_beat(bowl, status, to_beat_us):
    """Its output is wrong here, and its time may be asked for no more."""
    device = bowl.NoisyDevice(Noise("even", seed=0, scale=1e-5), wrong=lambda config: config["TILE"] == 7)
    close = [bowl_trial(tile, time_us, width=0.2) for tile, time_us in ((5, 10.0), (6, 10.1))]
    unlike = dataclasses.replace(bowl_trial(7, 5.0, verified=False), status=status)
    notes, _ = compared(bowl, device, [*close, unlike])
    assert notes.recorded[0][-1].time_to_beat_us == pytest.approx(to_beat_us, rel=1e-3)
