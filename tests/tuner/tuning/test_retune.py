"""Results of an older toolchain or source, brought up to date."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.db.records import Problem, Status
from tilewise.tuner.devices import base
from tilewise.tuner.tuning.retune import find_stale, retune, stale_problem
from tilewise.tuner.tuning.tune import tune

SIZES = ({"M": 64}, {"M": 256})


@pytest.fixture
def newer(bowl):
    """Make a device of a newer toolchain, under which configs take other times."""

    class Newer(bowl.FormulaDevice):
        toolchain = "formula 2"

    return Newer


@pytest.fixture
def spec(bowl):
    return bowl.SPEC


@pytest.fixture
def tuned(bowl, spec, store):
    for dims in SIZES:
        tune(spec, dims, device=bowl.FormulaDevice(), search="exhaustive", db=store)
    return store


def stale(store, device, spec):
    return stale_problem(store, device, spec, Problem("bowl", SIZES[0], "float32"))


def test_a_result_of_this_toolchain_and_source_is_not_stale(bowl, spec, tuned):
    assert find_stale(tuned, bowl.FormulaDevice(), spec) == ([], [])


def test_what_is_not_stale_is_read_in_pages(bowl, spec, tuned, monkeypatch):
    monkeypatch.setattr(type(tuned), "answers", lambda *args, **kwargs: pytest.fail("a query for each problem"))
    assert find_stale(tuned, bowl.FormulaDevice(), spec) == ([], [])


def test_a_problem_is_stale_after_the_toolchain_or_the_source_moved(bowl, spec, tuned, newer, monkeypatch):
    found, refused = find_stale(tuned, newer(), spec)
    assert [(one.problem.dims, one.moved) for one in found] == [(dims, ("toolchain",)) for dims in SIZES]
    assert not refused
    monkeypatch.setattr(base, "source_hash", lambda spec: "edited")
    assert stale(tuned, bowl.FormulaDevice(), spec).moved == ("source",)
    assert stale(tuned, newer(), spec).moved == ("source", "toolchain")


def test_results_of_another_core_count_are_of_another_machine(spec, tuned, newer):
    device = newer()
    device.target = dataclasses.replace(device.target, cores=9)
    assert stale(tuned, device, spec) is None


def test_the_ten_best_and_the_default_are_timed_and_the_problem_is_stale_no_more(bowl, spec, tuned, newer):
    device = newer()
    done = retune(stale(tuned, device, spec), device, tuned)
    times = [bowl.time_us(config) for config in device.evaluated]
    assert len(times) == 11 and times[:10] == sorted(times[:10]) and device.evaluated[10] == bowl.DEFAULT
    assert device.evaluated[0] == bowl.BEST and device.verified[0] == bowl.BEST
    assert (done.flipped, done.cost, done.kept_us) == (False, 1.0, 10.0)
    assert stale(tuned, device, spec) is None
    assert len(find_stale(tuned, device, spec)[0]) == 1
    assert tuned.result(done.after.scope).winner.search == "retune"


def test_a_flipped_best_has_the_cost_of_keeping_the_former_one(bowl, spec, tuned, newer):
    device = newer(lambda config: 4 * bowl.time_us(config) if config["WIDTH"] == 64 else bowl.time_us(config))
    done = retune(stale(tuned, device, spec), device, tuned)
    assert done.flipped and done.after.winner.config == {**bowl.BEST, "WIDTH": 128}
    assert (done.kept_us, done.after.winner.time_us, done.cost) == (40.0, 13.0, pytest.approx(40 / 13))
    body = done.to_json()
    assert body["before"]["config"] == bowl.BEST and body["before"]["toolchain"] == "formula 1"
    assert body["config"]["WIDTH"] == 128 and body["moved"] == ["toolchain"] and body["flipped"] is True


def test_a_former_best_that_fails_now_says_why(spec, tuned, newer, bowl):
    broken = newer(lambda config: Status.COMPILE if config == bowl.BEST else bowl.time_us(config))
    done = retune(stale(tuned, broken, spec), broken, tuned)
    assert done.flipped and done.cost is None and done.reason == "compile: it is compile"
    assert done.to_json()["why_not_kept"] == "compile: it is compile"


def test_a_problem_of_which_nothing_runs_any_more_stays_stale(spec, tuned, newer):
    device = newer(lambda config: Status.COMPILE)
    done = retune(stale(tuned, device, spec), device, tuned)
    assert done.after is None and "none of 11 configs ran correctly" in done.reason and not done.flipped
    assert done.to_json()["config"] is None
    assert stale(tuned, device, spec) is not None


def test_configs_that_the_space_has_lost_are_left_out(bowl, spec, tuned, newer):
    narrow = dataclasses.replace(
        spec,
        constraints=(dataclasses.replace(spec.constraints[0], rule="narrow", holds=lambda c, p, t: c["WIDTH"] != 64),),
    )
    device = newer()
    done = retune(stale(tuned, device, narrow), device, tuned)
    assert all(config["WIDTH"] != 64 for config in device.evaluated)
    assert done.flipped and done.reason == "the kernel's space does not hold it any more"


def test_a_problem_that_the_kernel_takes_no_more_is_refused_in_a_line(spec, tuned, newer):
    found, refused = find_stale(tuned, newer(), dataclasses.replace(spec, dtypes=("float16",)))
    assert not found
    assert refused[0] == "bowl M=64 float32: kernel bowl does not take 'float32'; it takes float16"


def test_a_search_goes_on_from_what_was_timed_again(bowl, spec, tuned, newer):
    device = newer()
    retune(stale(tuned, device, spec), device, tuned)
    again = device.evaluated[:10]
    result = tune(spec, SIZES[0], device=device, search="exhaustive", db=tuned)
    assert all(device.evaluated.count(config) == 1 for config in again)
    assert sum(result.counts.values()) == len({str(config) for config in device.evaluated}) > 11
