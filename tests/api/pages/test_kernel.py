"""A kernel's overview: its shapes by speed-up, what is stale or waits, and what further shapes may gain."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tilewise.api.pages.kernel import Entry, Gain, _expected, _job, _shapes, gains, overview
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.errors import UsageError


def page(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


def test_shapes_are_listed_by_speed_up_with_their_states(client, tune, records):
    winner, _ = records
    tune(dims={"M": 1, "N": 64}, toolchain="model-0")
    tune(dims={"M": 2, "N": 64}, trials=[replace(winner, time_us=10.0, config=winner.config | {"BLOCK_SIZE_M": 1})])
    tune(dims={"M": 3, "N": 64}, source_hash="of another time")
    later = replace(winner, created=datetime(2026, 11, 22, tzinfo=UTC))
    tune(dims={"M": 1, "N": 64}, toolchain="model-2", trials=[later])
    shown = page(client, "/kernels/row_reduce")
    rows = re.findall(r'<th scope="row"><a href="/problems/\w+">(.*?)</a>.*?</tr>', shown, re.DOTALL)
    assert rows == ["M=2,N=64", "M=1,N=64", "M=3,N=64"]
    assert "5.20x" in shown and '"number h0 inset"' in shown
    assert "2 stale, 1 current" in shown and "stale: of another version of the source" in shown
    assert "/jobs?kernel=row_reduce&amp;search=retune" in shown


def test_a_shape_that_is_not_tuned_is_judged_by_its_nearest_tuned_one(client, tune):
    tune()
    tune(dims={"M": 1, "N": 64}, device="NVIDIA H200", clock=Clock.MEASURED)
    shown = page(client, "/kernels/row_reduce?shapes=M=1000,N=8192%0AM=2000,N=8192;X=3")
    assert [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td>((?:not )?tuned|no .*?)</td>", shown)] == [
        "tuned",
        "not tuned",
        "not tuned",
    ]
    assert "no tuned shape has these dimensions" in shown
    assert "became <strong>1.65 times</strong>" in shown and ">0.69<" in shown  # twice as many rows: log 2
    link = re.search(r'<a href="(/jobs\?[^"]*)">Tune those', shown)[1].replace("&amp;", "&")
    form = page(client, link)
    assert 'value="M=2000,N=8192; X=3"' in form and "<option selected>row_reduce</option>" in form


def test_shapes_of_unfinished_jobs_wait(client, token_of):
    body = {"kernel": "vector_add", "shapes": [{"N": 5}, {"N": 6}], "device": "model:Ascend910B4"}
    client.post("/v1/jobs", json=body, headers=token_of("submit"))
    assert "N=6 on model:Ascend910B4" in page(client, "/kernels/vector_add")


@pytest.mark.parametrize("shapes", ["M", "M=0", "M=1;" * 101, "M=1," * 5000])
def test_shapes_that_mean_nothing_are_refused(client, shapes):
    assert 'role="alert"' in page(client, f"/kernels/row_reduce?shapes={shapes}", 400)


def test_an_unknown_kernel_is_not_found(client):
    assert "No kernel" in page(client, "/kernels/theirs", 404)


DAY = datetime(2026, 11, 1, tzinfo=UTC)


def result(dims=None, speed_up=2.0, day=1, counts=None, flags=None, **scope):
    """Return a result that won in 10 us on the given day; without a speed-up nothing won."""
    problem = Problem("mine", dims or {"M": 8, "N": 8}, scope.pop("dtype", "float32"), flags or {})
    fields = {"source_hash": "a1", "device": "H", "clock": Clock.MEASURED, "toolchain": "t", "cores": 1, **scope}
    if speed_up is None:
        return Result(Scope(problem, **fields), None, None, counts or {}, 0.0)
    winner = Trial({"B": 1}, Status.CORRECT, time_us=10.0, verified=True, created=DAY.replace(day=day))
    return Result(Scope(problem, **fields), winner, replace(winner, time_us=10.0 * speed_up), {}, 0.0)


@pytest.mark.parametrize(
    ("speed_up", "shade"),
    [(2.0, 0), (1.99, 2), (1.5, 2), (1.49, 4), (1.25, 4), (1.24, 6), (1.1, 6), (1.09, 8), (1.02, 8), (1.01, None)],
)
def test_a_shade_is_that_of_the_least_speed_up_reached(speed_up, shade):
    assert Entry(result(speed_up=speed_up), "", "").shade == shade
    assert Entry(result(speed_up=None), "", "").shade is None


def test_of_each_problem_the_newest_result_is_listed_by_speed_up():
    older, newer = result(speed_up=9.0, day=1, toolchain="s"), result(speed_up=1.5, day=2)
    failed = result({"M": 1}, None, toolchain="s")
    unverified = result({"M": 2}, None, counts={Status.CORRECT: 1}, toolchain="s")
    stale = result({"M": 3}, 3.0, day=1, toolchain="s")
    other = [result(speed_up=2.0, dtype="int8"), result(speed_up=4.0, clock=Clock.MODELLED)]
    shown = overview([newer, older, failed, unverified, stale, *other])
    assert [(entry.shape, entry.state, entry.result.speed_up) for entry in shown] == [
        ("M=8,N=8", "current", 4.0),
        ("M=3", "of an older toolchain", 3.0),
        ("M=8,N=8", "current", 2.0),
        ("M=8,N=8", "current", 1.5),
        ("M=1", "failed", None),
        ("M=2", "not verified", None),
    ]


def test_the_nearest_shape_with_the_same_names_and_flags_tells_the_gain():
    near, far = result({"M": 16, "N": 8}), result({"M": 8, "N": 64})
    causal, unknown = result({"M": 8, "N": 8}, flags={"causal": True}), result({"M": 8, "N": 8}, None)
    found = gains([far, near, causal, unknown], [{"M": 8, "N": 8}, {"M": 16, "N": 8}, {"M": 8}, {"N": 9, "M": 60}])
    assert [(each.shape, each.here, each.near) for each in found] == [
        ("M=8,N=8", None, near),
        ("M=16,N=8", near, near),
        ("M=8", None, None),
        ("N=9,M=60", None, near),
    ]
    assert [each.distance for each in found[:3]] == [pytest.approx(math.log(2)), 0.0, None]
    assert gains([near, causal], [{"M": 8, "N": 8, "causal": True}])[0].here is causal


def test_what_is_expected_of_untuned_shapes_is_the_range_of_their_neighbours():
    untuned = [Gain("", None, result(speed_up=speed), 1.0) for speed in (1.5, 4.0, 1.0, 2.0)]
    assert _expected([*untuned, Gain("", None, None, None)]) == (1.0, 1.75, 4.0)
    assert _expected([Gain("", None, None, None)]) is None


def test_a_job_for_untuned_shapes_takes_the_device_and_dtype_of_the_nearest():
    modelled = Gain("", None, result(clock=Clock.MODELLED, device="Ascend910B4", dtype="float16"), 1.0)
    assert _job("mine", ["M=1", "M=2"], [Gain("", None, None, None), modelled]) == {
        "kernel": "mine",
        "dims": "M=1; M=2",
        "dtype": "float16",
        "device": "model:Ascend910B4",
    }
    measured = _job("mine", ["M=1"], [Gain("", None, result(), 1.0)])
    assert measured == {"kernel": "mine", "dims": "M=1", "dtype": "float32"}
    assert _job("mine", ["M=1"], []) == {"kernel": "mine", "dims": "M=1"}


def test_shapes_are_read_from_lines_and_between_semicolons():
    assert _shapes(" M=1 ;; M=2,N=3\n\nM=4,causal=true") == [{"M": 1}, {"M": 2, "N": 3}, {"M": 4, "causal": True}]
    assert len(_shapes(";".join(["M=1"] * 100))) == 100
    assert _shapes("M=1" + " " * 9_997) == [{"M": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("M=1;" * 101, "101 shapes are given; expected at most 100"),
        ("M=1" + " " * 9_998, "the shapes have 10001 characters; expected at most 10000"),
        ("M=1;M=0,N=4", "the shape is 'M=0,N=4'; expected sizes of 1 or more"),
    ],
)
def test_too_many_shapes_or_sizes_below_1_are_refused(text, message):
    with pytest.raises(UsageError) as refused:
        _shapes(text)
    assert str(refused.value) == message
