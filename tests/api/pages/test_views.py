"""The commands that a problem's page offers for copying."""

from __future__ import annotations

from urllib.parse import parse_qsl

from tilewise.api.pages.views import _curl
from tilewise.db.records import Clock, Problem, Scope
from tilewise.tuner.space.problem_checks import parse_flag


def test_the_request_of_a_problem_keeps_its_flags_as_they_are_spelt():
    flags = {"causal": True, "layout": "HeadsFirst"}
    problem = Problem("mine", {"M": 8}, "float16", flags)
    command = _curl(Scope(problem, "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132), "http://localhost:8300/")
    assert command.startswith("curl 'http://localhost:8300/v1/configs/mine?M=8&")
    asked = dict(parse_qsl(command.rstrip("'").partition("?")[2]))
    assert {name: parse_flag(asked[name]) for name in flags} == flags
