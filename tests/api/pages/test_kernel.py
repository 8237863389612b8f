"""A kernel's overview: its shapes by speed-up, what is stale or waits, and what further shapes may gain."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tilewise.db.records import Clock


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
