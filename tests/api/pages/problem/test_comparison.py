"""Two configs side by side: what is stored of each, in words, and how they differ."""

from __future__ import annotations

import math

import pytest

from tilewise.api.pages.problem import comparison as module
from tilewise.api.pages.problem.comparison import PipePair, comparison, penalties_of, pipe_pairs
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.kernels import registry

SCOPE = Scope(Problem("row_reduce", {"M": 8, "N": 64}, "float16"), "a1", "Ascend910B4", Clock.MODELLED, "model", 40)
FACTS = {
    "zeta": 1,
    "alpha_of_it": "x" * 300,
    "bound_by": "V",
    "programs": 3,
    "double_buffered": False,
    "share_of_peak": 0.123456789,
    "on_chip_bits": {"required": 8192 * 3, "available": 8192 * 192},
    "list": [1],
}


def trial(time_us=1.0, facts=None, **config):
    return Trial(config, Status.CORRECT, time_us=time_us, facts=facts or {})


def lines(of):
    return [(line.name, line.one, line.other, line.differs) for line in of]


def test_every_figure_of_both_or_one_is_a_line():
    found = comparison(SCOPE, None, (4, trial(10.0, A=1, B="x")), (7, trial(25.0, B="x", C=True)))
    assert (found.one.number, found.other.number, found.ratio) == (4, 7, 2.5)
    assert lines(found.config) == [("A", "1", None, True), ("B", "x", "x", False), ("C", None, "True", True)]
    assert (found.facts, found.penalties, found.pipes) == ([], [], [])


@pytest.mark.parametrize(("one", "other"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0)])
def test_an_unknown_time_has_no_ratio(one, other):
    assert comparison(SCOPE, None, (0, trial(one)), (1, trial(other))).ratio is None


def test_facts_come_in_words_the_known_ones_first_and_long_ones_cut():
    found = comparison(SCOPE, None, (0, trial(facts=FACTS)), (1, trial(facts={"double_buffered": True, "waves": 2})))
    assert [(line.name, line.one, line.other) for line in found.facts] == [
        ("programs", "3", None),
        ("busiest pipe", "V", None),
        ("double-buffered", "no", "yes"),
        ("share of the peak", "0.123457", None),
        ("on-chip memory", "3 of 192 KiB", None),
        ("alpha of it", "x" * 200, None),
        ("zeta", "1", None),
        ("waves", None, "2"),
    ]


@pytest.mark.parametrize("bits", [{"required": -1, "available": 8192}, {"required": 8192}, {"required": True}, 5.0, []])
def test_odd_sizes_of_memory_are_left_out(bits):
    found = comparison(SCOPE, None, (0, trial(facts={"on_chip_bits": bits})), (1, trial()))
    assert "on-chip memory" not in [line.name for line in found.facts]


def test_pipes_are_shares_of_the_longer_time():
    one = trial(4.0, {"pipes_us": {"V": 3.0, "odd": 0.0, "bad": "x", "less": -1.0, "inf": math.inf, "yes": True}})
    other = trial(10.0, {"pipes_us": {"MTE2": 5.0, "V": 1.0}})
    assert pipe_pairs(one, other) == [
        PipePair("vector pipe", 3.0, 1.0, 30.0, 10.0),
        PipePair("odd", 0.0, None, 0.0, 0.0),
        PipePair("inward transfers", None, 5.0, 0.0, 50.0),
    ]
    assert pipe_pairs(one, None)[0] == PipePair("vector pipe", 3.0, None, 75.0, 0.0)
    assert pipe_pairs(None, None) == pipe_pairs(trial(None, {"pipes_us": {"V": 1.0}}), None) == []
    assert pipe_pairs(trial(1.0, {"pipes_us": [1.0]}), trial(1.0)) == []


def test_penalties_that_show_with_three_digits_come_largest_first(monkeypatch):
    given = {"none": 1.0, "too little": 1.0005, "little": 1.0006, "large": 3.0, "never": math.inf}
    monkeypatch.setattr(module, "penalties", lambda *_: given)
    spec = registry.load("row_reduce")
    assert [*penalties_of(SCOPE, spec, trial()).items()] == [("large", 3.0), ("little", 1.0006)]
    found = comparison(SCOPE, spec, (0, trial()), (1, trial()))
    assert lines(found.penalties) == [("large", "3.000", "3.000", False), ("little", "1.001", "1.001", False)]


def test_a_config_of_another_source_has_no_penalties():
    assert penalties_of(SCOPE, registry.load("row_reduce"), trial(UNKNOWN=1)) == {}
    assert penalties_of(SCOPE, None, trial()) == {}
