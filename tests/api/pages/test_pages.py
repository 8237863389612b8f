"""The HTML of the pages: its contents and wording, and the escaping of stored and requested text."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from reports import REPORT, TRACE

from tilewise.api.service import explanations
from tilewise.db.jobs import Jobs
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane
from tilewise.errors import Unavailable


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


@pytest.mark.parametrize("query", ["dims=M", "before=x", "before=7", "before=" + "9" * 30, "before=-1"])
def test_a_bad_filter_is_said_on_the_page(client, query):
    assert 'role="alert"' in page(client, f"/?{query}", 400)


def test_a_problem_shows_winner_default_failures_and_provenance(client, tune):
    tune()
    shown = page(client, only_problem(client))
    for text in ("31.50", "52.00", "us, modelled", "1.65 times", "40 programs on 40 cores", "model-1", "guided search"):
        assert text in shown
    assert "triton.Config({&#39;BLOCK_SIZE_M&#39;: 25" in shown
    assert "/v1/configs/row_reduce?M=1000&amp;N=8192&amp;dtype=float32&amp;device=Ascend910B4" in shown
    assert "tilewise export --format json --kernel=row_reduce" in shown


def test_the_list_begins_with_what_was_written_last(client, store_url, tune_into, tune):
    tune(device="Ascend910B3")
    tune(device="Ascend910B4")
    tune(device="Ascend910B3")
    shown = page(client, "/")
    assert shown.index("Ascend910B3</td>") < shown.index("Ascend910B4</td>")


def test_times_that_nobody_verified_are_shown_as_such(client, store_url):
    """As those of an imported landscape, some of whose configs lack a parameter."""
    timed = [replace(TRIALS[0], config={"B": n, "C": n % 3}, time_us=9.0 + n, verified=False) for n in range(1, 30)]
    odd = replace(TRIALS[0], config={"B": 99}, time_us=8.5, verified=False)
    with open_store(store_url, create=True) as store:
        store.record(Scope(Problem("theirs", {"N": 1}, "float32"), "0", "H", Clock.MEASURED, "t", 132), [*timed, odd])
    assert "30 not verified" in page(client, "/")
    shown = page(client, only_problem(client))
    assert "No config of this problem ran correctly" not in shown
    assert "No config of this problem is verified" in shown
    assert "8.50" in shown
    assert '<h2 id="trials">' in shown
    assert "tilewise export" not in shown
    assert client.get("/v1/configs/theirs?N=1&device=H").status_code == 404


def test_a_replayed_recording_of_a_known_kernel_is_shown_without_what_its_spec_would_say(client, store_url):
    recording = Scope(Problem("row_reduce", {}, "recorded"), "0", "NVIDIA H200", Clock.MEASURED, "replay", 132)
    with open_store(store_url, create=True) as store:
        store.record(recording, TRIALS)
    path = only_problem(client)
    assert "row_reduce" in page(client, path)
    assert "row_reduce" in page(client, f"{path}/compare?a=0&b=1")


@pytest.mark.parametrize("pipes", [7, "text", [1], {"V": "much"}, {"V": None}, {"V": True, "S": [1]}, {"V": {"x": 1}}])
def test_facts_of_any_kind_do_no_harm(client, store_url, pipes):
    facts = {"pipes_us": pipes, "verified_by": pipes, "deep": {"verified_by": 1}}
    scope = Scope(Problem("mine", {"N": 1}, "float32"), "0", "H", Clock.MEASURED, "t", 132)
    with open_store(store_url, create=True) as store:
        store.record(scope, [replace(TRIALS[0], verified=True, facts=facts)])
    assert "agreed with the float64 reference." in page(client, only_problem(client))
    assert client.get("/v1/configs/mine?N=1&device=H").json()["verified_by"] == "reference"


def test_a_problem_says_what_its_output_agreed_with(client, store_url):
    for device, facts in (("NVIDIA H200", {}), ("NVIDIA B200", {"verified_by": "self"})):
        scope = Scope(Problem("mine", {"N": 1}, "float32"), "0", device, Clock.MEASURED, "t", 132)
        with open_store(store_url, create=True) as store:
            store.record(scope, [replace(TRIALS[0], verified=True, facts=facts)])
    both = [page(client, path) for path in set(re.findall(r'href="(/problems/[0-9a-f]{64})"', page(client, "/")))]
    shown = {"B200" if "on NVIDIA B200</small>" in text else "H200": text for text in both}
    assert "agreed with the float64 reference." in shown["H200"]
    assert "agreed with that of the kernel's own default config" in shown["B200"]


def test_the_charts_get_all_trials_as_columns(client, tune):
    tune()
    path = only_problem(client)
    answer = client.get(f"{path}/trials.json")
    drawn = answer.json()
    assert drawn["time_us"] == [31.5, 52.0, None]
    assert [drawn["statuses"][code] for code in drawn["status"]] == ["correct", "correct", "compile"]
    assert (drawn["winner"], drawn["default"], drawn["ordinal"]) == (0, 1, [3, None, 3])
    [rows] = [each for each in drawn["parameters"] if each["name"] == "BLOCK_SIZE_M"]
    assert [rows["values"][code] for code in rows["codes"]] == ["25", "32", "25"]
    assert client.get(f"{path}/trials.json", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    tune(trials=[trial(9.0, 7, BLOCK_SIZE_M=1)])
    assert client.get(f"{path}/trials.json").json()["time_us"][-1] == 9.0


def test_the_table_of_trials_is_filtered_and_sorted_without_scripts(client, tune):
    tune()
    path = only_problem(client)
    assert "1 of 3 trials" in page(client, f"{path}?status=compile")
    assert "2 of 3 trials" in page(client, f"{path}?within=70")
    assert re.findall(r'data-trial="(\d)"', page(client, f"{path}?sort=-BLOCK_SIZE_M"))[0] == "1"
    for query in ("status=x", "within=x", "within=nan", "sort=x", "first=-1", "across=multibuffer&down=multibuffer"):
        assert "Not understood" in page(client, f"{path}?{query}", 400)
    assert "no such problem" in page(client, f"/problems/{'0' * 64}/trials.csv", 404)


def test_trials_are_downloaded_as_a_table_without_formulas(client, tune):
    tune(trials=[replace(trial(None, 9, BLOCK_SIZE_M=2), reason="=1+1")])
    answer = client.get(f"{only_problem(client)}/trials.csv?status=compile&sort=evaluation")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text.splitlines() == [
        "time_us,status,verified,evaluation,reason,BLOCK_SIZE_M,SUB_BLOCK_SIZE_M,BLOCK_SIZE_N,multibuffer",
        ",compile,False,3,,25,25,512,True",
        ",compile,False,9,'=1+1,2,,,",
    ]


def test_two_configs_stand_side_by_side(client, tune, records):
    winner, _ = records
    facts = {"pipes_us": {"V": 15.75, "MTE2": 9}, "programs": 40, "waves": 1, "odd": {"x": [1]}, "note": "<b>"}
    tune(trials=[replace(winner, facts=facts)])
    path = only_problem(client)
    shown = page(client, f"{path}/compare")
    assert "<strong>1.651 times</strong>" in shown  # the default, 52 us, beside the winner, 31.5 us
    rows = dict(re.findall(r'<tr class="differs"><th scope="row">(\w+)</th><td>(.*?)</td>', shown))
    assert rows["BLOCK_SIZE_M"] == "25" and rows["programs"] == "40" and rows["note"] == "&lt;b&gt;"
    assert "vector pipe" in shown and "odd" not in rows
    assert f"{path}/compare?b=0" in page(client, path)
    for query in ("a=9", "b=x", "a=-1", "b=" + "9" * 30):
        assert "expected the number of a trial" in page(client, f"{path}/compare?{query}", 400)


def test_what_the_prior_counts_against_the_winner_is_shown(client, tune, records):
    winner, _ = records
    tune(trials=[replace(winner, config=winner.config | {"BLOCK_SIZE_M": 33}, time_us=20.0)])
    shown = page(client, only_problem(client))
    assert re.search(r"What limits it.*?waves|tail", shown, re.DOTALL)
    assert re.search(r'<th scope="row">\w+</th><td><meter min="1" max="2" value="1\.\d+"', shown)


def test_a_problem_is_followed_over_devices_and_toolchains(client, tune, records):
    winner, _ = records
    tune(device="NVIDIA H200", clock=Clock.MEASURED, toolchain="triton 3.5")
    later = [replace(winner, time_us=33.0, created=datetime(2026, 11, 22, tzinfo=UTC))]
    tune(device="NVIDIA H200", clock=Clock.MEASURED, toolchain="triton 3.6", trials=later)
    tune(device="Ascend910B4", source_hash="of another time")
    paths = set(re.findall(r'href="(/problems/[0-9a-f]{64})"', page(client, "/")))
    shown = [page(client, path) for path in paths]
    assert len(shown) == 3
    for text in shown:
        rows = re.findall(r"<tr[^>]*><td class=\"name\">.*?</tr>", text, re.DOTALL)
        assert ["Ascend910B4" in row for row in rows] == [True, False, False]
        assert "of another version of the source" in rows[0] and "slower" not in rows[0]
        assert "stale: of an older toolchain" in rows[1]
        assert "+4.8% slower" in rows[2] and "current" in rows[2]
    assert sum("Stale: of another version of the source" in text for text in shown) == 1


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


def test_what_cannot_be_explained_is_not_offered(client, tune, problem_of):
    tune(source_hash="another source")
    path = only_problem(client)
    assert f"{path}/explain" not in page(client, path)
    for name in ("explain", "timeline.svg", "trace.json"):
        assert "cannot be explained" in problem_of(client.get(f"{path}/{name}"), 404)["detail"]


@pytest.fixture
def explained(client, tune, monkeypatch):
    """The path of a problem that a report can be made on, and the configs of which one was made."""
    made = []
    tune()
    path = only_problem(client)
    monkeypatch.setattr("tilewise.api.pages.problem.routes.unexplained_reason", lambda scope: "")
    monkeypatch.setattr(explanations, "report", lambda url, scope, config: made.append(config) or REPORT)
    return path, made


def test_an_explanation_is_made_once_and_then_stands_on_the_page(client, explained):
    path, made = explained
    assert f'data-from="{path}/explain"' in page(client, path) and not made  # looking at the page computes nothing
    alone = page(client, f"{path}/explain")
    again = page(client, path)
    assert len(made) == 1 and f'data-from="{path}/explain"' not in again
    for shown in (alone, again):
        for text in ("probably 25.0 to 36.0", "w_ptr is read 40 times", "+35.4%", "UB overflow", "Stable is fastest"):
            assert text in shown
        assert "<strong>A=8</strong> instead of 4: 20.00 us" in shown and "(-10.0%)" in shown
        assert re.search(
            r'class="hot"><td class="number">24.00</td>.*load\(&lt;p&gt;\).*cut &lt;it&gt;.*vector pipe 23', shown
        )
        assert "idle cores</strong>: 4 wait. Remedy: use more programs." in shown
    assert client.get(f"{path}/timeline.svg").text == "<svg/>"
    trace = client.get(f"{path}/trace.json")
    assert trace.json() == TRACE and "row_reduce-" in trace.headers["content-disposition"]


def test_why_there_is_no_explanation_is_remembered_and_said(client, explained, monkeypatch):
    path, tried = explained

    def fail(url, scope, config):
        tried.append(config)
        raise Unavailable("it was tuned with older 1")

    monkeypatch.setattr(explanations, "report", fail)
    for _ in range(2):
        assert client.get(f"{path}/explain").json()["detail"] == "it was tuned with older 1"
    assert len(tried) == 1
    assert "it was tuned with older 1" in page(client, path)


def test_stored_facts_tell_what_limits_a_winner(client, tune, records):
    winner, _ = records
    facts = {"programs": 50, "cores": 40, "waves": 2, "tail_rows": 1, "double_buffered": False, "bound_by": "MTE2"}
    facts |= {"on_chip_bits": {"required": 81920, "available": 163840}}
    tune(trials=[replace(winner, config=winner.config | {"BLOCK_SIZE_M": 20}, time_us=20.0, facts=facts)])
    shown = page(client, only_problem(client))
    for text in ("inward transfers", "10 of 20 KiB (50%)", "in 2 waves; the last wave has 10", "1 tail row a program"):
        assert f"{text}</dd>" in shown or f" {text}</dd>" in shown


def test_the_pages_files_are_served_and_nothing_else(client):
    for name, kind in (("style.css", "text/css"), ("problem.js", "text/javascript"), ("jobs.js", "text/javascript")):
        answer = client.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
    assert client.get("/static/../routes.py").status_code == 404


# The API


def test_the_api_is_a_page_with_every_operation_and_schema(client):
    shown, document = page(client, "/docs"), client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        assert f"<code>{path}</code>" in shown
        assert all(f'id="{operation["operationId"]}"' in shown for operation in methods.values())
    names = set(re.findall(r'href="#schema-(\w+)"', shown))
    assert names and names <= {name for name in document["components"]["schemas"] if f'id="schema-{name}"' in shown}
    assert "http://" not in shown.split("<main")[1] and "src=" not in shown.split("<main")[1]


# Faults


def test_who_asks_for_a_page_gets_errors_as_pages(client, break_database, tune, problem_of):
    tune()
    path, wanted = only_problem(client), {"accept": "text/html,*/*;q=0.8"}
    for method, address, status, title in (
        ("GET", "/nowhere", 404, "Not found"),
        ("GET", "/jobs/x/y", 404, "Not found"),
    ):
        answer = client.request(method, address, headers=wanted)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert f"<h1>{title}</h1>" in answer.text and answer.headers["x-request-id"] in answer.text
        assert "style-src 'self'" in answer.headers["content-security-policy"]
    problem_of(client.get("/nowhere"), 404)
    problem_of(client.get("/v1/nowhere", headers=wanted), 404)
    break_database()
    answer = client.get(path, headers=wanted)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "<h1>The server failed</h1>" in answer.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.app.state.service, "store", None)
        answer = client.get(path, headers=wanted)
    assert answer.status_code == 500 and "The server failed unexpectedly; its log says why." in answer.text


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
    parts = ("Ascend910B1", "Ascend910B4")
    client.app.state.service._lanes = [Lane(f"model:{part}", part, "modelled") for part in parts]
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
        jobs.beat(jobs.claim(jobs.get(number), "me"), {"shapes": 7, "shapes_done": 2, "flipped": flipped})
    shown = page(client, f"/jobs/{number}")
    assert "2 of 7" in shown and "N=5: the former best takes 1.083 times as long" in shown
    assert "N=6: the former best fails" in shown


@pytest.mark.parametrize("number", ["999", "x", "1" * 40, "-1"])
def test_an_unknown_job_is_not_found(client, number):
    assert "no such job" in page(client, f"/jobs/{number}", 404)


@pytest.mark.parametrize(
    ("where", "query", "said"),
    [
        ("", "before={}", "before={}; expected the place from the link to the next page"),
        ("/jobs", "only={}", "only is {}; expected queued, running, done"),
        ("of it", "status={}", "status is {}; expected one of correct, "),
        ("of it", "sort={}", "sort is {}; expected time, evaluation, status or a parameter"),
        ("of it", "within={}", "within is {}; expected percent above the best time, such as 20"),
        ("of it", "first={}", "first is {}; expected the number of trials to skip"),
        ("of it", "across={0}&down={0}", "across and down are both {}; expected two different parameters"),
        ("of it/compare", "a={}", "a is {}; expected the number of a trial, from 0 to 2"),
    ],
)
def test_of_a_wrong_value_thirty_characters_are_shown(client, tune, where, query, said):
    tune()
    path = where.replace("of it", only_problem(client)) or "/"
    refused = html.unescape(page(client, f"{path}?{query.format('x' * 31)}", 400))
    assert said.format(repr("x" * 30)).lower() in refused.lower()


def test_of_the_name_of_an_unknown_kernel_sixty_characters_are_shown(client):
    assert f"No kernel {'x' * 60!r} is registered" in html.unescape(page(client, f"/kernels/{'x' * 61}", 404))
