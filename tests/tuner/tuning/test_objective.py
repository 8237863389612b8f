"""A spec's metrics, and configs that are ranked by one of them instead of their time."""

import dataclasses
import json

import bowl as bowl_file
import pytest
from bowl import BEST, FormulaDevice, time_us

from tilewise.db.exchange.trials import trial_from_json, trial_to_json
from tilewise.db.records import ENERGY, METRICS, Question, Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadDimension, BadSpec, NothingFeasible, UsageError
from tilewise.kernels.source import source_hash
from tilewise.tuner import tune
from tilewise.tuner.lookup.resolve import Match, resolve_with_fallback
from tilewise.tuner.lookup.store_source import StoreSource
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.space.problem_checks import make_problem

THRIFTY = {"TILE": 2, "WIDTH": 64, "fast": True}
"""The config of the least energy, which is not the fastest one."""


def energy_uj(config):
    return 500.0 + 100 * abs(config["TILE"] - 2) + 7 * time_us(config)


class MeteredDevice(FormulaDevice):
    """A device that measures energy, unless the config is wide."""

    measures_energy = True

    def evaluate(self, spec, problem, configs, *, to_beat_us=lambda: None):
        assert to_beat_us() is None or not spec.objective, "a slow config may take the least energy"
        for config, outcome in zip(configs, super().evaluate(spec, problem, configs), strict=True):
            known = {METRICS: {ENERGY: energy_uj(config)}} if spec.needs_energy and config["WIDTH"] < 256 else {}
            yield dataclasses.replace(outcome, facts=known)


BY_TIME = bowl_file.SPEC
BY_ENERGY = dataclasses.replace(BY_TIME, objective=ENERGY)
BY_PRODUCT = dataclasses.replace(
    BY_TIME,
    metrics={
        "GB/s": lambda problem, time_us: problem.dims["M"] / time_us,
        "uJ_s": lambda problem, time_us, energy_uj: energy_uj * time_us,
    },
    objective="uJ_s",
)


@pytest.fixture
def store():
    with open_store("sqlite://") as opened:
        yield opened


def tuned(spec, store, m=64, device=None, **how):
    return tune(spec, {"M": m}, device=device or MeteredDevice(), search="exhaustive", db=store, **how)


def test_the_least_energy_wins_where_the_spec_says_so_and_the_least_time_where_it_does_not(store):
    thrifty, fastest = tuned(BY_ENERGY, store), tuned(BY_TIME, store)
    assert thrifty.winner.config == THRIFTY and fastest.winner.config == BEST
    assert thrifty.winner.metrics == {ENERGY: energy_uj(THRIFTY)} and thrifty.winner.time_us == time_us(THRIFTY)
    assert fastest.winner.metrics == {}
    assert thrifty.to_json()["dims"] == {"M": 64, "objective": "energy_uj"}
    assert thrifty.to_json()["metrics"] == {ENERGY: energy_uj(THRIFTY)}


def test_bests_by_different_objectives_never_answer_for_each_other(store):
    results = {spec.objective: tuned(spec, store) for spec in (BY_ENERGY, BY_PRODUCT, BY_TIME)}
    for spec in (BY_ENERGY, BY_PRODUCT, BY_TIME):
        question = Question(make_problem(spec, {"M": 64}, "float32"), "Bowl")
        assert [found.winner.config for found in store.answers(question)] == [results[spec.objective].winner.config]
        other = Question(make_problem(spec, {"M": 65}, "float32"), "Bowl")
        near = _resolved(store, spec, other, Match.NEAREST)
        assert near.winner.config == results[spec.objective].winner.config


def test_neither_a_portfolio_nor_the_prior_answers_for_an_objective(store):
    tuned(BY_TIME, store)
    tuned(BY_ENERGY, store)
    far = {"M": 2**19}
    by_time = _resolved(store, BY_TIME, Question(make_problem(BY_TIME, far, "float32"), "Bowl"), Match.PREDICTED)
    assert by_time.match == "portfolio"
    by_energy = Question(make_problem(BY_ENERGY, far, "float32"), "Bowl")
    assert _resolved(store, BY_ENERGY, by_energy, Match.PREDICTED) is None


def _resolved(store, spec, question, match):
    known = {"source_hash": source_hash(spec), "match": match, "target": bowl_file.TARGET}
    return resolve_with_fallback(StoreSource(store), question, spec, **known)


def test_a_second_tuning_resumes_with_the_same_best(store):
    first = tuned(BY_ENERGY, store)
    device = MeteredDevice()
    again = tuned(BY_ENERGY, store, device=device)
    assert again.winner == first.winner and device.evaluated == []


def test_a_search_is_led_by_the_objective(store):
    for search in ("guided", "tpe"):
        result = tune(BY_ENERGY, {"M": 32}, device=MeteredDevice(), search=search, trials=60, db=store, fresh=True)
        assert result.winner.metrics[ENERGY] <= 1.05 * energy_uj(THRIFTY)


