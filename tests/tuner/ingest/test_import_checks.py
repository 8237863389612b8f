"""Checks of imported results against the kernels that they name."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from scopes import changed

from tilewise.db.exchange.import_file import ImportFile, Offer, Refusal
from tilewise.db.records import Clock, Problem, Scope, Status, Suggestion, Trial
from tilewise.errors import UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.hardware.peaks import arithmetic_binds
from tilewise.tuner.hardware.targets import known_target, memory_gb_s
from tilewise.tuner.ingest import import_checks
from tilewise.tuner.ingest.import_checks import checked_import, checked_offers

CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}


@pytest.fixture(scope="module")
def scope() -> Scope:
    spec = registry.load("row_reduce")
    dims = {"M": 1000, "N": 8192}
    return Scope(Problem("row_reduce", dims, "float32"), source_hash(spec), "Ascend910B4", Clock.MODELLED, "t", 40)


def trial(time_us: float = 47.5, **changes) -> Trial:
    return Trial(**{"config": CONFIG, "status": Status.CORRECT, "time_us": time_us, "verified": True} | changes)


def admitted(scope, *trials, own=None):
    return checked_import(ImportFile(offers=(Offer("entry 1", scope, trials),)), own)


def reasons(reading) -> list[tuple[str, str]]:
    return [(refusal.place, refusal.reason) for refusal in reading.refusals]


def test_a_result_of_the_kernel_as_it_is_here_is_taken(scope):
    default = dict(registry.load("row_reduce").default(problem(scope), known_target("Ascend910B4", 40)))
    trials = (trial(), trial(80, config=default, is_default=True), trial(None, status=Status.COMPILE, verified=False))
    reading = admitted(scope, *trials)
    assert reading.offers == (Offer("entry 1", scope, trials),)
    assert reading.refusals == ()


def problem(scope) -> Problem:
    return Problem(scope.kernel, scope.dims, scope.dtype)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"config": CONFIG | {"BLOCK_SIZE_M": 26}}, "BLOCK_SIZE_M=26 is outside the space"),
        ({"config": {"TILE": 1}}, "the config lacks BLOCK_SIZE_M"),
        ({"config": CONFIG | {"num_warps": 4}}, "has no parameter num_warps on Ascend910B4"),
        ({"config": CONFIG | {"BLOCK_SIZE_N": 4096}}, "breaks a rule of row_reduce: two float32 tiles fit on chip"),
        ({"config": CONFIG | {"multibuffer": 1}}, "multibuffer=1 is outside the space"),
        ({"time_us": 0.5}, "is less than 'Ascend910B4' needs to move the problem's bytes"),
        ({"time_to_beat_us": 0.5}, "is less than 'Ascend910B4' needs to move the problem's bytes"),
        ({"time_us": 1e300}, "more than an hour"),
        ({"created": datetime.now(UTC) + timedelta(days=1)}, "UTC, in the future: set the clock that told so"),
        ({"facts": {"lines": "x" * 100_001}}, "its facts are 100013 characters of JSON; expected at most 100000"),
        ({"config": CONFIG | {"BLOCK_SIZE_M": 26}, "is_default": True}, "outside the space"),
    ],
)
def test_what_cannot_be_a_best_is_refused_and_the_rest_is_taken(scope, changes, complaint):
    good = trial(50)
    reading = admitted(scope, trial(**changes), good)
    assert [offer.trials for offer in reading.offers] == [(good,)]
    [(place, reason)] = reasons(reading)
    assert place == "entry 1, trial 1"
    assert complaint in reason


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"kernel": "no_such_kernel"}, "kernel 'no_such_kernel' is unknown here; if it is your own, add --kernel"),
        ({"kernel": "k" * 99}, f"kernel '{'k' * 40}' is unknown here"),
        ({"dims": {"M": 1000}}, "N is missing"),
        ({"dims": {"M": 1000, "N": 2**40}}, "N is 1099511627776"),
        ({"dtype": "int4"}, "does not take 'int4'"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_whole(scope, changes, complaint):
    reading = admitted(changed(scope, **changes), trial(), trial(60))
    assert reading.offers == ()
    [(place, reason)] = reasons(reading)
    assert place == "entry 1"
    assert complaint in reason


def test_times_without_a_verdict_may_be_of_any_kernel_as_they_never_win(scope):
    claims = trial(verified=False)
    assert admitted(changed(scope, kernel="somebody_elses"), claims).offers[0].trials == (claims,)
    assert reasons(admitted(scope, trial(0.1, verified=False)))


def test_another_source_of_the_kernel_may_have_had_another_space(scope):
    other = trial(config=CONFIG | {"BLOCK_SIZE_M": 26})
    assert admitted(replace(scope, source_hash="older"), other).refusals == ()


def test_a_kernel_of_ones_own_is_known_by_its_spec(scope, bowl):
    mine = changed(scope, kernel="bowl", dims={"M": 64}, source_hash=source_hash(bowl.SPEC), device="Ascend910B4")
    good, bad = trial(config=bowl.BEST), trial(config=bowl.BEST | {"TILE": 99})
    assert admitted(mine, good).offers == ()
    reading = admitted(mine, good, bad, own={"bowl": bowl.SPEC})
    assert reading.offers[0].trials == (good,)
    assert "TILE=99 is outside the space" in reading.refusals[0].reason


def test_suggestions_name_the_kernels_own_sizes_and_parameters(scope):
    good = Suggestion(
        Problem("row_reduce", {"M": 1, "N": 64}, "float32"), "NVIDIA H200", {"BLOCK_SIZE_M": 1}, "a table"
    )
    bad = [
        replace(good, config={"BLOCK_SIZE_K": 1}),
        changed(good, dims={"M": 1, "K": 1}),
        changed(good, kernel="no_such_kernel"),
    ]
    reading = checked_import(ImportFile(suggestions=(good, *bad)))
    assert reading.suggestions == (good,)
    assert [text.split(";")[0] for _, text in reasons(reading)] == [
        "row_reduce has no parameter 'BLOCK_SIZE_K'",
        "kernel row_reduce has no dimension K",
        "kernel 'no_such_kernel' is unknown here",
    ]


def test_a_flag_spelt_out_at_its_default_is_the_problem_without_it():
    dims = {"M": 64, "E": 16, "TOPK": 2}
    spelt = Suggestion(Problem("topk_gating", dims, "float32", {"renormalise": True}), "NVIDIA H200", {}, "a table")
    (kept,) = checked_import(ImportFile(suggestions=(spelt,))).suggestions
    assert (kept.problem.flags, dict(kept.problem.dims)) == ({}, dims)


def test_a_trial_and_its_problem_are_ranked_by_the_same_figure(scope):
    told = "its problem ranks configs by {}, which it does not have or is not ranked by"
    cheat = trial(facts={"metrics": {"energy_uj": 1e-9}, "objective": "energy_uj"})
    assert reasons(admitted(scope, cheat)) == [("entry 1, trial 1", told.format("its time"))]
    spec = replace(registry.load("row_reduce"), objective="energy_uj")
    by_energy = changed(scope, flags={"objective": "energy_uj"})
    metered = trial(facts={"metrics": {"energy_uj": 9000.0}, "objective": "energy_uj"})
    refused = trial(), trial(facts={"objective": "energy_uj"}), trial(facts={"metrics": {"energy_uj": 9.0}})
    reading = admitted(by_energy, metered, *refused, own={"row_reduce": spec})
    assert [offer.trials for offer in reading.offers] == [(metered,)]
    assert {reason for _, reason in reasons(reading)} == {told.format("energy_uj")}


def test_a_refused_suggestion_is_placed_by_its_size_in_at_most_60_characters():
    short = Suggestion(Problem("no_such_kernel", {"M": 1, "N": 64}, "float32"), "NVIDIA H200", {}, "a table")
    long = replace(short, problem=Problem("no_such_kernel", {"M" * 80: 1}, "float32"))
    reading = checked_import(ImportFile(suggestions=(short, long)))
    assert [place for place, _ in reasons(reading)] == ["size M=1,N=64", "size " + "M" * 55]


def test_a_product_cannot_take_less_than_half_the_time_of_its_operations():
    """2 * 4096^3 operations, where the memory moves 0.1 GB in much less."""
    spec = registry.load("gemm")
    problem = Problem("gemm", {"M": 4096, "N": 4096, "K": 4096}, "bfloat16")
    bound = arithmetic_binds(spec, problem, "NVIDIA H200")
    scope = Scope(problem, source_hash(spec), "NVIDIA H200", Clock.MEASURED, "t", 132)
    config = spec.default(problem, known_target("NVIDIA H200", 132))
    fast, slow = (trial(share * bound.floor_us, config=config, is_default=True) for share in (0.49, 0.51))
    reading = admitted(scope, fast, slow)
    assert [offer.trials for offer in reading.offers] == [(slow,)]
    told = f"us is less than 'NVIDIA H200' needs to do the problem's operations ({bound.floor_us / 2:.3g} us)"
    assert reasons(reading) == [("entry 1, trial 1", f"{fast.time_us:.3g} {told}")]


def test_an_hour_and_a_hundred_thousand_characters_of_facts_are_taken(scope):
    longest, largest = trial(3.6e9), trial(60, facts={"lines": "x" * (100_000 - len('{"lines":""}'))})
    assert admitted(scope, longest, largest).offers[0].trials == (longest, largest)
    assert "more than an hour" in reasons(admitted(scope, trial(3.61e9)))[0][1]


def test_a_spec_whose_own_code_fails_on_a_config_is_named_by_its_error(scope, bowl):
    def never(config, problem, target):
        raise ZeroDivisionError("of what\nnobody tried")

    spec = replace(bowl.SPEC, constraints=(replace(bowl.SPEC.constraints[0], holds=never),))
    mine = changed(scope, kernel="bowl", dims={"M": 64}, source_hash=source_hash(spec), device="Ascend910B4")
    [(_, reason)] = reasons(admitted(mine, trial(config=bowl.BEST), own={"bowl": spec}))
    assert reason.startswith("the constraint 'TILE * WIDTH <= 1024' raises ZeroDivisionError: of what (")
    assert "\n" not in reason


def test_offers_are_checked_as_they_are_read_and_refusals_passed_on(scope):
    said = []
    early = Refusal("entry 1", "it is no JSON")
    bad, good = trial(0.5), trial(50)
    items = [early, Offer("entry 2", scope, (bad, good)), Offer("entry 3", scope, (bad,))]
    assert [offer.place for offer in checked_offers(iter(items), said.append)] == ["entry 2"]
    assert said[0] is early
    assert [refusal.place for refusal in said[1:]] == ["entry 2, trial 1", "entry 3, trial 1"]


@pytest.mark.parametrize(("hours", "taken"), [(0.9, True), (1.1, False)])
def test_another_machines_clock_may_run_ahead_by_an_hour(scope, hours, taken):
    ahead = trial(50, created=datetime.now(UTC) + timedelta(hours=hours))
    assert bool(admitted(scope, ahead).offers) is taken


@pytest.mark.parametrize(("time_us", "taken"), [(3.6e9, True), (3.7e9, False), (math.nan, False)])
def test_a_time_is_an_hour_at_most(scope, time_us, taken):
    assert bool(admitted(scope, trial(time_us)).offers) is taken


@pytest.mark.parametrize(("share", "taken"), [(0.499, False), (0.501, True)])
def test_a_time_is_half_of_what_the_memory_needs_at_least(scope, share, taken):
    moved = registry.load("row_reduce").bytes(problem(scope))
    needed_us = moved / memory_gb_s("Ascend910B4", moved) / 1e3
    assert bool(admitted(scope, trial(share * needed_us)).offers) is taken


def test_a_kernel_whose_file_is_gone_is_unknown(scope, monkeypatch):
    def load(name):
        raise UnknownKernel(name)

    monkeypatch.setattr(import_checks.registry, "load", load)
    reading = admitted(scope, trial(50))
    assert not reading.offers and "row_reduce" in reading.refusals[0].reason
    assert admitted(scope, trial(50, verified=False)).offers  # it cannot become a best before it is verified


def test_a_spec_that_fails_for_a_device_refuses_its_config_with_the_error(scope, monkeypatch):
    def check(spec, problem, target, config):
        raise ZeroDivisionError("no cores")

    monkeypatch.setattr(import_checks, "check_config", check)
    [(place, reason)] = reasons(admitted(scope, trial(50)))
    assert (place, reason) == ("entry 1, trial 1", "its config cannot be checked: ZeroDivisionError: no cores")
