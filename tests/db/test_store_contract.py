"""The contract of `tilewise.db.store.Store`, tested on every implementation."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scopes import changed

from tilewise.db.evidence import summarize
from tilewise.db.records import Clock, Problem, Question, Status, Suggestion, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import START as FIRST_PAGE
from tilewise.db.store import Change, MergeReport, Place, Wanted
from tilewise.errors import NotFound, StoreError

START = datetime(2026, 11, 1, tzinfo=UTC)
_numbers = itertools.count()


# Recording


def test_every_field_of_a_trial_is_stored(store, make_scope):
    trial = Trial(
        config={"BLOCK_SIZE_N": 256, "alpha": 0.1, "layout": "nz", "multibuffer": True},
        status=Status.CORRECT,
        reason="none",
        time_us=47.58000000000001,
        p20_us=47.1,
        p80_us=48.25,
        samples=30,
        low_us=47.25,
        high_us=47.75,
        dropped=True,
        method="cupti",
        l2="cold",
        time_to_beat_us=47.5,
        verified=True,
        is_default=True,
        ordinal=7,
        search="guided",
        seed=2**62,
        facts={"effective_options": {"multibuffer": False}, "pipes_us": [1.5, None, "é"], "deep": {"list": [{}]}},
        why="40 programs on 40 cores, no tail rows",
        seconds=1.25,
        created=datetime(2026, 11, 20, 15, 41, 7, 123456, tzinfo=timezone(timedelta(hours=2))),
    )
    store.record(make_scope(), [trial])
    (kept,) = store.trials(make_scope())
    assert kept == trial
    assert list(kept.config) == list(trial.config)
    assert [type(value) for value in kept.config.values()] == [int, float, str, bool]


def test_what_is_unknown_stays_unknown(store, make_scope):
    trial = Trial(config={"BLOCK_SIZE_N": 64}, status=Status.COMPILE, reason="ub overflow", created=START)
    store.record(make_scope(), [trial])
    assert store.trials(make_scope()) == [trial]


def test_trials_come_back_in_the_order_they_were_recorded(store, make_scope, make_trial):
    trials = [make_trial(time) for time in (30, 10, 20)]
    for trial in trials[::-1]:
        store.record(make_scope(), [trial])
    assert store.trials(make_scope()) == trials[::-1]


def test_recording_is_all_or_nothing(store, make_scope, make_trial):
    impossible = make_trial(None)
    with pytest.raises(StoreError, match="no time_us"):
        store.record(make_scope(), [make_trial(), impossible])
    with pytest.raises(StoreError, match="no time_us"):
        store.record(scope=make_scope(), trials=[impossible])
    assert store.trials(make_scope()) == []
    assert list(store.scopes()) == []


def test_a_later_trial_of_a_config_supersedes_the_earlier(store, make_scope, make_trial):
    first, other = make_trial(10), make_trial(20)
    second = make_trial(30, config=first.config)
    store.record(make_scope(), [first, other])
    store.record(make_scope(), [second])
    assert store.trials(make_scope()) == [other, second]
    assert store.result(make_scope()).winner == other
    assert sum(store.result(make_scope()).counts.values()) == 2


def test_of_one_config_recorded_twice_at_once_the_later_is_current(store, make_scope, make_trial):
    first = make_trial(10)
    second = make_trial(20, config=first.config)
    store.record(make_scope(), [first, second])
    assert store.trials(make_scope()) == [second]


def test_recording_nothing_changes_nothing(store, make_scope):
    store.record(make_scope(), [])
    assert list(store.scopes()) == []


def test_scopes_do_not_mix(store, make_scope, make_trial):
    differences = [
        {"kernel": "softmax"},
        {"source_hash": "b2"},
        {"dims": {"M": 1000, "N": 8193}},
        {"dtype": "float16"},
        {"device": "Ascend910B3"},
        {"clock": Clock.MEASURED},
        {"toolchain": "other"},
        {"cores": 20},
    ]
    scopes = [make_scope(), *(make_scope(**difference) for difference in differences)]
    trials = [make_trial() for _ in scopes]
    for scope, trial in zip(scopes, trials, strict=True):
        store.record(scope, [trial])
    assert [store.trials(scope) for scope in scopes] == [[trial] for trial in trials]
    assert list(store.scopes()) == scopes


@pytest.mark.in_part(16)
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"time_us": None}, "no time_us"),
        ({"time_us": 0.0}, "time_us is 0.0"),
        ({"time_us": -1.0}, "time_us is -1.0"),
        ({"time_us": float("nan")}, "time_us is nan"),
        ({"time_us": float("inf")}, "time_us is inf"),
        ({"p20_us": 3.0, "p80_us": 2.0}, "above p80_us"),
        ({"low_us": 3.0, "high_us": 2.0}, "above high_us"),
        ({"time_us": 2.0, "time_to_beat_us": 3.0}, "settled_us 3.0 is above time_us 2.0"),
        ({"time_to_beat_us": -1.0}, "settled_us is -1.0"),
        ({"status": Status.RUNTIME, "verified": True}, "verified but its status is runtime"),
        ({"samples": -1}, "samples is -1"),
        ({"seed": 2**63}, "seed is"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"facts": {"share": float("nan")}}, "not plain JSON"),
        ({"facts": {"when": START}}, "not plain JSON"),
        ({"created": datetime(2026, 11, 1)}, "no time zone"),
    ],
)
def test_an_impossible_trial_is_refused(store, make_scope, make_trial, changes, complaint):
    with pytest.raises(StoreError, match=complaint):
        store.record(make_scope(), [make_trial(**changes)])
    assert store.trials(make_scope()) == []


# The history


def test_a_history_holds_each_verified_trial_that_was_the_fastest_of_its_scope(store, make_scope, make_trial):
    """Whether it was superseded later does not matter, nor what other scopes of the question hold."""
    scope, newer, other = make_scope(), make_scope(source_hash="b2"), make_scope(dtype="float16")
    slow, slower, equal, failed = (
        make_trial(30),
        make_trial(40),
        make_trial(30),
        make_trial(None, status=Status.RUNTIME),
    )
    unverified, fast = make_trial(10, verified=False), make_trial(20)
    again = make_trial(25, config=fast.config)
    elsewhere, best = make_trial(90), make_trial(15)
    for place, trial in (
        *((scope, each) for each in (slow, slower, equal, failed, unverified, fast)),
        *((newer, elsewhere), (other, make_trial(1)), (scope, again), (scope, best)),
    ):
        store.record(place, [trial])
    found = store.history(scope.question)
    assert found == [(scope, slow), (scope, fast), (newer, elsewhere), (scope, best)]
    assert store.history(replace(scope.question, device="another")) == []


# The winner


def test_the_winner_is_the_fastest_that_is_correct_and_verified(store, make_scope, make_trial):
    slow, best = make_trial(60), make_trial(50)
    unverified = make_trial(40, verified=False)
    wrong = make_trial(30, status=Status.CORRECTNESS)
    failed = make_trial(None, status=Status.RUNTIME)
    store.record(make_scope(), [slow, best, unverified, wrong, failed])
    result = store.result(make_scope())
    assert result.winner == best
    assert result.counts == {Status.CORRECT: 3, Status.CORRECTNESS: 1, Status.RUNTIME: 1}


def test_equal_times_go_to_the_earlier_ordinal_then_to_the_earlier_record(store, make_scope, make_trial):
    undrawn, late, early, copy = (make_trial(50, ordinal=ordinal) for ordinal in (None, 9, 2, 2))
    store.record(make_scope(), [undrawn, late, early, copy])
    assert store.result(make_scope()).winner == early
    store.verify(make_scope(), early.config, agreed=False)
    assert store.result(make_scope()).winner == copy
    store.verify(make_scope(), copy.config, agreed=False)
    assert store.result(make_scope()).winner == late
    store.verify(make_scope(), late.config, agreed=False)
    assert store.result(make_scope()).winner == undrawn


def test_a_declared_winner_goes_before_faster_ones_until_something_is_faster_than_all_it_was_declared_over(
    store, make_scope, make_trial
):
    fastest, declared = make_trial(50, ordinal=1), make_trial(50.2, time_to_beat_us=50, ordinal=2)
    store.record(make_scope(), [fastest, declared])
    assert store.result(make_scope()).winner == store.lookup(make_scope().question).winner == declared
    within = make_trial(50.1)
    store.record(make_scope(), [within])
    assert store.result(make_scope()).winner == declared
    faster = make_trial(49.9)
    store.record(make_scope(), [faster])
    assert store.result(make_scope()).winner == faster


def test_a_declared_winner_that_is_tried_again_or_found_wrong_is_no_longer_declared(store, make_scope, make_trial):
    fastest, declared = make_trial(50), make_trial(50.2, time_to_beat_us=50)
    for scope in (make_scope(), make_scope(dtype="float16")):
        store.record(scope, [fastest, declared])
    store.record(make_scope(), [make_trial(50.2, config=declared.config)])
    store.verify(make_scope(dtype="float16"), declared.config, agreed=False)
    assert store.result(make_scope()).winner == store.result(make_scope(dtype="float16")).winner == fastest


def test_a_scope_without_trials_has_an_empty_result(store, make_scope):
    result = store.result(make_scope())
    assert (result.scope, result.winner, result.default, result.seconds) == (make_scope(), None, None, 0.0)
    assert sum(result.counts.values()) == 0
    assert store.trials(make_scope()) == []


def test_a_result_without_a_winner_still_counts_trials(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial(None, status=Status.COMPILE, seconds=0.5), make_trial(verified=False)])
    result = store.result(make_scope())
    assert result.winner is None
    assert result.counts == {Status.COMPILE: 1, Status.CORRECT: 1}
    assert result.seconds == 0.5


def test_a_result_has_the_default_beside_the_winner(store, make_scope, make_trial):
    default, winner = make_trial(80, is_default=True, ordinal=None), make_trial(50)
    store.record(make_scope(), [default, winner])
    assert store.result(make_scope()).default == default
    newer = make_trial(None, is_default=True, status=Status.COMPILE)
    store.record(make_scope(), [newer])
    assert store.lookup(make_scope().question).default == newer


_trials = st.builds(
    lambda config, status, time, settled, verified, is_default, ordinal, seconds: Trial(
        config={"BLOCK": config},
        status=status,
        time_us=float(time) if status is Status.CORRECT else None,
        time_to_beat_us=min(time, settled) if settled and status is Status.CORRECT else None,
        verified=verified and status is Status.CORRECT,
        is_default=is_default,
        ordinal=ordinal,
        seconds=seconds,
        created=START,
    ),
    config=st.integers(1, 6),
    status=st.sampled_from([Status.CORRECT, Status.CORRECT, Status.COMPILE, Status.TIMEOUT]),
    time=st.integers(1, 3),
    settled=st.none() | st.none() | st.integers(1, 3),
    verified=st.booleans(),
    is_default=st.booleans(),
    ordinal=st.none() | st.integers(1, 3),
    seconds=st.floats(0, 10),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(_trials, max_size=4), max_size=4))
def test_results_follow_from_the_current_trials(store, make_scope, batches):
    scope = make_scope(source_hash=f"example {next(_numbers)}")
    current: dict[str, Trial] = {}
    for batch in batches:
        store.record(scope, batch)
        for trial in batch:
            current.pop(trial.config_key, None)
            current[trial.config_key] = trial
    assert store.trials(scope) == list(current.values())
    result, expected = store.result(scope), summarize(scope, list(current.values()))
    assert (result.winner, result.default) == (expected.winner, expected.default)
    assert (dict(result.counts), result.seconds) == (dict(expected.counts), pytest.approx(expected.seconds))


# Verifying


def test_a_verified_trial_can_win(store, make_scope, make_trial):
    trial = make_trial(verified=False)
    store.record(make_scope(), [trial])
    assert store.lookup(make_scope().question) is None
    store.verify(make_scope(), trial.config, agreed=True)
    assert store.lookup(make_scope().question).winner.verified


def test_a_trial_that_disagrees_becomes_a_failure_with_its_reason(store, make_scope, make_trial):
    fast, slow = make_trial(10), make_trial(20)
    store.record(make_scope(), [fast, slow])
    store.verify(make_scope(), fast.config, agreed=False, reason="off by 3e-2")
    (failed, _) = store.trials(make_scope())
    assert (failed.status, failed.reason, failed.verified) == (Status.CORRECTNESS, "off by 3e-2", False)
    assert failed.time_us == 10
    assert store.result(make_scope()).winner == slow


def test_verifying_finds_a_config_whatever_the_order_of_its_parameters(store, make_scope, make_trial):
    trial = make_trial(verified=False)
    store.record(make_scope(), [trial])
    store.verify(make_scope(), dict(reversed(trial.config.items())), agreed=True)
    assert store.result(make_scope()).winner is not None


def test_verifying_a_config_without_a_current_trial_is_not_found(store, make_scope, make_trial):
    trial = make_trial(verified=False)
    with pytest.raises(NotFound, match="row_reduce"):
        store.verify(make_scope(), trial.config, agreed=True)
    store.record(make_scope(), [trial])
    with pytest.raises(NotFound):
        store.verify(make_scope(), {"BLOCK_SIZE_M": -1}, agreed=True)
    store.retire(make_scope(), store.mark())
    with pytest.raises(NotFound):
        store.verify(make_scope(), trial.config, agreed=True)


def test_agreeing_with_a_failed_trial_is_refused(store, make_scope, make_trial):
    trial = make_trial(None, status=Status.TIMEOUT)
    store.record(make_scope(), [trial])
    with pytest.raises(StoreError):
        store.verify(make_scope(), trial.config, agreed=True)
    assert store.trials(make_scope()) == [trial]


# Retiring


def test_retired_trials_no_longer_count(store, make_scope, make_trial):
    old, new = make_trial(10, seconds=1.0), make_trial(20, seconds=2.0)
    store.record(make_scope(), [old])
    mark = store.mark()
    store.record(make_scope(), [new])
    assert store.retire(make_scope(), mark) == 1
    result = store.result(make_scope())
    assert (store.trials(make_scope()), result.winner, result.seconds) == ([new], new, 2.0)
    assert result.counts == {Status.CORRECT: 1}
    assert store.retire(make_scope(), mark) == 0


def test_retiring_touches_its_scope_only(store, make_scope, make_trial):
    other = make_scope(dtype="float16")
    store.record(make_scope(), [make_trial()])
    store.record(other, [make_trial()])
    assert store.retire(make_scope(), store.mark()) == 1
    assert len(store.trials(other)) == 1
    assert store.retire(make_scope(kernel="never tuned"), store.mark()) == 0


def test_a_mark_separates_earlier_from_later_records_whatever_the_clock_says(store, make_scope, make_trial):
    assert store.mark() == 0
    old, kept = make_trial(10, created=START), make_trial(30, created=START + timedelta(days=1))
    store.record(make_scope(), [old, kept])
    mark = store.mark()
    new = make_trial(20, created=START - timedelta(days=1))
    store.record(make_scope(), [new])
    assert store.trials(make_scope(), since=mark) == [new]
    assert store.retire(make_scope(), mark) == 2
    assert store.trials(make_scope()) == [new]


def test_a_retired_config_may_be_tried_again(store, make_scope, make_trial):
    trial = make_trial(10)
    store.record(make_scope(), [trial])
    store.retire(make_scope(), store.mark())
    store.record(make_scope(), [trial])
    assert store.trials(make_scope()) == [trial]


# Looking up


def test_lookup_answers_exactly_the_question(store, make_scope, make_trial):
    trial = make_trial()
    store.record(make_scope(), [trial])
    found = store.lookup(Question(Problem("row_reduce", {"N": 8192, "M": 1000}, "float32"), "Ascend910B4"))
    assert found == store.result(make_scope())
    assert (found.winner, found.match, found.distance) == (trial, "exact", 0.0)
    for question in (
        Question(Problem("softmax", {"M": 1000, "N": 8192}, "float32"), "Ascend910B4"),
        Question(Problem("row_reduce", {"M": 1001, "N": 8192}, "float32"), "Ascend910B4"),
        Question(Problem("row_reduce", {"M": 1000}, "float32"), "Ascend910B4"),
        Question(Problem("row_reduce", {"M": 1000, "N": 8192}, "float16"), "Ascend910B4"),
        Question(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "Ascend910B3"),
    ):
        assert store.lookup(question) is None


def test_lookup_passes_over_scopes_without_a_winner(store, make_scope, make_trial):
    store.record(make_scope(toolchain="old"), [make_trial()])
    store.record(make_scope(toolchain="new"), [make_trial(verified=False), make_trial(None, status=Status.COMPILE)])
    assert store.lookup(make_scope().question).scope.toolchain == "old"


def test_lookup_prefers_measured_to_newer_and_faster_modelled(store, make_scope, make_trial):
    store.record(make_scope(clock=Clock.MEASURED), [make_trial(90)])
    store.record(make_scope(clock=Clock.MODELLED), [make_trial(10)])
    assert store.lookup(make_scope().question).scope.clock is Clock.MEASURED


def test_lookup_prefers_the_winner_found_last(store, make_scope, make_trial):
    store.record(make_scope(toolchain="new"), [make_trial(90, created=START + timedelta(days=1))])
    store.record(make_scope(toolchain="old"), [make_trial(10, created=START)])
    assert store.lookup(make_scope().question).scope.toolchain == "new"


def test_lookup_with_a_source_hash_answers_from_that_source_only(store, make_scope, make_trial):
    store.record(make_scope(source_hash="old", clock=Clock.MEASURED), [make_trial(10)])
    store.record(make_scope(source_hash="new"), [make_trial(90)])
    question = make_scope().question
    assert store.lookup(question, source_hash="new").scope.source_hash == "new"
    assert store.lookup(question, source_hash="edited") is None
    assert store.lookup(question).scope.source_hash == "old"


def test_answers_are_all_candidates_of_lookup_in_its_order(store, make_scope, make_trial):
    store.record(make_scope(toolchain="old"), [make_trial(30.0)])
    store.record(make_scope(toolchain="new"), [make_trial(40.0)])
    store.record(make_scope(clock=Clock.MEASURED, source_hash="b2"), [make_trial(90.0)])
    store.record(make_scope(toolchain="newest"), [make_trial(verified=False)])
    store.record(make_scope(dims={"M": 1, "N": 8192}), [make_trial(1.0)])
    question = make_scope().question
    assert [result.winner.time_us for result in store.answers(question)] == [90.0, 40.0, 30.0]
    assert [result.scope.toolchain for result in store.answers(question, source_hash="a1")] == ["new", "old"]
    assert store.answers(question)[0] == store.lookup(question)


def test_shape_pages_hold_every_scope_of_a_kernel_dtype_and_device(store, make_scope, make_trial):
    for m in (3, 1, 2):
        store.record(make_scope(dims={"M": m, "N": 8}), [make_trial(verified=m == 1)])
    store.record(make_scope(dims={"M": 9, "N": 9}, dtype="float16"), [make_trial()])
    store.record(make_scope(dims={"M": 5, "N": 8}, source_hash="b2"), [make_trial()])
    [(last, found)] = store.shape_pages("row_reduce", "float32", "Ascend910B4")
    assert found.keys() == {"a1", "b2"}
    assert sorted(shape["M"] for shape in json.loads(found["a1"])) == [1, 2, 3]
    assert found["b2"] == '[{"M":5,"N":8}]'
    assert list(store.shape_pages("row_reduce", "float32", "Ascend910B4", last=last)) == []
    store.record(make_scope(dims={"M": 4, "N": 8}), [make_trial()])
    [(_, more)] = store.shape_pages("row_reduce", "float32", "Ascend910B4", last=last)
    assert more == {"a1": '[{"M":4,"N":8}]'}


def test_of_each_source_clock_toolchain_and_core_count_the_smallest_keys_are_drawn(store, make_scope, make_trial):
    groups = [{}, {"source_hash": "b2"}, {"clock": Clock.MEASURED}, {"toolchain": "other"}, {"cores": 20}]
    scopes = [make_scope(dims={"M": m, "N": 8}, **changes) for m in range(1, 9) for changes in groups]
    for scope in (*scopes, make_scope(dtype="float16")):
        store.record(scope, [make_trial()])

    def draw(source_hash, most):
        return store.draw("row_reduce", "float32", "Ascend910B4", source_hash, most=most)

    drawn = draw(None, 3)
    assert len(drawn) == 3 * len(groups)
    for changes in groups:
        group = [scope for scope in scopes if scope == make_scope(dims=scope.dims, **changes)]
        assert sorted((s for s in drawn if s in group), key=lambda s: s.key) == sorted(group, key=lambda s: s.key)[:3]
    assert {scope.source_hash for scope in draw("b2", 100)} == {"b2"}
    assert len(draw("b2", 100)) == 8


def test_scopes_written_to_since_a_revision_are_listed_once(store, make_scope, make_trial):
    one, other = make_scope(), make_scope(kernel="other")
    store.record(one, [make_trial()])
    before = store.revision()
    assert store.written(before) == []
    store.record(other, [make_trial()])
    store.record(one, [make_trial(20.0)])
    store.record(other, [make_trial(20.0)])
    assert store.written(before) == [one, other]
    assert store.written(store.revision() - 1) == [other]


def test_nothing_is_found_for_a_name_that_databases_cannot_store(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial()])
    assert store.scope("a\0") is None
    assert store.results(Wanted(kernel="\0")) == []


def test_families_are_each_kernel_dtype_and_device_once(store, make_scope, make_trial):
    assert list(store.families()) == []
    for kernel, dtype, m in (("b", "float16", 1), ("a", "float32", 1), ("b", "float16", 2), ("b", "bfloat16", 1)):
        store.record(make_scope(kernel=kernel, dtype=dtype, dims={"M": m}), [make_trial()])
    store.record(make_scope(kernel="a", device="NVIDIA H200", dims={"M": 1}), [make_trial()])
    assert list(store.families()) == [
        ("a", "float32", "Ascend910B4"),
        ("a", "float32", "NVIDIA H200"),
        ("b", "bfloat16", "Ascend910B4"),
        ("b", "float16", "Ascend910B4"),
    ]


def test_devices_are_all_devices_ever_tuned_on(store, make_scope, make_trial):
    assert store.devices() == []
    for device in ("NVIDIA H200", "Ascend910B4", "Ascend910B3"):
        store.record(make_scope(device=device), [make_trial(None, status=Status.COMPILE)])
        store.record(make_scope(device=device, dtype="float16"), [make_trial()])
    store.retire(make_scope(device="Ascend910B3"), store.mark())
    assert store.devices() == ["Ascend910B3", "Ascend910B4", "NVIDIA H200"]


def test_kernels_are_all_kernels_ever_tuned(store, make_scope, make_trial):
    assert store.kernels() == []
    for kernel in ("softmax", "batch_norm", "softmax"):
        store.record(make_scope(kernel=kernel), [make_trial(None, status=Status.COMPILE)])
    assert store.kernels() == ["batch_norm", "softmax"]


def test_a_scope_is_found_by_its_key(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial()])
    assert store.scope(make_scope().key) == make_scope()
    assert store.scope(make_scope(cores=20).key) is None


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("status", [None, Status.CORRECT])
def test_trials_come_in_pages_that_go_on_where_the_one_before_ended(store, make_scope, make_trial, most, status):
    first, second = make_scope(), make_scope(dtype="float16")
    store.record(first, [make_trial(ordinal=n) for n in range(1, 6)])
    store.record(second, [make_trial(ordinal=n) for n in range(6, 8)])
    store.record(first, [make_trial(None, status=Status.TIMEOUT, ordinal=None)])
    listed, after = [], FIRST_PAGE
    while after is not None and len(listed) < 20:
        page, after = store.trial_page(Wanted(), status=status, after=after, most=most)
        assert len(page) <= most
        listed += page
    failed = [] if status else [(first, None)]
    in_order = [*((first, n) for n in range(1, 6)), *failed, *((second, n) for n in range(6, 8))]
    assert [(each.scope, each.trial.ordinal) for each in listed] == in_order


def test_a_page_of_trials_reads_so_many_scopes_and_goes_on_before_the_next_ones_first_trial(
    store, make_scope, make_trial, monkeypatch
):
    monkeypatch.setattr("tilewise.db.sql.sql_store._SCOPES_PER_PAGE", 2)
    scopes = [make_scope(device=name) for name in "ABC"]
    for scope in scopes:
        store.record(scope, [make_trial()])
    page, after = store.trial_page(Wanted())
    assert [each.scope for each in page] == scopes[:2]
    assert after == Place(page[-1].place.scope + 1, 0)
    page, after = store.trial_page(Wanted(), after=after)
    assert ([each.scope for each in page], after) == (scopes[2:], None)


def test_results_come_in_pages_those_written_to_last_first(store, make_scope, make_trial):
    scopes = [make_scope(dims={"M": m, "N": 8}) for m in range(1, 8)]
    store.merge([(scope, [make_trial()]) for scope in scopes[:4]])  # in one revision
    for scope in scopes[4:]:
        store.record(scope, [make_trial(verified=False)])
    store.record(scopes[0], [make_trial(config={"B": 9})])
    order = [scopes[index] for index in (0, 6, 5, 4, 3, 2, 1)]
    listed, before = [], None
    while page := store.results(Wanted(), most=2, before=before):
        assert len(page) <= 2
        assert [result for _, result in page] == [store.result(result.scope) for _, result in page]
        listed += [result.scope for _, result in page]
        before = page[-1][0]
    assert listed == order
    assert [result.scope for _, result in store.results(Wanted())] == order


def test_results_are_filtered(store, make_scope, make_trial):
    scopes = [
        make_scope(dims={"M": 10, "N": 100}),
        make_scope(dims={"M": 100, "N": 10}),
        make_scope(dims={"M": 100, "N": 1000}, dtype="float16"),
        make_scope(kernel="softmax", dims={"M_": 1, "A%": 100}, device="Ascend910B3"),
    ]
    for scope in scopes:
        store.record(scope, [make_trial()])

    def found(**wanted):
        return [result.scope for _, result in store.results(Wanted(**wanted))][::-1]

    assert found(kernel="row_reduce") == scopes[:3]
    assert found(dtype="float16") == scopes[2:3]
    assert found(device="Ascend910B3", kernel="softmax") == scopes[3:]
    assert found(dims={"M": 100}) == scopes[1:3]
    assert found(dims={"N": 100, "M": 10}) == scopes[:1]
    assert found(dims={"M%": 1}) == found(dims={"M": 10, "N": 10}) == []
    assert found(dims={"A%": 100}) == scopes[3:]


def test_scopes_come_in_the_order_they_were_first_seen(store, make_scope, make_trial):
    scopes = [make_scope(kernel=kernel, device=device) for kernel in "ba" for device in "yx"]
    for scope in scopes + scopes[:1]:
        store.record(scope, [make_trial()])
    assert list(store.scopes()) == scopes
    assert list(store.scopes(kernel="a")) == scopes[2:]
    assert list(store.scopes(device="x")) == scopes[1::2]
    assert list(store.scopes(kernel="b", device="x")) == [scopes[1]]
    assert list(store.scopes(kernel="c")) == []


@pytest.mark.full
@pytest.mark.in_part(1)
def test_many_scopes_are_all_listed_while_more_are_recorded(store, make_scope, make_trial):
    scopes = [make_scope(dims={"M": size, "N": 1}) for size in range(1, 1102)]
    store.merge([(scope, [make_trial()]) for scope in scopes])
    seen = []
    for scope in store.scopes():
        if not seen:
            store.record(make_scope(kernel="meanwhile"), [make_trial()])
        seen.append(scope)
    assert seen == [*scopes, make_scope(kernel="meanwhile")]


# Merging


def test_merging_adds_unknown_trials(store, make_scope, make_trial):
    evidence = [(make_scope(), [make_trial(), make_trial()]), (make_scope(dtype="float16"), [make_trial()])]
    assert store.merge(evidence) == MergeReport(scopes=2, added=3, updated=0, unchanged=0)
    assert [(scope, store.trials(scope)) for scope in store.scopes()] == evidence
    assert store.merge(evidence) == MergeReport(scopes=2, added=0, updated=0, unchanged=3)
    assert [(scope, store.trials(scope)) for scope in store.scopes()] == evidence


def test_merging_keeps_the_newer_trial_of_a_config(store, make_scope, make_trial):
    ours, theirs = make_trial(10), make_trial(20)
    newer = make_trial(11, config=ours.config, created=ours.created + timedelta(days=1))
    older = make_trial(5, config=theirs.config, created=theirs.created - timedelta(days=1))
    store.record(make_scope(), [ours, theirs])
    assert store.merge([(make_scope(), [newer, older])]) == MergeReport(scopes=1, added=0, updated=1, unchanged=1)
    assert store.trials(make_scope()) == [theirs, newer]


@pytest.mark.parametrize("verdict", [{"verified": True}, {"status": Status.CORRECTNESS, "reason": "off"}])
def test_merging_the_same_trial_keeps_the_one_with_a_verdict(store, make_scope, make_trial, verdict):
    unjudged = make_trial(verified=False)
    judged = Trial(**{name: getattr(unjudged, name) for name in Trial.__dataclass_fields__} | verdict)
    store.record(make_scope(), [unjudged])
    assert store.merge([(make_scope(), [judged])]).updated == 1
    assert store.merge([(make_scope(), [unjudged])]).unchanged == 1
    assert store.trials(make_scope()) == [judged]


def test_the_order_of_merges_does_not_matter(make_scope, make_trial):
    config = {"BLOCK": 1}
    offered = [
        make_trial(10, config=config, samples=100),
        make_trial(11, config=config, samples=5),
        make_trial(9, config=config, samples=500, verified=False),
        make_trial(None, config=config, status=Status.TIMEOUT),
        make_trial(12, config=config, samples=100),
        make_trial(None, config=config, status=Status.UNMODELLED),
    ]
    wrong = make_trial(10, config=config, status=Status.CORRECTNESS)
    orders = [(order, offered[4]) for order in itertools.islice(itertools.permutations(offered), 0, None, 7)]
    orders += [(order, wrong) for order in itertools.islice(itertools.permutations([*offered, wrong]), 0, None, 31)]
    with open_store("sqlite://") as store:
        for number, (order, kept) in enumerate(orders):
            scope = make_scope(source_hash=f"order {number}")
            for trial in order:
                store.merge([(scope, [trial])])
            assert store.trials(scope) == [kept]


def test_a_merge_reports_the_winners_that_changed(store, make_scope, make_trial):
    slow, fast, failed = make_trial(20), make_trial(10), make_trial(None, status=Status.COMPILE)
    other = make_scope(dtype="float16")
    assert store.merge([(make_scope(), [slow]), (other, [failed])]).changes == (Change(make_scope(), None, slow),)
    assert store.merge([(make_scope(), [slow, fast])]).changes == (Change(make_scope(), slow, fast),)
    assert store.merge([(make_scope(), [make_trial(30)])]).changes == ()


def test_of_one_config_merged_twice_at_once_the_better_is_kept(store, make_scope, make_trial):
    old = make_trial(10)
    new = make_trial(20, config=old.config)
    assert store.merge([(make_scope(), [new, old])]) == MergeReport(scopes=1, added=1, updated=0, unchanged=1)
    assert store.trials(make_scope()) == [new]


def test_merging_is_all_or_nothing(store, make_scope, make_trial):
    with pytest.raises(StoreError):
        store.merge([(make_scope(), [make_trial()]), (make_scope(dtype="float16"), [make_trial(-1.0)])])
    assert list(store.scopes()) == []


def test_merging_nothing_reports_nothing(store, make_scope):
    assert store.merge([]) == MergeReport(scopes=0, added=0, updated=0, unchanged=0)
    assert store.merge([(make_scope(), [])]) == MergeReport(scopes=1, added=0, updated=0, unchanged=0)
    assert list(store.scopes()) == []


# Flags, suggestions, snapshots, closing


def test_problems_with_different_flags_never_answer_for_each_other(store, make_scope, make_trial):
    plain, causal = make_scope(), make_scope(flags={"CAUSAL": True, "ACT": "gelu"})
    store.record(plain, [make_trial(time_us=9.0, verified=True)])
    assert store.lookup(causal.question) is None
    store.record(causal, [make_trial(time_us=5.0, verified=True)])
    assert [store.lookup(scope.question).scope for scope in (plain, causal)] == [plain, causal]
    assert list(store.scopes()) == [plain, causal]


def test_suggestions_are_kept_once_and_by_kernel(store, make_scope, make_trial):
    one = Suggestion(
        Problem("row_reduce", {"M": 1, "N": 2}, "float32"), "NVIDIA H200", {"BLOCK": 4, "fast": True}, "a table"
    )
    two = replace(one, config={"BLOCK": 8, "fast": False})
    assert store.suggest([one, two, one]) == 2
    assert store.suggest([replace(one, origin="another table"), changed(one, kernel="softmax")]) == 1
    assert store.suggestions("row_reduce") == [one, two]
    assert store.suggestions("nothing") == []
    assert list(store.scopes()) == []  # suggestions are not trials


@pytest.mark.parametrize("store", ["sqlite-file", "postgresql"], indirect=True)  # nobody else writes one in memory
def test_a_snapshot_does_not_see_later_writes(store, make_scope, make_trial):
    first = make_trial(20)
    store.record(make_scope(), [first])
    with store.snapshot() as frozen:
        store.record(make_scope(), [make_trial(10)])
        store.record(make_scope(dtype="float16"), [make_trial()])
        assert [scope.dtype for scope in frozen.scopes()] == ["float32"]
        assert frozen.result(make_scope()).winner == first
        with pytest.raises(StoreError):
            frozen.record(make_scope(), [make_trial()])
    with pytest.raises(StoreError, match="is closed"):
        frozen.devices()
    assert len(list(store.scopes())) == 2
    assert store.result(make_scope()).winner.time_us == 10


def test_a_closed_store_is_unusable(store, make_scope, make_trial):
    with store as same:
        assert same is store
        store.record(make_scope(), [make_trial()])
    with pytest.raises(StoreError, match="closed"):
        store.lookup(make_scope().question)
    with pytest.raises(StoreError, match="closed"):
        store.record(make_scope(), [make_trial()])
    store.close()


# Following changes


def test_changes_name_the_questions_whose_trials_were_written(store, make_scope, make_trial):
    changes = store.changes()
    assert list(changes.poll()) == []
    one, other = make_scope(), make_scope(dtype="float16")
    trial = make_trial(verified=False)
    store.record(one, [trial])
    assert list(changes.poll()) == [one.question.key]
    assert list(changes.poll()) == []
    store.verify(one, trial.config, agreed=True)
    store.merge([(other, [make_trial()])])
    assert sorted(changes.poll()) == sorted([one.question.key, other.question.key])
    assert store.retire(one, store.mark()) == 1
    assert list(changes.poll()) == [one.question.key]
    assert store.retire(one, store.mark()) == 0
    assert list(changes.poll()) == []
    changes.close()


@pytest.mark.in_part(1)
def test_too_many_changes_to_list_count_as_a_change_of_everything(store, make_scope, make_trial):
    changes = store.changes()
    store.merge([(make_scope(dims={"M": m, "N": 1}), [make_trial()]) for m in range(1, 1001)])
    assert changes.poll() is None
    assert list(changes.poll()) == []
    changes.close()
