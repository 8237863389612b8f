"""Relaxed look-ups in a store: the answers, and what they say about themselves."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Question, Scope, Status, Trial
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Tiling
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.resolve import Match, NotTuned, clip, match_of, resolve_or_raise, resolve_with_fallback
from tilewise.tuner.lookup.store_source import StoreSource
from tilewise.tuner.space.search_space import check_config

FIRST = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def keep(store, bowl):
    """A function that stores a winner of the bowl; keywords change its scope."""
    count = 0

    def record(m, config, time_us=10.0, verified=True, **changes):
        nonlocal count
        count += 1
        spec_hash = source_hash(bowl.SPEC)
        scope = Scope(Problem("bowl", {"M": m}, "float32"), spec_hash, "Bowl", Clock.MODELLED, "formula 1", 8)
        trial = Trial(config, Status.CORRECT, time_us=time_us, samples=1, verified=verified)
        created = FIRST + timedelta(hours=count)
        store.record(changed(scope, **changes), [dataclasses.replace(trial, created=created)])

    return record


@pytest.fixture
def ask(store, bowl):
    source = StoreSource(store)

    def answer(m, match, device="Bowl", **options):
        question = Question(Problem("bowl", {"M": m}, "float32"), device)
        return resolve_or_raise(
            source, question, bowl.SPEC, source_hash=source_hash(bowl.SPEC), match=Match(match), **options
        )

    return answer


A, B, C = ({"TILE": tile, "WIDTH": 64, "fast": True} for tile in (1, 5, 8))


def test_what_is_stored_for_the_very_problem_is_exact(ask, keep):
    keep(100, A)
    keep(101, B)
    result = ask(100, "predicted")
    assert (result.match, result.distance, result.winner.config) == ("exact", 0.0, A)


def test_another_toolchain_is_exact_only_where_none_is_named(ask, keep):
    keep(100, A, toolchain="formula 0")
    assert ask(100, "exact").match == "exact"
    with pytest.raises(NotTuned):
        ask(100, "exact", toolchain="formula 1")
    result = ask(100, "older", toolchain="formula 1")
    assert (result.match, result.scope.toolchain, result.winner.time_us) == ("older", "formula 0", 10.0)


def test_measured_goes_before_modelled_even_if_that_is_newer(ask, keep):
    keep(100, A, clock=Clock.MEASURED)
    keep(100, B)
    assert ask(100, "exact").winner.config == A
    keep(110, C)
    keep(120, B, clock=Clock.MEASURED)
    result = ask(111, "nearest")
    assert (result.winner.config, result.scope.clock) == (B, Clock.MEASURED)


def test_the_nearest_shape_answers_within_the_bound_and_says_where_it_is_from(ask, keep):
    keep(100, A)
    keep(160, B)
    result = ask(150, "nearest")
    assert result.match == "nearest"
    assert result.distance == pytest.approx(math.log(160 / 150))
    assert result.winner.config == B
    assert "won at M=160 (10.00 us modelled)" in result.winner.why
    assert "not timed for this shape" in result.winner.why
    body = result.to_json()
    assert body["dims"] == {"M": 150}
    assert body["verified"] is False
    assert not body.keys() & {"time_us", "tuned_at", "p20_us"}


def test_beyond_the_bound_there_is_no_neighbour(ask, keep):
    keep(100, A)
    assert ask(125, "nearest").match == "nearest"
    with pytest.raises(NotTuned, match="nearest tuned shapes: M=100"):
        ask(126, "nearest")


def test_a_neighbours_config_is_moved_into_the_shapes_own_space(ask, keep, bowl):
    keep(100, {"TILE": 40, "WIDTH": 16, "fast": True})
    result = ask(101, "nearest")
    assert check_config(bowl.SPEC, Problem("bowl", {"M": 101}, "float32"), bowl.TARGET, result.winner.config) == ""
    assert "with TILE 40 -> 10" in result.winner.why


def test_a_neighbour_that_fits_nowhere_is_passed_over(ask, keep):
    keep(100, {"SIZE": 3})
    keep(110, C)
    assert ask(101, "nearest").winner.config == C


def test_far_from_all_tuned_shapes_the_portfolio_answers(ask, keep):
    keep(100, A)
    keep(100, B, time_us=30.0)
    keep(1000, B)
    result = ask(10_000, "portfolio")
    assert result.match == "portfolio"
    assert result.distance == pytest.approx(math.log(10))
    assert result.winner.config in (A, B)
    assert "fastest here of 2 configs of 2 tuned shapes" in result.winner.why


def test_trials_outside_the_kernels_space_make_no_portfolio(ask, keep):
    keep(100, {"SIZE": 3})
    keep(1000, {"SIZE": 4})
    with pytest.raises(NotTuned):
        ask(10_000, "portfolio")
    assert ask(10_000, "predicted").match == "predicted"


def test_a_portfolio_is_made_once_and_anew_from_what_was_written_since(ask, keep, store, monkeypatch):
    from tilewise.tuner.lookup import store_source as stored

    read = []
    monkeypatch.setattr(
        store, "trials", lambda scope, trials=store.trials: read.append(scope.dims["M"]) or trials(scope)
    )
    monkeypatch.setattr(stored, "_SHARE", 0)  # rebuild at once
    keep(100, A)
    keep(1000, A)
    assert [ask(m, "portfolio").winner.config for m in (10_000, 20_000)] == [A, A]
    assert sorted(read) == [100, 1000]
    keep(9000, B)
    keep(9000, A, time_us=30.0)
    keep(5, C, dtype="float16")
    assert [ask(m, "portfolio").winner.config for m in (20_000, 30_000)] == [B, B]
    assert sorted(read) == [100, 1000, 9000]
    keep(9000, A, time_us=5.0)
    assert ask(20_000, "portfolio").winner.config == A
    assert sorted(read) == [100, 1000, 9000, 9000]


def test_a_portfolio_that_was_just_made_serves_for_a_while(ask, keep, monkeypatch):
    from tilewise.tuner.lookup import store_source as stored

    monkeypatch.setattr(stored, "_SHARE", 1e9)
    keep(100, A)
    assert ask(10_000, "portfolio").winner.config == A
    keep(9000, B)
    keep(9000, A, time_us=30.0)
    assert ask(20_000, "portfolio").winner.config == A


def test_of_very_many_shapes_the_same_few_are_read(bowl):
    from tilewise.tuner.portfolio.build import MOST_SHAPES, sample

    scopes = [
        Scope(Problem("bowl", {"M": m}, "float32"), "a1", "Bowl", clock, "formula 1", 8)
        for clock in (Clock.MODELLED, Clock.MEASURED)
        for m in range(1, 15 * MOST_SHAPES)
    ]
    chosen = sample(scopes)
    assert len(chosen) == 2 * MOST_SHAPES
    assert {scope.key for scope in sample([*chosen, *reversed(scopes)])} == {scope.key for scope in chosen}


def test_with_results_of_another_dtype_alone_the_prior_predicts(ask, keep):
    keep(100, A, dtype="float16")
    result = ask(100, "predicted")
    assert (result.match, result.distance) == ("predicted", None)
    assert "distance" not in result.to_json()
    assert result.scope.clock is Clock.MODELLED
    assert "nothing was timed" in result.winner.why


@pytest.mark.parametrize(
    ("name", "dims", "flags", "known"),
    [
        ("gemm", {"M": 512, "N": 4096, "K": 1000}, {}, True),
        ("gemm", {"M": 512, "N": 4096, "K": 1000}, {"bias": True}, True),
        ("grouped_gemm", {"M": 512, "N": 512, "K": 300, "G": 8}, {}, True),
        ("fused_moe", {"M": 64, "E": 8, "N": 256, "K": 300, "TOPK": 2}, {"quant": "int8_w8a8"}, True),
        ("flash_attention", {"B": 2, "H": 8, "HKV": 2, "Q": 300, "K": 300, "D": 64}, {}, True),
        ("flash_attention", {"B": 2, "H": 8, "HKV": 2, "Q": 300, "K": 300, "D": 64}, {"packed": True}, False),
        ("decode_attention", {"B": 2, "H": 8, "HKV": 2, "PAGES": 9, "PAGE": 64, "D": 64}, {}, True),
    ],
)
def test_a_kind_of_kernel_that_the_prior_does_not_know_is_answered_by_its_default(store, name, dims, flags, known):
    spec, target = registry.load(name), known_target("Ascend910B4", 40)
    question = Question(Problem(name, dims, "float16", flags), "Ascend910B4")
    found = resolve_with_fallback(
        StoreSource(store), question, spec, source_hash=source_hash(spec), match=Match.PREDICTED, target=target
    )
    assert found.match == "predicted"
    assert found.winner.why.startswith(
        "what the prior likes best of" if known else "the kernel's default, as the prior"
    )
    if not known:
        assert found.winner.config == spec.default(question.problem, target)


def test_a_kernel_without_a_prior_is_not_predicted(store, keep, bowl):
    keep(100, A, dtype="float16")
    spec = dataclasses.replace(bowl.SPEC, tiling=lambda config, problem: Tiling((), 0, 0))
    question = Question(Problem("bowl", {"M": 100}, "float32"), "Bowl")
    with pytest.raises(NotTuned):
        resolve_or_raise(StoreSource(store), question, spec, source_hash=source_hash(spec), match=Match.PREDICTED)


def test_another_source_of_the_kernel_never_answers(ask, keep):
    keep(100, A, source_hash="other")
    assert ask(101, "predicted").match == "predicted"
    with pytest.raises(NotTuned, match="another version of the kernel's source"):
        ask(100, "portfolio")


def test_another_chip_never_answers(ask, keep):
    keep(100, A)
    with pytest.raises(NotTuned, match="not tuned for Bowl2; devices with results: Bowl"):
        ask(100, "predicted", device="Bowl2")


def test_each_step_allows_those_before_it_and_no_more(ask, keep):
    keep(100, A, toolchain="formula 0")
    for match, m in (("exact", 100), ("older", 120), ("nearest", 900)):
        with pytest.raises(NotTuned):
            ask(m, match, toolchain="formula 1")
    found = [ask(m, "predicted", toolchain="formula 1").match for m in (100, 120, 900)]
    assert found == ["older", "nearest", "portfolio"]


def test_a_shape_stored_between_two_questions_is_seen_by_the_second(ask, keep):
    keep(100, A)
    assert ask(120, "nearest").winner.config == A
    keep(121, B)
    assert ask(120, "nearest").winner.config == B


def test_a_neighbour_without_a_winner_is_passed_over(ask, keep):
    keep(100, A)
    keep(101, B, verified=False)
    assert ask(102, "nearest").winner.config == A


def test_an_unknown_step_is_refused_with_the_steps_there_are():
    with pytest.raises(
        UsageError, match=r"^match is 'best'; expected one of exact, older, nearest, portfolio, predicted$"
    ):
        match_of("best")


def test_a_config_that_was_not_timed_took_no_time_to_tune(ask, keep):
    keep(100, A, dtype="float16")
    assert ask(100, "predicted").seconds == 0.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("row_reduce", "row_reduce"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + "..."),
    ],
)
def test_untrusted_text_is_one_short_printable_line(text, shown):
    assert clip(text) == shown
