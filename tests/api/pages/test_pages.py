"""The HTML of the pages: its contents and wording, and the escaping of stored and requested text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tilewise.api.pages import charts
from tilewise.db.jobs import Jobs
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store


def trial(time_us: float | None, ordinal: int | None, **config) -> Trial:
    status = Status.COMPILE if time_us is None else Status.CORRECT
    return Trial(
        config=config,
        status=status,
        time_us=time_us,
        ordinal=ordinal,
        reason="" if time_us else f"needs {ordinal} bits",
        created=datetime(2026, 11, 20, tzinfo=UTC),
    )


TRIALS = [
    trial(40.0, 2, A=16, B="x"),
    trial(30.0, 1, A=8, B="x"),
    trial(50.0, 3, A=8, B="y"),
    trial(None, 4, A=16, B="y"),
    trial(None, 5, A=32, B="y"),
]


# Figures behind the charts


def test_a_spread_has_a_point_a_timed_trial_and_the_best_of_each_value():
    a, b = charts.spreads(TRIALS)
    assert a == charts.Spread("A", ("8", "16"), (0, 0, 1), (30.0, 50.0, 40.0), (30.0, 40.0))
    assert (b.name, b.labels, b.best_us) == ("B", ("x", "y"), (30.0, 50.0))


def test_the_course_goes_by_evaluation_and_leaves_failures_out():
    assert charts.course(TRIALS) == charts.Course((1, 2, 3), (30.0, 40.0, 50.0), (30.0, 30.0, 30.0))


def test_the_heat_map_tells_slow_from_failed_from_never_tried():
    found = charts.heat_map(TRIALS, "A", "B")
    assert found.columns == ("8", "16", "32")
    (x, on_x), (y, on_y) = found.rows
    assert (x, y) == ("x", "y")
    assert [cell.time_us for cell in on_x] == [30.0, 40.0, None]
    assert [(cell.time_us, cell.failed) for cell in on_y] == [(50.0, 0), (None, 1), (None, 1)]
    assert on_x[0].shade == 0
    assert on_x[2] == charts.Cell()


def test_shades_go_by_rank():
    cells = charts.heat_map([trial(float(10**n), n, A=n, B=0) for n in range(5)], "A", "B").rows[0][1]
    assert [cell.shade for cell in cells] == [0, 2, 4, 6, 8]


# Pages


def page(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def only_problem(client):
    (key,) = set(re.findall(r'href="(/problems/[0-9a-f]{64})"', page(client, "/")))
    return key


def test_an_empty_store_says_how_to_begin(client):
    assert "tilewise tune" in page(client, "/")


def test_the_list_links_to_problems_and_names_the_clock(client, tune):
    tune()
    tune(device="NVIDIA H200", clock=Clock.MEASURED)
    shown = page(client, "/")
    assert shown.index("NVIDIA H200</td>") < shown.index("Ascend910B4</td>")
    assert '<span class="clock measured">' in shown
    assert '<span class="clock modelled">' in shown


@pytest.mark.parametrize(
    ("query", "count"), [("kernel=row_reduce", 1), ("dims=M=1000", 1), ("dims=M=100", 0), ("device=Ascend910B3", 0)]
)
def test_the_list_is_narrowed(client, tune, query, count):
    tune()
    assert page(client, f"/?{query}").count("/problems/") == count


def test_the_list_goes_on_where_a_page_ends(client, store_url, tune_into):
    for m in range(1, 53):
        tune_into(store_url, dims={"M": m, "N": 8192})
    first = page(client, "/?kernel=row_reduce")
    following = re.search(r'rel="next" href="([^"]*)"', first)
    second = page(client, following[1].replace("&amp;", "&"))
    assert (first.count("/problems/"), second.count("/problems/")) == (50, 2)
    assert 'rel="next"' not in second


@pytest.mark.parametrize("query", ["dims=M", "before=x", "before=0", "before=" + "9" * 30, "before=-1"])
def test_a_bad_filter_is_said_on_the_page(client, query):
    assert 'role="alert"' in page(client, f"/?{query}", 400)


def test_a_problem_shows_winner_default_failures_and_provenance(client, tune):
    tune()
    shown = page(client, only_problem(client))
    for text in ("31.50", "52.00", "us, modelled", "1.65 times", "40 programs on 40 cores", "model-1", "guided search"):
        assert text in shown
    assert "triton.Config({&#39;BLOCK_SIZE_M&#39;: 25" in shown
    assert "/v1/configs/row_reduce?M=1000&amp;N=8192&amp;dtype=float32&amp;device=Ascend910B4" in shown
    assert "tilewise export --format json --kernel row_reduce" in shown


def test_a_problem_says_what_its_output_agreed_with(client, store_url):
    for device, facts in (("NVIDIA H200", {}), ("NVIDIA B200", {"verified_by": "self"})):
        scope = Scope(Problem("mine", {"N": 1}, "float32"), "0", device, Clock.MEASURED, "t", 132)
        with open_store(store_url, create=True) as store:
            store.record(scope, [replace(TRIALS[0], verified=True, facts=facts)])
    both = [page(client, path) for path in set(re.findall(r'href="(/problems/[0-9a-f]{64})"', page(client, "/")))]
    shown = {"B200" if "NVIDIA B200" in text else "H200": text for text in both}
    assert "agreed with the float64 reference." in shown["H200"]
    assert "agreed with that of the kernel's own default config" in shown["B200"]


def test_the_figures_of_the_charts_are_in_the_page(client, tune):
    tune()
    drawn = re.search(r'<script type="application/json" id="drawn">(.*?)</script>', page(client, only_problem(client)))
    assert json.loads(drawn[1])["course"]["times_us"] == [31.5]


def test_the_heat_map_takes_other_parameters(client, store_url):
    scope = Scope(Problem("mine", {"N": 1}, "float32"), "0", "NVIDIA H200", Clock.MEASURED, "t", 132)
    with open_store(store_url, create=True) as store:
        store.record(scope, [replace(t, verified=t.status is Status.CORRECT) for t in TRIALS])
    path = only_problem(client)
    assert "B down, A across" in page(client, f"{path}?across=A&down=B")
    assert "A down, B across" in page(client, f"{path}?across=B&down=A")
    assert "no trial" in page(client, f"{path}?across=A&down=C", 404).lower()
    assert page(client, path).count("bits</td>") == 1  # two failures whose reasons differ only in a number


def test_what_is_stored_cannot_write_html(client, tune):
    hostile = "</script><script>alert(1)</script>"
    tune(kernel=hostile, device=hostile, toolchain=hostile, dims={hostile: 1})
    for path in ("/", only_problem(client), f"/?dims={hostile}&dtype={hostile}"):
        assert "<script>alert" not in client.get(path).text


def test_an_unknown_problem_is_not_found(client):
    assert "no such problem" in page(client, "/problems/" + "0" * 64, 404)


def test_a_timeline_that_cannot_be_drawn_is_not_offered(client, tune):
    tune(source_hash="another source")
    path = only_problem(client)
    assert "timeline.svg" not in page(client, path)
    page(client, f"{path}/timeline.svg", 404)


def test_a_timeline_that_can_be_drawn_is_offered(client, tune, records, monkeypatch):
    winner, _ = records
    tune(
        trials=[
            replace(winner, config=winner.config | {"BLOCK_SIZE_M": 20}, time_us=20.0, facts={"pipes_us": {"V": 15.0}})
        ]
    )
    path = only_problem(client)
    monkeypatch.setattr("tilewise.api.pages.routes.is_drawable", lambda scope: scope.key in path)
    assert f"{path}/timeline.svg" in page(client, path)


def test_the_pages_files_are_served_and_nothing_else(client):
    for name, kind in (("style.css", "text/css"), ("page.js", "text/javascript"), ("uplot.js", "text/javascript")):
        answer = client.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
    assert client.get("/static/../routes.py").status_code == 404


# Jobs


def test_the_form_for_a_job_is_filled_from_a_problem(client, tune):
    tune()
    link = re.search(r'href="(/jobs\?[^"]*)"', page(client, only_problem(client)))
    shown = page(client, link[1].replace("&amp;", "&"))
    assert "<option selected>row_reduce</option>" in shown
    assert 'value="M=1000,N=8192"' in shown


def test_the_form_for_a_job_offers_the_device_that_the_command_line_would_choose_and_says_where_tokens_come_from(
    client,
):
    client.app.state.service._devices = {f"model:{part}": part for part in ("Ascend910B1", "Ascend910B4")}
    shown = page(client, "/jobs")
    assert "<option>model:Ascend910B1</option><option selected>model:Ascend910B4</option>" in shown
    assert "tilewise token create NAME --right submit" in shown


def test_a_job_shows_what_was_asked_and_how_far_it_is(client, token_of):
    body = {"kernel": "vector_add", "shapes": [{"N": 5}, {"N": 6}], "device": "model:Ascend910B4"}
    number = client.post("/v1/jobs", json=body, headers=token_of("submit")).json()["id"]
    assert f'href="/jobs/{number}"' in page(client, "/jobs")
    assert "N=5; N=6" in page(client, f"/jobs/{number}")


def test_a_retune_of_all_shapes_shows_what_flipped(client, token_of, store_url):
    body = {"kernel": "vector_add", "shapes": [], "device": "model:Ascend910B4", "search": "retune"}
    number = client.post("/v1/jobs", json=body, headers=token_of("submit")).json()["id"]
    assert "<td>all that are stale</td>" in page(client, "/jobs")
    flipped = [{"dims": {"N": 5}, "cost": 1.0834}, {"dims": {"N": 6}}]
    with open_store(store_url) as store:
        jobs = Jobs(store.database)
        jobs.claim(jobs.get(number), "me")
        jobs.beat(number, "me", {"shapes": 7, "shapes_done": 2, "flipped": flipped})
    shown = page(client, f"/jobs/{number}")
    assert "2 of 7" in shown and "N=5: the former best takes 1.083 times as long" in shown
    assert "N=6: the former best fails" in shown


@pytest.mark.parametrize("number", ["999", "x", "1" * 40, "-1"])
def test_an_unknown_job_is_not_found(client, number):
    assert "no such job" in page(client, f"/jobs/{number}", 404)
