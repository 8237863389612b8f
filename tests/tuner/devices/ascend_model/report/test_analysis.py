"""Breakdown of a config's modelled time, as rows, lines, a trace for Perfetto and a drawing."""

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree

import jsonschema_rs
import pytest

from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.clock.core import VECTOR_PIPES
from tilewise.tuner.devices.ascend_model.report.analysis import analyse
from tilewise.tuner.devices.ascend_model.report.drawing import drawing
from tilewise.tuner.devices.ascend_model.report.trace import trace_events

NUMBER, WHOLE, TEXT = {"type": "number", "minimum": 0}, {"type": "integer", "minimum": 0}, {"type": "string"}


def kind(phase, required, **properties):
    """Return the schema of an event of one phase, with the fields that Google's "Trace Event Format" gives it."""
    fields = {"ph": {"const": phase}, "pid": WHOLE, "tid": WHOLE, "name": TEXT, "cat": TEXT, "args": {"type": "object"}}
    return {
        "type": "object",
        "properties": {**fields, **properties},
        "required": ["ph", "pid", "tid", "name", *required],
        "additionalProperties": False,
    }


SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "additionalProperties": False,
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "minItems": 1,
            "items": {
                "oneOf": [
                    kind("X", ["cat", "ts", "dur"], ts=NUMBER, dur=NUMBER),
                    kind(
                        "M",
                        ["args"],
                        name={"enum": ["process_name", "thread_name", "thread_sort_index"]},
                        args={
                            "type": "object",
                            "properties": {"name": TEXT, "sort_index": WHOLE},
                            "minProperties": 1,
                            "additionalProperties": False,
                        },
                    ),
                    kind("s", ["cat", "id", "ts"], id=TEXT, ts=NUMBER),
                    kind("f", ["cat", "id", "ts", "bp"], id=TEXT, ts=NUMBER, bp={"const": "e"}),
                ]
            },
        },
    },
}


@pytest.fixture(scope="module")
def headline(row_reduce, problem, rows, target, cache_folder):
    """The headline case's second config, whose sub-tiles leave the vector pipe waiting."""
    return analyse(row_reduce, problem(1000, 8192), rows(25, 4, 2048), target, cache_folder)


@pytest.fixture(scope="module")
def two_launches(target, cache_folder):
    spec = registry.load("sum_all")
    problem = Problem("sum_all", {"N": 2**20}, "float32")
    config = next(c for c in [spec.default(problem, target)] if len(spec.plan(c, problem)) == 2)
    return analyse(spec, problem, config, target, cache_folder)


def test_the_rows_add_up_to_the_time(headline, two_launches):
    for analysis in (headline, two_launches):
        rows = analysis.rows()
        assert sum(rows.values()) == pytest.approx(analysis.time_us)
        assert min(rows.values()) >= 0
    assert len(two_launches.launches) == 2
    assert two_launches.rows()["launch"] == pytest.approx(2 * headline.rows()["launch"])


def test_a_pipe_is_on_the_critical_path_for_no_longer_than_it_is_busy(headline):
    busy = headline.launches[0].time.pipes_us
    assert all(headline.rows()[pipe] <= busy[pipe] + 1e-9 for pipe in VECTOR_PIPES)
    assert headline.rows()["V"] > 0.9 * busy["V"]  # the kernel is bound by it
    assert headline.rows()["MTE2"] < 0.5 * busy["MTE2"]  # most loads are hidden


def test_the_chain_of_the_kernel_is_the_line_that_takes_longest(headline):
    lines = headline.lines()
    assert "tl.sigmoid" in lines[0].place.text
    assert lines[0].path_us > 0.7 * headline.time_us
    for pipe in VECTOR_PIPES:  # some scalar work is the compiler's own, and has no line
        on_lines = sum(line.pipes_us[pipe] for line in lines)
        assert on_lines == pytest.approx(headline.launches[0].time.pipes_us[pipe], rel=0.01, abs=0.01)
    assert sum(line.path_us for line in lines) <= sum(list(headline.rows().values())[:5]) + 1e-9


def test_the_steps_of_the_critical_path_show_the_gap_before_each_sub_tile(headline, two_launches):
    for analysis in (headline, two_launches):
        steps = analysis.critical_path()
        outside = sum(sum(launch.time.overhead_us.values()) for launch in analysis.launches)
        assert sum(step.time_us for step in steps) == pytest.approx(analysis.time_us - outside)
        assert len(steps) < 50
    first_loads = [step for step in headline.critical_path() if step.pipe == "MTE2"]
    assert len(first_loads) == 6 + 4  # one per sub-tile, but all four of the last, whose single row is soon done
    assert all("tl.load(" in step.place.text for step in first_loads)


