"""The search over everything, which Ctrl-K shows as well, and the counts and filters of lists."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tilewise.api.pages.search import Hit, found
from tilewise.db.records import Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Wanted
from tilewise.errors import UsageError


@pytest.fixture
def store(tune_into, store_url):
    tune_into(store_url)
    tune_into(store_url, dims={"M": 4, "N": 8192}, device="NVIDIA H200")
    tune_into(store_url, kernel="softmax", dims={"M": 7, "N": 64}, dtype="float16")
    with open_store(store_url) as store:
        yield store


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("reduce", {"kernel row_reduce", "problem row_reduce M=1000,N=8192", "problem row_reduce M=4,N=8192"}),
        ("h200", {"device NVIDIA H200", "problem row_reduce M=4,N=8192"}),
        ("REDUCE 910", {"problem row_reduce M=1000,N=8192"}),
        ("N=64", {"problem softmax M=7,N=64"}),
        ("row M=4,N=8192 float32", {"problem row_reduce M=4,N=8192"}),
        ("float16", {"problem softmax M=7,N=64"}),
        ("jobs", {"page Jobs"}),
        ("#12", {"job Job 12"}),
        ("nothing of the kind", set()),
        ("0" * 64, set()),
    ],
)
def test_words_find_kernels_devices_problems_and_pages(store, text, names):
    hits = {f"{hit.kind} {hit.name}" for hit in found(store, text)}
    assert {name for name in hits if not name.startswith("kernel ") or name in names} == names


def test_a_key_finds_its_problem(store):
    [scope] = store.scopes(kernel="softmax")
    [hit] = found(store, scope.key)
    assert (hit.name, hit.address) == ("softmax M=7,N=64", f"/problems/{scope.key}")
    assert hit.about == "float16, Ascend910B4, 31.50 us modelled"


def test_a_hit_says_what_it_is_and_where_it_leads(store):
    """The kernel or device itself comes before its problems; the latest problem is the first."""
    [tuned, other] = store.scopes(kernel="row_reduce")
    about = {scope.key: f"float32, {scope.device}, 31.50 us modelled" for scope in (tuned, other)}
    problems = [
        Hit("problem", f"row_reduce {sizes}", about[scope.key], f"/problems/{scope.key}")
        for scope, sizes in ((other, "M=4,N=8192"), (tuned, "M=1000,N=8192"))
    ]
    kernel = Hit("kernel", "row_reduce", "its shapes by speed-up", "/kernels/row_reduce")
    device = Hit("device", "NVIDIA H200", "its problems", "/?device=NVIDIA+H200")
    assert found(store, "row_reduce") == [kernel, *problems]
    assert found(store, "h200") == [device, problems[0]]
    assert found(store, "row_reduce h200") == [problems[0]]


@pytest.mark.parametrize("status", [Status.RUNTIME, Status.CORRECT])
def test_a_problem_without_a_verified_config_is_found_as_such(store, status):
    [scope] = store.scopes(kernel="softmax")
    unlike = replace(scope, source_hash="another")
    time_us = 5.0 if status is Status.CORRECT else None
    store.record(unlike, [Trial({"BLOCK": 1}, status, reason="" if time_us else "it failed", time_us=time_us)])
    [hit] = found(store, unlike.key)
    assert hit.about == "float16, Ascend910B4, not verified"


def test_bad_sizes_are_refused(store, client):
    with pytest.raises(UsageError):
        found(store, "M=x=")
    answer = client.get("/search?q=M=")
    assert answer.status_code == 400 and 'role="alert"' in answer.text


def test_the_search_is_a_page_which_every_page_leads_to(client, tune):
    tune()
    shown = client.get("/search?q=row_reduce").text
    assert re.search(r'<a href="/problems/[0-9a-f]{64}"><span class="kind">problem</span>', shown)
    assert 'value="row_reduce"' in shown
    assert '<a href="/search" id="find"' in client.get("/jobs").text
    assert "Nothing is named like that" in client.get("/search?q=<i>").text and "<i>" not in shown


def test_the_list_counts_its_problems(client, tune_into, store_url):
    for m in range(1, 53):
        tune_into(store_url, dims={"M": m, "N": 8192}, device="A" if m % 2 else "B")
    assert "52 problems</p>" in client.get("/").text
    assert "26 problems with these filters</p>" in client.get("/?device=A").text
    assert "1 problem with these filters</p>" in client.get("/?dims=M=7").text
    with open_store(store_url) as store:
        assert (store.count(Wanted(device="B"), most=10), store.count(Wanted(kernel="x"), most=10)) == (10, 0)


def test_the_list_of_jobs_is_narrowed_by_its_address(client, token_of):
    token = token_of("submit")
    for kernel, shape in (("vector_add", {"N": 5}), ("softmax", {"M": 5, "N": 8})):
        body = {"kernel": kernel, "shapes": [shape], "device": "model:Ascend910B4"}
        assert client.post("/v1/jobs", json=body, headers=token).status_code == 201
    count = {
        query: client.get(f"/jobs?{query}").text.count("<tr data-job")
        for query in ("", "only=queued", "only=done", "of=softmax", "on=model:Ascend910B4", "of=softmax&only=done")
    }
    assert list(count.values()) == [2, 2, 0, 1, 2, 0]
    assert "No job matches." in client.get("/jobs?only=done").text
    assert client.get("/jobs?only=x").status_code == 400
    assert client.get("/jobs?before=2").text.count("<tr data-job") == 1
