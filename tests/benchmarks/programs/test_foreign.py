"""Kernels of other people's libraries, tuned as their users would."""

from __future__ import annotations

import os
import sys

import pytest

from tilewise.benchmarks.programs import calls, developed_calls, drawn_calls, foreign, judged_calls, seeded_calls
from tilewise.benchmarks.programs.cases import CASES
from tilewise.benchmarks.programs.foreign import bench_programs, outcome, summary

SPEC = "tilewise: the spec of k is /home/me/specs/k.py\n"


@pytest.mark.parametrize(
    ("code", "errors", "expected"),
    [
        (0, SPEC, ("tuned", "")),
        (
            1,
            f"noise\n{SPEC}tilewise: none of 2 configs ran correctly\n",
            ("inferred", "none of 2 configs ran correctly"),
        ),
        (2, "tilewise: no spec can be inferred for k: why\n", ("captured", "no spec can be inferred for k: why")),
        (4, "tilewise: /home/me/p.py launches no kernel k\n", ("not captured", "p.py launches no kernel k")),
        (2, "tilewise: no spec: `a // b, c // d`: why\n", ("captured", "no spec: `a // b, c // d`: why")),
        (4, "tilewise: p.py ended before it launched one\n", ("not captured", "p.py ended before it launched one")),
    ],
)
def test_the_outcome_is_how_far_a_kernel_came(code, errors, expected):
    assert outcome(code, errors) == expected


def test_every_kernel_has_a_call_that_launches_it():
    for program in (calls, seeded_calls, drawn_calls, developed_calls, judged_calls):
        name = f"{program.__name__.rpartition('.')[2]}.py"
        assert {case.call for case in CASES if case.module and case.program == name} == set(program.CALLS)
    assert len({(case.call, case.kernel) for case in CASES}) == len(CASES)


def test_outcomes_are_counted():
    rows = [{"outcome": "tuned"}, {"outcome": "captured"}, {"outcome": "tuned"}]
    assert summary(rows) == {"kernels": 3, "captured": 1, "tuned": 2}


def test_libraries_that_are_not_installed_are_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = []
    (body,) = bench_programs(["fla/rms", "mlstm"], progress=told.append)
    assert body["rows"] == told == [] and body["not_installed"] == ["fla-core", "mlstm-kernels"]


def test_tutorials_are_programs_of_a_folder(monkeypatch, tmp_path):
    run = []

    def fake(words, environment):
        run.append(words)
        return ("tuned", ""), 1.5

    monkeypatch.setattr(foreign, "_tuning", fake)
    (tmp_path / "04-low-memory-dropout.py").touch()
    first, body = bench_programs(["tutorials/05", "tutorials/04"], progress=print, tutorials=tmp_path)
    assert (first["not_reached"], body["not_reached"]) == (1, 0)
    assert [row["kernel"] for row in body["rows"]] == ["_dropout", "_seeded_dropout"]
    assert f"{tmp_path}/04-low-memory-dropout.py:_dropout" in run[0] and run[0][-1] == "--"
    assert {row["processor_seconds"] for row in body["rows"]} == {1.5}
    assert body["not_installed"] == ["triton's tutorials"] and str(tmp_path) not in body["command"]


def test_a_tuning_is_ended_after_its_processor_time_not_after_that_of_the_clock(monkeypatch):
    monkeypatch.setattr(foreign, "_SECONDS", 0.2)
    monkeypatch.setattr(foreign, "_LOOKED_SECONDS", 0.02)
    found, used = foreign._tuning([sys.executable, "-c", "while True: ..."], os.environ)
    assert found == ("ended", "not done in 0.2 s of processor time") and used > 0.2
    monkeypatch.setattr(foreign, "_WAITED_SECONDS", 0.1)
    (name, message), used = foreign._tuning(["sleep", "5"], os.environ)
    assert (name, message) == ("ended", "not done in 0.1 s") and used < 0.2
    assert foreign._tuning(["sh", "-c", "echo 'tilewise: why' >&2; exit 2"], os.environ)[0] == ("captured", "why")
