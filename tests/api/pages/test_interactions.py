"""Touch, comparisons, forms of jobs and live lists, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from browsing import DOTS, tab
from playwright.sync_api import Page, Route, expect

from tilewise.db.jobs import Jobs
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.db.workers import Lane, Workers


@pytest.fixture(scope="module")
def place(servers, tune_into, address, records, tmp_path_factory) -> Iterator[tuple[str, str]]:
    """The addresses of a server that runs no jobs, and of its database."""
    store_url = f"sqlite:///{tmp_path_factory.mktemp('interactions') / 'tilewise.db'}"
    wide = replace(
        records[0], config=records[0].config | {"BLOCK_SIZE_N": 1024}, time_us=63.0, verified=False, ordinal=9
    )
    tune_into(store_url, trials=[wide])
    with servers(store_url) as serve:
        yield address(serve("--no-jobs")), store_url


@pytest.fixture
def page(browser, place) -> Iterator[Page]:
    with tab(browser, place[0]) as page:
        page.goto(place[0])
        yield page


def problem(page: Page) -> None:
    page.locator("tbody").get_by_role("link", name="row_reduce").click()
    expect(page.locator("#instrument[data-ready]")).to_be_attached()


def token(place: tuple[str, str]) -> str:
    with open_store(place[1]) as store:
        return Tokens(store.database).create("browser", Right.SUBMIT)


def test_a_tapped_dot_says_its_config_time_and_status(browser, place):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(place[0])
    problem(page)
    chart = page.locator("#charts canvas[tabindex]").first
    page.locator("#charts .place").first.scroll_into_view_if_needed()
    page.locator("#charts canvas[aria-label]").first.wait_for()
    ratio = page.evaluate("devicePixelRatio")
    [x, y] = page.evaluate(DOTS, 0)["dot"][0]
    chart.tap(position={"x": x / ratio, "y": y / ratio})
    details = page.locator("#details")
    expect(details).to_contain_text(re.compile(r"\d+\.\d\d us.*BLOCK_SIZE_M", re.DOTALL))
    box = details.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    context.close()


def test_two_configs_are_chosen_and_shown_side_by_side(page):
    problem(page)
    page.locator("#table tbody").get_by_role("link", name="63.00").click()
    pair = page.get_by_role("region", name="The two configs")
    expect(pair.get_by_role("row", name="time, us")).to_contain_text(re.compile("31.50.*63.00", re.DOTALL))
    expect(pair.locator("tr.differs", has_text="BLOCK_SIZE_N")).to_contain_text(re.compile("256.*1024", re.DOTALL))
    expect(page.locator("main")).to_contain_text("The second takes 2.000 times as long as the first.")
    first = page.get_by_label("Second").locator("option", has_text="52.00").get_attribute("value")
    page.get_by_label("Second").select_option(first)
    page.get_by_role("button", name="Compare").click()
    expect(pair.get_by_role("row", name="time, us")).to_contain_text(re.compile("31.50.*52.00", re.DOTALL))


def test_a_cell_of_the_overview_leads_to_its_problem(page):
    page.get_by_label("Kernel").select_option("row_reduce")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Overview of row_reduce").click()
    cell = page.get_by_role("region", name="Table of shapes").get_by_role("row", name="M=1000,N=8192")
    expect(cell.locator("td.h2")).to_have_text("1.65x")
    cell.get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("row_reduce")


def test_pasted_shapes_become_one_job_with_its_search_and_priority(page, place):
    problem(page)
    page.locator(".crumbs").get_by_role("link", name="row_reduce").click()
    page.get_by_label("Shapes that you may tune").fill("M=64,N=512\nM=1000,N=8192\nM=128,N=512")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Tune those that are not tuned").click()
    form = page.locator("#submit")
    expect(form.get_by_label("Shapes")).to_have_value("M=64,N=512; M=128,N=512")
    form.get_by_label("Search").select_option("random")
    form.get_by_label("Priority").fill("7")
    form.get_by_label("Trials").fill("5")
    form.get_by_label("Token", exact=True).fill(token(place))
    form.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/*")
    with open_store(place[1]) as store:
        job = Jobs(store.database).get(int(page.url.rpartition("/")[2]))
    assert [dict(shape) for shape in job.shapes] == [{"M": 64, "N": 512}, {"M": 128, "N": 512}]
    assert (job.search, job.priority, job.trials, job.device) == ("random", 7, 5, "model:Ascend910B4")


def test_a_token_typed_before_the_script_is_loaded_is_kept(page, place):
    waiting: list[Route] = []
    page.route("**/static/jobs.js", lambda route: waiting.append(route), times=1)
    with page.expect_request("**/static/jobs.js"):
        page.goto(f"{place[0]}/jobs", wait_until="commit")
    form = page.locator("#submit")
    form.get_by_label("Shapes").fill("M=2048,N=512")
    form.get_by_label("Token", exact=True).fill(token(place))
    expect(form.get_by_role("button", name="Tune")).to_be_disabled()
    waiting[0].continue_()
    form.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/*")


def test_the_list_of_jobs_is_narrowed_and_stays_live(page, place):
    page.goto(f"{place[0]}/jobs")
    form = page.locator("#submit")
    form.get_by_label("Kernel").select_option("softmax")
    form.get_by_label("Shapes").fill("M=4096,N=512")
    form.get_by_label("Device").select_option("model:Ascend910B4")
    form.get_by_label("Token", exact=True).fill(token(place))
    form.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/*")
    number = int(page.url.rpartition("/")[2])
    page.goto(f"{place[0]}/jobs")
    page.get_by_label("Kernel").last.select_option("softmax")
    page.get_by_role("button", name="Show").click()
    state = page.locator(f"tr[data-job='{number}'] [data-field=state]")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(state).to_have_text("queued")
    with open_store(place[1]) as store:
        Jobs(store.database).cancel(number)
    expect(state).to_have_text("cancelled")


def test_the_fleet_stays_live(page, place):
    page.clock.install()
    page.goto(f"{place[0]}/fleet")
    expect(page.locator("main")).to_contain_text("No worker is alive")
    with open_store(place[1]) as store:
        workers = Workers(store.database)
        number = workers.register("far/1/a", "far", "1", [Lane("cuda:0", "A chip", "measured")], ["softmax"])
    page.clock.fast_forward(11_000)
    expect(page.get_by_role("region", name="Chips").locator("tbody tr")).to_contain_text("A chip")
    with open_store(place[1]) as store:
        Workers(store.database).leave(number)


@pytest.mark.full
def test_a_page_that_is_not_there_leads_back(browser, place):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(f"{place[0]}/problems/nothing")
    assert answer is not None and answer.status == 404
    page.get_by_role("main").get_by_role("link").first.click()
    expect(page.locator("h1")).to_be_visible()
    context.close()
