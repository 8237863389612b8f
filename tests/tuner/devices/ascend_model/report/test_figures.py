"""Times, bars and events of a timeline made by hand, in which a cycle is half a nanosecond."""

import re
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest
from places import ROOT

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, MTE3, VECTOR_PIPES, ProgramTime, S, V
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime
from tilewise.tuner.devices.ascend_model.clock.recording import Event, Flow, Recording
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.report import analysis
from tilewise.tuner.devices.ascend_model.report.analysis import Analysis, LaunchCourse, Step
from tilewise.tuner.devices.ascend_model.report.drawing import drawing
from tilewise.tuner.devices.ascend_model.report.trace import trace_events

LOADING, ADDING = Place(__file__, 3), Place(__file__, 4)  # the imports above stand for a kernel's lines
EVENTS = [
    Event(S, 0, 0.0, 4.0, 4.0, -1, True),
    Event(MTE2, 1, 4.0, 400.0, 600.0, 0, True),
    Event(MTE2, 1, 400.2, 420.0, 620.0, 1, True),
    Event(V, 2, 600.0, 612.0, 612.0, 1, False),  # waits for a flag
    Event(V, 3, 612.0, 1000.0, 1020.0, 3, True),
    Event(MTE3, 4, 100.0, 100.1, 100.1, 0, True),  # off the path, and too narrow to be seen
    Event(V, 3, 1020.0, 1021.0, 1021.0, 4, True),  # less than a 500th of the whole
    Event(S, 5, 1021.0, 1040.0, 1040.0, 6, False),
]
NAMES = ["arith.addi", "hivm.hir.load", "hivm.hir.wait_flag", "hivm.hir.vadd", "hivm.hir.store", "func.return"]
PLACES = [None, LOADING, ADDING, ADDING, None, None]


def launch(name="one", cycle_us=0.001):
    overhead = {"launch": 2.0, "start": 0.5}
    time = KernelTime(3.54, dict.fromkeys(VECTOR_PIPES, 0.0), overhead, 2, (640, 0), (0, 320))
    recording = Recording(
        ProgramTime(1040.0, dict.fromkeys(VECTOR_PIPES, 0.0), {}, {}, {}), EVENTS, [Flow(1, 4, 3)], NAMES
    )
    return LaunchCourse(name, time, recording, PLACES, {"x": 640, "y": 320}, cycle_us, 2.0)


BETWEEN = (0.5, 2.0)
ONE = Analysis([launch()], BETWEEN)
TWO = Analysis([launch(), launch("two <b>", 0.002)], BETWEEN)


def test_rows_split_the_path_into_work_by_pipe_and_waiting():
    """Only the events on the path count: those behind each other by their causes."""
    expected = {"S": 4.0, "V": 388.0 + 1.0, "MTE2": 396.0, "MTE3": 0.0}
    waiting = 1040.0 - sum(expected.values())
    rows = ONE.rows()
    assert {pipe: rows[pipe] for pipe in VECTOR_PIPES} == pytest.approx({p: t * 0.001 for p, t in expected.items()})
    assert rows["waiting"] == pytest.approx(waiting * 0.001)
    assert (rows["launch"], rows["start"]) == (2.0, 0.5)
    twice = TWO.rows()
    assert twice["V"] == pytest.approx(3 * rows["V"]) and twice["launch"] == 4.0


def test_lines_have_all_their_work_and_their_share_of_the_path():
    loading, adding = sorted(ONE.lines(), key=lambda line: line.place.line)
    assert loading.pipes_us == pytest.approx({"S": 0, "V": 0, "MTE2": 0.396 + 0.0198, "MTE3": 0})
    assert loading.path_us == pytest.approx(0.596)  # until the next event on the path begins
    assert adding.pipes_us == pytest.approx({"S": 0, "V": 0.389, "MTE2": 0, "MTE3": 0})
    assert adding.path_us == pytest.approx((12 + 408 + 1) * 0.001)
    assert [line.place for line in ONE.lines()] == [LOADING, ADDING]


def test_short_stretches_join_the_step_before_them():
    steps = ONE.critical_path()
    assert [(step.pipe, step.place) for step in steps] == [("S", None), ("MTE2", LOADING), ("V", ADDING), ("S", None)]
    assert [step.time_us for step in steps] == pytest.approx([0.004, 0.596, 0.421, 0.019])
    assert all(isinstance(step, Step) for step in steps)


def test_traffic_adds_up_over_launches():
    assert ONE.traffic() == {"x": (640, 0), "y": (0, 320)}
    assert TWO.traffic() == {"x": (1280, 0), "y": (0, 640)}
    assert TWO.time_us == pytest.approx(7.08)


# Trace ----------------------------------------------------------------------------------------------------------


def test_a_trace_has_each_pipes_work_in_microseconds():
    slices = [event for event in trace_events(TWO)["traceEvents"] if event["ph"] == "X"]
    first = [event for event in slices if event["pid"] == 0]
    assert len(first) == 6 and len(slices) == 12  # without the waits
    _, load, *_ = first
    assert (load["ts"], load["dur"], load["tid"], load["cat"], load["name"]) == (0.002, 0.198, MTE2, "MTE2", "load")
    assert load["args"] == {"operation": 1, "critical": True, "line": "test_figures.py:3", "source": "import re"}
    assert [event["args"]["critical"] for event in first] == [True, True, False, True, False, True]
    assert "line" not in first[0]["args"]


