"""A winner's explanation and stored facts in a page's words and figures."""

from __future__ import annotations

import pytest

from tilewise.api.pages.problem.explanation import Line, Option, Row, explanation, stored_facts
from tilewise.tuner.explain.listing import SourceLine
from tilewise.tuner.explain.report import Report

BODY = {
    "modelled_us": 200.0,
    "modelled_between_us": [150.0, 260.0],
    "bound_by": "V",
    "pipes_us": {"V": 150.0, "MTE2": 90.0, "S": 0.0},
    "rows_us": {"V": 120.0, "S": 0.0, "launch": 80.0, "atomics": 0.0},
    "critical_path": [{"pipe": "MTE2", "us": 20.0}, {"pipe": "other", "us": 1.0}],
    "findings": [{"line": "a.py:3", "text": "slow"}, {"text": "anywhere"}],
    "options": [
        {"option": "multibuffer", "value": True, "other": False, "ratio": 1.25},
        {"option": "stages", "value": 2, "other": 4, "reason": "too large"},
    ],
    "variants": [{"says": "none is faster"}],
    "suggestions": [{"says": "larger blocks"}],
    "traffic": {"bytes": 12_345_678, "ratio": 1.11, "reasons": ["rows are drawn twice"]},
    "not_modelled": "the scalar cache",
}
SOURCE = [
    SourceLine("a.py", 2, "x = 1"),
    SourceLine("a.py", 3, "y = 2", 50.0, {"V": 2.0, "MTE2": 1.99, "odd": 90.0}),
    SourceLine("b.py", 9, "z = 3", 200.0, {"V": 2.5}),
]


def test_a_report_is_told_in_words_and_shares():
    shown = explanation(Report(BODY, SOURCE, "", "{}"))
    assert (shown.time_us, shown.between_us, shown.not_modelled, shown.has_trace) == (
        200.0,
        [150.0, 260.0],
        "the scalar cache",
        True,
    )
    assert shown.rows == [
        Row("vector pipe", 120.0, 0.6, 150.0, True),
        Row("scalar unit", 0.0, 0.0, 0.0, False),
        Row("launch", 80.0, 0.4, None, False),
    ]
    assert [step["name"] for step in shown.path] == ["inward transfers", "other"]
    assert shown.options == [
        Option("multibuffer", "True", "False", 1.25, ""),
        Option("stages", "2", "4", None, "too large"),
    ]
    assert (shown.variants, shown.suggestions) == (["none is faster"], [{"says": "larger blocks"}])
    assert shown.traffic == "12.35 MB, 1.11 times the least possible"
    assert shown.reasons == ["rows are drawn twice"]


def test_a_finding_stands_at_its_line_or_apart():
    """A pipe is shown from a hundredth of the whole time on: 2 of 200 us."""
    shown = explanation(Report(BODY, SOURCE, "", ""))
    slow, anywhere = BODY["findings"]
    assert shown.files == {
        "a.py": [
            Line(2, "x = 1", 0.0, 0.0, "", []),
            Line(3, "y = 2", 50.0, 0.25, "vector pipe 2.00, odd 90.00", [slow]),
        ],
        "b.py": [Line(9, "z = 3", 200.0, 1.0, "vector pipe 2.50", [])],
    }
    assert (shown.unplaced, shown.findings, shown.has_trace) == ([anywhere], [slow, anywhere], False)


def test_a_measured_time_has_busy_times_for_rows_and_no_reasons_of_little_traffic():
    body = {"time_us": 8.0, "findings": [], "pipes_us": {"M": 6.0}, "traffic": {"bytes": 1e6, "ratio": 1.1}}
    body["traffic"]["reasons"] = ["never shown"]
    shown = explanation(Report(body, [], "", ""))
    assert (shown.time_us, shown.between_us, shown.reasons) == (8.0, (), ())
    assert shown.rows == [Row("cube pipe", 6.0, 0.75, None, False)]
    bare = explanation(Report({"findings": []}, [SourceLine("a", 1, "")], "", ""))
    assert (bare.time_us, bare.traffic, bare.reasons, bare.options, bare.files["a"][0].share) == (0.0, "", (), [], 0.0)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, {}),
        ({"bound_by": "MTE2"}, {"Bound by": "inward transfers"}),
        ({"bound_by": "x" * 100}, {"Bound by": "x" * 60}),
        ({"bound_by": 3}, {}),
        ({"on_chip_bits": {"required": 8192 * 48, "available": 8192 * 192}}, {"On chip": "48 of 192 KiB (25%)"}),
        ({"on_chip_bits": {"required": 8192, "available": 0}}, {}),
        ({"on_chip_bits": {"required": 1.5, "available": 8192}}, {}),
        ({"on_chip_bits": [1, 2]}, {}),
        ({"programs": 40, "cores": 40, "waves": 1}, {"Programs": "40 on 40 cores in 1 wave"}),
        ({"programs": 80, "cores": 40, "waves": 2}, {"Programs": "80 on 40 cores in 2 waves"}),
        (
            {"programs": 41, "cores": 40, "waves": 2},
            {"Programs": "41 on 40 cores in 2 waves; the last wave has 1"},
        ),
        ({"programs": 3, "cores": 40, "waves": 1}, {"Programs": "3 on 40 cores in 1 wave"}),
        ({"programs": 3, "cores": 0, "waves": 1}, {"Programs": "3 on 0 cores in 1 wave"}),
        ({"programs": 3, "cores": 40}, {}),
        ({"programs": 3, "cores": True, "waves": 1}, {}),
        ({"programs": -1, "cores": 40, "waves": 1}, {}),
        ({"tail_rows": 0}, {"Tails": "none"}),
        ({"tail_rows": 1}, {"Tails": "1 tail row a program"}),
        ({"tail_rows": 2}, {"Tails": "2 tail rows a program"}),
        ({"tail_rows": 2**63}, {}),
        ({"tail_rows": 2**63 - 1}, {"Tails": "9223372036854775807 tail rows a program"}),
        ({"double_buffered": True}, {"Double buffers": "yes"}),
        ({"double_buffered": False}, {"Double buffers": "no"}),
        ({"double_buffered": 1}, {}),
    ],
)
def test_stored_facts_are_told_in_words_and_odd_ones_left_out(facts, words):
    assert stored_facts(facts) == words