def test_traffic_is_told_by_buffer(headline):
    moved = headline.traffic()
    assert moved["x_ptr"] == (1000 * 8192 * 4, 0)
    assert moved["w_ptr"] == (40 * 7 * 8192 * 4, 0)  # once per sub-tile
    assert moved["out_ptr"] == (0, 4000)


def test_scratch_between_launches_is_written_and_read(two_launches):
    read, written = two_launches.traffic()["partial_ptr"]
    assert read == written > 0


def test_a_config_that_does_not_compile_has_no_course(row_reduce, problem, rows, target, cache_folder):
    with pytest.raises(Unavailable, match=r"cannot record a timeline of row_reduce: UB overflow: \d+ bits"):
        analyse(row_reduce, problem(1000, 8192), rows(25, 25, 1024), target, cache_folder)


@pytest.mark.parametrize("name", ["headline", "two_launches"])
def test_a_trace_is_of_the_published_form(name, request):
    trace = json.loads(json.dumps(trace_events(request.getfixturevalue(name))))
    jsonschema_rs.validator_for(SCHEMA).validate(trace)


def test_the_schema_refuses_what_is_no_trace():
    schema = jsonschema_rs.validator_for(SCHEMA)
    event = {"ph": "X", "pid": 0, "tid": 1, "name": "vadd", "cat": "V", "ts": 1.0, "dur": 2.0}
    assert schema.is_valid({"traceEvents": [event]})
    for wrong in ({**event, "dur": -1}, {**event, "ph": "Z"}, {k: v for k, v in event.items() if k != "ts"}):
        assert not schema.is_valid({"traceEvents": [wrong]})


def test_a_trace_has_a_lane_a_pipe_on_which_one_thing_happens_at_a_time(headline):
    events = trace_events(headline)["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(lanes) == [0, 1, 2, 3]
    assert lanes[2] == "inward transfers (MTE2)"
    for lane in lanes:
        slices = [event for event in events if event["ph"] == "X" and event["tid"] == lane]
        assert slices
        for before, after in itertools.pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-5
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert last < headline.time_us


def test_arrows_lead_from_one_lane_to_another_and_forwards(headline):
    events = trace_events(headline)["traceEvents"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert starts
    for number, start in starts.items():
        end = ends[number]
        assert start["tid"] != end["tid"]
        assert start["ts"] <= end["ts"]
        for at in (start, end):
            assert any(
                event["ph"] == "X"
                and event["tid"] == at["tid"]
                and event["ts"] <= at["ts"] <= event["ts"] + event["dur"] + 1e-6
                for event in events
            ), "an arrow binds to a slice"


def test_slices_carry_their_line_and_whether_the_end_depends_on_them(headline):
    slices = [event for event in trace_events(headline)["traceEvents"] if event["ph"] == "X"]
    loads = [event for event in slices if event["name"] == "load"]
    assert all("tl.load(" in event["args"]["source"] for event in loads)
    assert {event["args"]["critical"] for event in loads} == {True, False}


def test_the_picture_shows_every_pipe_within_its_frame(headline, two_launches):
    for analysis in (headline, two_launches):
        root = ElementTree.fromstring(drawing(analysis))
        width, height = (float(number) for number in root.get("viewBox").split()[2:])
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert texts.count("vector pipe") == len(analysis.launches)
        assert any(f"of {analysis.launches[0].time.time_us:.2f}" in text for text in texts)
        for path in root.iter("{http://www.w3.org/2000/svg}path"):
            for bar in path.get("d").split("M")[1:]:
                x, rest = bar.split(" ", 1)
                y, across = rest.split("h")[0], rest.split("h")[1].split("v")[0]
                assert 150 <= float(x) < float(x) + float(across) <= width
                assert 0 < float(y) < height


def test_the_times_of_the_picture_are_below_its_bars(headline):
    root = ElementTree.fromstring(drawing(headline))
    texts = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("text-anchor")]
    paths = [path.get("d") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    bars = [re.match(r"\S+ ([\d.]+)h[\d.]+v([\d.]+)", bar) for path in paths for bar in path.split("M")[1:]]
    lowest = max(float(top) + float(height) for top, height in (bar.groups() for bar in bars))
    height = float(root.get("viewBox").split()[3])
    assert texts[0].text == "0.0" and texts[-1].text.endswith(" us")
    assert all(lowest < float(text.get("y")) < height for text in texts)