def test_arrows_lead_from_the_middle_of_the_work_before_a_flag_to_the_start_of_that_after_it():
    events = trace_events(TWO)["traceEvents"]
    leaving, arriving = [event for event in events if event.get("cat") == "flag" and event["pid"] == 1]
    assert (leaving["ph"], leaving["ts"], leaving["tid"]) == ("s", 0.101, MTE2)
    assert (arriving["ph"], arriving["ts"], arriving["tid"], arriving["bp"]) == ("f", 0.306, V, "e")
    assert leaving["id"] == arriving["id"] == "1.0"
    assert leaving["name"] == "flag 3"


def test_lanes_and_processes_are_named_in_order():
    named = [event for event in trace_events(TWO)["traceEvents"] if event["ph"] == "M"]
    assert [event["args"]["name"] for event in named if event["name"] == "process_name"] == [
        "one: one program",
        "two <b>: one program",
    ]
    lanes = [event for event in named if event["name"] == "thread_name" and event["pid"] == 1]
    assert [(event["tid"], event["args"]["name"]) for event in lanes] == [
        (0, "scalar unit (S)"),
        (1, "vector pipe (V)"),
        (2, "inward transfers (MTE2)"),
        (3, "outward transfers (MTE3)"),
    ]
    order = [event for event in named if event["name"] == "thread_sort_index" and event["pid"] == 1]
    assert [(event["tid"], event["args"]["sort_index"]) for event in order] == [(n, n) for n in range(4)]


# Drawing --------------------------------------------------------------------------------------------------------


def drawn(analysis):
    return ElementTree.fromstring(drawing(analysis))


def named(root, tag):
    return list(root.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def bars(path):
    """Return the left end and the width of each bar of a path."""
    return [(float(x), float(width)) for x, width in re.findall(r"M([\d.]+) \d+h([\d.]+)v\d+h-\2z", path.get("d"))]


def test_bars_are_as_long_as_the_work_and_neighbours_are_one():
    """A cycle is a unit of the drawing here. Work on the path is strong, other work faint."""
    paths = {(path.get("fill"), path.get("opacity")): bars(path) for path in named(drawn(ONE), "path")}
    assert sorted(paths.values()) == sorted(
        [
            [(150.0, 4.0)],
            [(154.0, 396.0)],
            [(550.2, 19.8)],
            [(762.0, 388.0), (1170.0, 1.0)],
            [(250.0, 0.3)],
        ]
    )
    assert {opacity for _, opacity in paths} == {"1", "0.35"}
    faint = [bar for (_, opacity), bar in paths.items() if opacity == "0.35"]
    assert sorted(faint) == [[(250.0, 0.3)], [(550.2, 19.8)]]
    assert len({colour for colour, _ in paths}) == len(VECTOR_PIPES)


def test_bars_less_than_half_a_unit_apart_are_one():
    starts = [(0.0, 10.0), (2.0, 5.0), (10.4, 20.0), (20.6, 30.0), (22.0, 25.0)]
    events = [Event(V, 3, start, end, end, -1, True) for start, end in starts]
    course = launch()
    close = Analysis(
        [LaunchCourse("one", course.time, Recording(course.recording.time, events, (), NAMES), PLACES, {}, 0.001, 2.0)],
        BETWEEN,
    )
    (path,) = [path for path in named(drawn(close), "path") if path.get("opacity") != "1"]
    assert bars(path) == [(150.0, 20.0), (170.6, 9.4)]
    (path,) = [path for path in named(drawn(close), "path") if path.get("opacity") == "1"]
    assert bars(path) == [(172.0, 3.0)]


def test_lanes_ticks_and_launches_have_their_places():
    root = drawn(TWO)
    assert root.get("viewBox") == "0 0 1200 420"
    texts = [(text.text, text.get("x"), text.get("y")) for text in named(root, "text")]
    title = "one: one program, 0.52 us of 3.54; solid: critical path"
    assert texts[0] == (title, "10", "20")
    assert [text[2] for text in texts[1:5]] == ["61", "95", "129", "163"]
    ticks = texts[5:14]
    assert [text[0] for text in ticks] == ["0.0", "0.1", "0.1", "0.2", "0.3", "0.3", "0.4", "0.5", "0.5 us"]
    assert [float(text[1]) for text in ticks] == [150.0 + 130.0 * tick for tick in range(9)]
    assert {text[2] for text in ticks} == {"196"}
    assert texts[14] == (title.replace("one:", "two <b>:"), "10", "230")
    anchors = [text.get("text-anchor") for text in named(root, "text")][5:14]
    assert anchors == ["middle"] * 8 + ["end"]
    lines = [(line.get("x1"), line.get("x2"), line.get("y1"), line.get("y2")) for line in named(root, "line")]
    assert lines[:2] == [("150", "1190", "68", "68"), ("150", "1190", "102", "102")]
    assert len(lines) == 8


def test_a_drawing_is_to_the_letter_that_of_the_kept_file():
    assert drawing(TWO) == (ROOT / "tests/golden/timeline.svg").read_text()


def test_an_analysis_lies_between_the_factors_of_its_class(monkeypatch):
    located = SimpleNamespace(functions=[SimpleNamespace(function="code")])
    monkeypatch.setattr(analysis, "located_launches", lambda *given: [located, located])
    monkeypatch.setattr(analysis, "_launches", lambda *given: [launch(), launch()])
    asked = []
    monkeypatch.setattr(
        analysis, "trust_of", lambda functions, timed: asked.append((functions, timed)) or {"low": 0.8, "high": 1.5}
    )
    found = analysis.analyse(None, None, {}, None, None)
    assert found.between_us == pytest.approx((0.8 * 2 * 3.54, 1.5 * 2 * 3.54))
    [(functions, timed)] = asked
    assert (functions, timed.time_us) == (["code", "code"], pytest.approx(2 * 3.54))