def test_metrics_are_stored_with_every_trial_and_survive_an_export(store):
    result = tuned(BY_PRODUCT, store)
    correct = [trial for trial in result.trials if trial.status is Status.CORRECT]
    assert all(t.metrics["GB/s"] == 64 / t.time_us and t.cost == t.metrics["uJ_s"] for t in correct)
    assert min(correct, key=lambda trial: trial.cost).config == result.winner.config
    copied = trial_from_json(json.loads(json.dumps(trial_to_json(result.winner))))
    assert (copied.metrics, copied.cost) == (result.winner.metrics, result.winner.cost)


def test_a_config_whose_energy_was_not_measured_has_failed(store):
    lost = [trial for trial in tuned(BY_ENERGY, store).trials if trial.config["WIDTH"] == 256]
    assert lost and {(t.status, t.reason) for t in lost} == {(Status.RUNTIME, "energy_uj was not measured")}


def test_a_device_that_does_not_measure_energy_says_so_in_one_line(store):
    told = "kernel bowl ranks configs by energy_uj, but formula does not measure energy; NVIDIA GPUs from Volta on do"
    with pytest.raises(UsageError, match=told):
        tuned(BY_ENERGY, store, device=FormulaDevice())


def test_without_an_objective_metrics_of_an_unknown_energy_are_left_out(store):
    spec = dataclasses.replace(BY_PRODUCT, objective="")
    assert tuned(spec, store, device=FormulaDevice()).winner.metrics.keys() == {"GB/s"}
    assert tuned(spec, store, m=65).winner.metrics.keys() == {ENERGY, "GB/s", "uJ_s"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "GB/s"}, "has the objective 'GB/s'; expected energy_uj, uJ_s, or a metric of"),
        ({"objective": "time_us"}, "has the objective 'time_us'; expected energy_uj, uJ_s"),
        ({"objective": "J/s", "metrics": {"J/s": lambda p, t, e: e / t}}, "objective 'J/s' of kernel bowl is no word"),
    ],
)
def test_an_objective_that_cannot_be_is_refused_when_the_spec_is_made(changes, message):
    with pytest.raises(BadSpec, match=message):
        dataclasses.replace(BY_PRODUCT, **changes)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda p, t, e: 1 / e, "gives 0.01 for a launch of 100 us and 100 uJ and 0.005 for one of twice both"),
        (lambda p, t, e: -e, "gives -100 for a launch"),
        (lambda p, t, e: e - 100, "gives 0 for a launch of 100 us and 100 uJ and 100 for one of twice both"),
        (lambda p, t, e: (e - 100) / 200, "gives 0 for a launch of 100 us and 100 uJ and 0.5 for one of twice both"),
        (lambda p, t, e: 7.0, "gives 7 for a launch of 100 us and 100 uJ and 7 for one of twice both"),
        (lambda p, t, e: float("nan"), "returns nan; expected a finite number"),
        (lambda p, t, e: p.dims["K"], "raises KeyError"),
    ],
)
def test_an_objective_that_a_worse_launch_would_win_is_refused_before_the_first_trial(store, metric, message):
    device = MeteredDevice()
    with pytest.raises(BadSpec, match=message):
        tuned(dataclasses.replace(BY_TIME, metrics={"cost": metric}, objective="cost"), store, device=device)
    assert device.evaluated == []


def test_an_objective_may_be_far_below_one(store):
    spec = dataclasses.replace(BY_TIME, metrics={"J": lambda p, t, e: e / 1e6}, objective="J")
    assert tuned(spec, store).winner.config == THRIFTY


def test_no_config_wins_without_its_energy(store):
    class Unmetered(MeteredDevice):
        def evaluate(self, spec, problem, configs, *, to_beat_us=lambda: None):
            return (Outcome(o.status, timing=o.timing) for o in FormulaDevice.evaluate(self, spec, problem, configs))

    with pytest.raises(NothingFeasible, match=r"none of .* configs ran correctly; runtime: energy_uj was not"):
        tuned(BY_ENERGY, store, device=Unmetered())


def test_a_problem_may_name_the_objective_of_its_spec_and_no_other():
    named = make_problem(BY_ENERGY, {"M": 64, "objective": "energy_uj"}, "float32")
    assert named == make_problem(BY_ENERGY, {"M": 64}, "float32")
    with pytest.raises(BadDimension, match="kernel bowl ranks configs by energy_uj, not by 'uJ_s'"):
        make_problem(BY_ENERGY, {"M": 64, "objective": "uJ_s"}, "float32")
    with pytest.raises(BadDimension, match="kernel bowl has no dimension objective"):
        make_problem(BY_TIME, {"M": 64, "objective": "energy_uj"}, "float32")
