"""Trials as evidence: what makes one impossible, which of two is better, and what wins."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tilewise.db.evidence import flaw, outranks, summarize, winner
from tilewise.db.records import Clock, Problem, Scope, Status, Trial

DAY = datetime(2026, 11, 1, tzinfo=UTC)
GOOD = Trial(
    {"B": 1}, Status.CORRECT, time_us=5.0, p20_us=4.0, p80_us=6.0, low_us=4.5, high_us=5.5, samples=9, created=DAY
)
EDGES = {"p20_us": 4.0, "p80_us": 4.0, "low_us": 5.0, "high_us": 5.0, "time_to_beat_us": 5.0, "seed": 2**63 - 1}


@pytest.mark.parametrize("changes", [{}, EDGES, {"seed": 0, "ordinal": 0, "samples": 0, "seconds": 0.0}])
def test_a_possible_trial_has_no_flaw(changes):
    assert flaw(replace(GOOD, **changes)) is None
    assert flaw(Trial({}, Status.COMPILE, created=DAY)) is None
    assert flaw(replace(GOOD, verified=True)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"time_us": 0.0}, "time_us is 0.0; expected a positive number"),
        ({"time_us": math.inf}, "time_us is inf; expected a positive number"),
        ({"p20_us": -1.0}, "p20_us is -1.0; expected a positive number"),
        ({"p80_us": math.nan}, "p80_us is nan; expected a positive number"),
        ({"low_us": 0.0}, "low_us is 0.0; expected a positive number"),
        ({"high_us": 0.0}, "high_us is 0.0; expected a positive number"),
        ({"time_to_beat_us": 0.0}, "settled_us is 0.0; expected a positive number"),
        ({"samples": -1}, "samples is -1; expected 0 or more, below 2^63"),
        ({"ordinal": -1}, "ordinal is -1; expected 0 or more, below 2^63"),
        ({"seed": 2**63}, f"seed is {2**63}; expected 0 or more, below 2^63"),
        ({"seconds": -0.5}, "seconds is -0.5; expected 0 or more"),
        ({"seconds": math.inf}, "seconds is inf; expected 0 or more"),
        ({"time_us": None}, "it is correct but has no time_us"),
        ({"status": Status.RUNTIME, "verified": True}, "it is verified but its status is runtime"),
        ({"p20_us": 6.5}, "p20_us 6.5 is above p80_us 6.0"),
        ({"low_us": 5.6}, "low_us 5.6 is above high_us 5.5"),
        ({"time_to_beat_us": 5.1}, "settled_us 5.1 is above time_us 5.0"),
        ({"created": datetime(2026, 11, 1)}, "created has no time zone"),
        ({"config": {"B": math.nan}}, "its config or facts are not plain JSON: "),
        ({"facts": {"B": {1, 2}}}, "its config or facts are not plain JSON: "),
    ],
)
def test_an_impossible_trial_is_told_by_its_first_flaw(changes, expected):
    found = flaw(replace(GOOD, **changes))
    assert found is not None and (found == expected or (expected.endswith(": ") and found.startswith(expected)))


def test_a_failed_trial_without_a_time_was_declared_over_none():
    trial = Trial({}, Status.RUNTIME, time_to_beat_us=1.0, created=DAY)
    assert flaw(trial) == "settled_us 1.0 is above time_us None"


LATER = datetime(2026, 11, 2, tzinfo=UTC)
BY_WEIGHT = [
    Trial({}, Status.UNMODELLED, samples=99, created=LATER),
    replace(GOOD, samples=8, created=LATER),
    replace(GOOD, time_us=4.0),
    GOOD,
    replace(GOOD, created=LATER),
    replace(GOOD, time_to_beat_us=5.0),
    Trial({}, Status.COMPILE, created=DAY),
    Trial({}, Status.TIMEOUT, samples=1, created=DAY),
    replace(GOOD, samples=1, verified=True),
    replace(GOOD, verified=True),
    Trial({}, Status.CORRECTNESS, created=DAY),
]
"""From the weakest evidence to the strongest."""


@pytest.mark.parametrize(("weak", "strong"), [*itertools.combinations(range(len(BY_WEIGHT)), 2)])
def test_evidence_has_an_order(weak, strong):
    assert outranks(BY_WEIGHT[strong], BY_WEIGHT[weak])
    assert not outranks(BY_WEIGHT[weak], BY_WEIGHT[strong])


def test_a_trial_does_not_outrank_itself():
    assert not outranks(GOOD, GOOD)


def correct(number, time_us, beat=None, ordinal=None, *, verified=True, **fields):
    facts = {"time_to_beat_us": beat, "ordinal": ordinal, "verified": verified, "created": DAY, **fields}
    return Trial({"B": number}, Status.CORRECT, time_us=time_us, **facts)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([], None),
        ([correct(1, 1.0, verified=False)], None),
        ([replace(correct(1, 1.0), status=Status.RUNTIME)], None),
        ([correct(1, 3.0), correct(2, 2.0)], 2),
        ([correct(1, 3.0, beat=1.9), correct(2, 2.0)], 1),  # declared over one of 1.9
        ([correct(1, 2.0), correct(2, 3.0, beat=2.0)], 2),
        ([correct(1, 2.0), correct(2, 2.0, ordinal=9)], 2),
        ([correct(1, 2.0, ordinal=9), correct(2, 2.0, ordinal=8)], 2),
        ([correct(1, 2.0, ordinal=0), correct(2, 2.0, ordinal=0)], 1),
    ],
)
def test_the_winner_is_the_fastest_verified_and_among_equals_the_declared_and_the_earliest(trials, expected):
    found = winner(trials)
    assert (found and found.config["B"]) == expected


def test_a_result_counts_all_trials_and_takes_the_last_default():
    scope = Scope(Problem("mine", {"N": 8}, "float32"), "a1", "H", Clock.MEASURED, "t", 1)
    trials = [
        correct(1, 3.0, is_default=True, seconds=0.5),
        correct(2, 2.0, seconds=0.25),
        correct(3, 4.0, is_default=True, verified=False),
        Trial({"B": 4}, Status.COMPILE, seconds=1.0),
    ]
    found = summarize(scope, trials)
    assert found.winner == trials[1] and found.default == trials[2] and found.scope == scope
    assert (found.counts, found.seconds) == ({Status.CORRECT: 3, Status.COMPILE: 1}, 1.75)
    assert summarize(scope, trials[3:]).default is None
