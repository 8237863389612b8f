"""The commands that a problem's page offers for copying."""

from __future__ import annotations

import shlex
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from landscapes import landscape_of

from tilewise.api.pages.problem.landscapes import Stored
from tilewise.api.pages.problem.routes import _problem_of
from tilewise.api.pages.problem.trial_table import TrialQuery
from tilewise.api.pages.problem.views import _curl, _export, problem_view
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.tuner.space.problem_checks import parse_flag


def test_the_request_of_a_problem_keeps_its_flags_as_they_are_spelt():
    flags = {"causal": True, "layout": "HeadsFirst"}
    problem = Problem("mine", {"M": 8}, "float16", flags)
    command = _curl(Scope(problem, "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132), "http://localhost:8300/")
    assert command.startswith("curl 'http://localhost:8300/v1/configs/mine?M=8&")
    asked = dict(parse_qsl(urlsplit(shlex.split(command)[1]).query))
    assert {name: parse_flag(asked[name]) for name in flags} == flags


def test_a_shell_takes_names_from_a_file_as_words():
    bad = "x'; touch /tmp/here; '$(id) \n"
    problem = Problem(f"../k{bad}", {"M": 8}, f"d{bad}", {"f": f"v{bad}"})
    scope = Scope(problem, "a1", bad, Clock.MEASURED, "t", 1)
    words = shlex.split(_export(scope))
    assert words[:4] == ["tilewise", "export", "--format", "json"]
    assert words[4:6] == [f"--kernel=../k{bad}", f"--device={bad}"]
    assert words[8:] == [f"--dtype=d{bad}", "-o", words[-1]]
    assert "/" not in words[-1]
    command, address = shlex.split(_curl(scope, "http://here"))
    assert command == "curl"
    assert address.isprintable()


SCOPE = Scope(Problem("row_reduce", {"M": 8, "N": 64}, "float16"), "a1", "NVIDIA H200", Clock.MEASURED, "triton", 132)


def trial(number, time_us, **fields):
    facts = {"config": {"B": number}, "status": Status.CORRECT, "verified": True, "ordinal": number}
    return Trial(**{**facts, "time_us": time_us, **fields})


def view(*trials):
    stored = Stored(Result(SCOPE, trials[0], None, {}, 1.0), landscape_of(trials))
    return problem_view(stored, None, "http://here", None, TrialQuery())


def test_failures_are_counted_by_reason_whatever_their_numbers():
    def failed(number, status, reason):
        return trial(number, None, status=status, verified=False, reason=reason)

    shown = view(
        trial(0, 5.0),
        failed(1, Status.COMPILE, "needs 300 bits"),
        failed(2, Status.RUNTIME, "needs 300 bits"),
        failed(3, Status.COMPILE, "needs 21 bits"),
    ).failures
    assert [(one.status, one.reason, one.count, one.config) for one in shown] == [
        ("compile", "needs 300 bits", 2, "B=1"),
        ("runtime", "needs 300 bits", 1, "B=2"),
    ]


def test_an_improvement_is_verified_and_faster_than_all_before_it():
    shown = view(trial(1, 9.0), trial(2, 9.0), trial(3, 4.0, verified=False), trial(4, 8.5), trial(5, 8.7)).improvements
    assert [(one.ordinal, one.time_us) for one in shown] == [(1, 9.0), (4, 8.5)]


def test_the_busy_time_of_a_pipe_is_told_as_a_share_of_the_whole():
    shown = view(trial(1, 8.0, facts={"pipes_us": {"V": 6.0, "X": 2.0}})).pipes
    assert [(one.one_us, one.one_percent) for one in shown] == [(6.0, 75.0), (2.0, 25.0)]
    assert shown[1].name == "X" != shown[0].name


@pytest.mark.parametrize(("clock", "device"), [(Clock.MODELLED, "model:NVIDIA H200"), (Clock.MEASURED, "")])
def test_a_problem_is_tuned_again_on_the_same_model_or_on_a_chip_to_be_chosen(clock, device):
    asked = _problem_of(replace(SCOPE, clock=clock))
    assert asked == {"kernel": "row_reduce", "dims": "M=8,N=64", "dtype": "float16", "device": device}
