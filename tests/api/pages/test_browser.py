"""The page in a real browser: Debian's Chromium against a server process."""

from __future__ import annotations

import functools
import itertools
import re
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace

import pytest
import table_readers
from browsing import DOTS, tab
from playwright.sync_api import Browser, Page, expect
from reports import REPORT, TRACE
from service_fixtures import SCOPE

from tilewise.api.pages import rendering
from tilewise.api.pages.problem.explanation import explanation
from tilewise.db.jobs import Jobs, Request
from tilewise.db.records import Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens


@pytest.fixture(scope="module")
def url(servers, tune_into, address, records, tmp_path_factory) -> Iterator[str]:
    """A server that no test changes."""
    store_url = f"sqlite:///{tmp_path_factory.mktemp('browser') / 'tilewise.db'}"
    with servers(store_url) as serve:
        url = _start(serve, store_url, tune_into, address, records)
        with open_store(store_url) as store:  # for the page of a job
            Jobs(store.database).submit(Request("row_reduce", "a1", [{"M": 64, "N": 512}], "float32", "cuda:99"))
        yield url


@pytest.fixture
def own_url(serve, store_url, tune_into, address, records) -> str:
    return _start(serve, store_url, tune_into, address, records)


def _start(serve, store_url, tune_into, address, records) -> str:
    landscape = list(_landscape(*records))
    tune_into(store_url, trials=landscape)
    tune_into(store_url, kernel="softmax", device="NVIDIA H200", trials=landscape)
    return address(serve())


def _landscape(winner: Trial, refused: Trial) -> Iterator[Trial]:
    """Yield trials over two parameters, each with a best value, and a corner that does not compile."""
    for ordinal, (m, n) in enumerate(itertools.product((4, 8, 16, 25, 32), (128, 256, 512)), 4):
        time_us = 40.0 + abs(m - 16) + n / 64
        config = winner.config | {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n}
        if config == winner.config:
            continue
        if m * n < 32 * 512:
            yield replace(winner, config=config, time_us=time_us, verified=False, ordinal=ordinal)
        else:
            yield replace(refused, config=config, ordinal=ordinal)


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with tab(browser, url) as page:
        yield page


@pytest.fixture
def own_page(browser: Browser, own_url: str) -> Iterator[Page]:
    with tab(browser, own_url) as page:
        yield page


def test_a_user_searches_opens_a_problem_and_copies_its_config(page, url):
    page.goto(url)
    page.get_by_label("Kernel").select_option("row_reduce")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody").get_by_role("link", name="row_reduce").click()
    expect(page.locator("#instrument[data-ready]")).to_be_attached()
    page.locator("button[data-copy=triton]").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("triton.Config({'BLOCK_SIZE_M': 25,")
    page.get_by_label("Across").select_option("BLOCK_SIZE_N")
    page.get_by_label("Down").select_option("BLOCK_SIZE_M")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".heat caption")).to_contain_text("BLOCK_SIZE_M down, BLOCK_SIZE_N across")


@pytest.mark.full
def test_a_user_asks_for_a_job_and_watches_it_finish(own_page, own_url, store_url):
    with open_store(store_url) as store:
        token = Tokens(store.database).create("browser", Right.SUBMIT)
    own_page.goto(own_url)
    own_page.get_by_role("link", name="row_reduce", exact=True).click()
    own_page.get_by_role("link", name="Tune this problem again").click()
    expect(own_page.get_by_label("Shape")).to_have_value("M=1000,N=8192")
    form = own_page.locator("#submit")
    form.get_by_label("Kernel").select_option("vector_add")
    form.get_by_label("Shape").fill("N=100000")
    form.get_by_label("Device").select_option("model:Ascend910B4")
    own_page.get_by_label("Trials").fill("3")
    own_page.get_by_label("Token", exact=True).fill(token)
    own_page.get_by_role("button", name="Tune").click()
    own_page.wait_for_url("**/jobs/*")
    state = own_page.locator("[data-field=state]", has_text=re.compile("done|failed"))
    state.wait_for(timeout=90_000)
    assert state.inner_text() == "done", own_page.locator("main").inner_text()
    own_page.get_by_role("link", name="Trials so far").click()
    expect(own_page.locator("h1")).to_have_text(re.compile("^vector_add"))


def test_a_closed_page_asks_for_the_token_as_a_password(browser, serve, tune, address, store_url):
    tune()
    url = address(serve("--reads", "closed", "--no-jobs"))
    with open_store(store_url) as store:
        tokens = Tokens(store.database)
        password, token = tokens.create("reader", Right.READ), tokens.create("test", Right.SUBMIT)
    context = browser.new_context(http_credentials={"username": "me", "password": password})
    page = context.new_page()
    page.goto(f"{url}/jobs")
    form = page.locator("#submit")
    form.get_by_label("Kernel").select_option("vector_add")
    form.get_by_label("Shape").fill("N=4096; N=8192")
    form.get_by_label("Device").select_option("model:Ascend910B4")
    form.get_by_label("Search").select_option("random")
    form.get_by_label("Priority").fill("7")
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/1")
    expect(page.locator("[data-field=state]")).to_have_text("queued")
    for asked in ("N=4096; N=8192", "random", "7"):
        expect(page.locator("main dd").get_by_text(asked).first).to_be_visible()
    expect(page.locator("[data-field=waits]")).to_contain_text("no worker is alive")
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.locator("[data-field=state]")).to_have_text("cancelled")  # updated by the event stream
    expect(page.locator("[data-field=waits]")).to_be_empty()
    context.close()


def test_what_a_job_lacks_is_said(page, url):
    page.goto(f"{url}/jobs?dims=M")
    page.get_by_label("Token", exact=True).fill("x")
    page.get_by_role("button", name="Tune").click()
    expect(page.get_by_role("alert")).to_contain_text("expected sizes such as M=1000,N=8192")


def test_it_is_walked_by_keyboard(page, url):
    page.goto(url)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    for _ in range(16):  # four filters, the button, the table, its nine headings, the first problem
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/problems/*")
    expect(page.locator("h1")).to_have_text(re.compile("^softmax"))


def opened(page, url) -> None:
    """Open a problem of 14 timed trials and 2 that failed, and wait until its charts answer."""
    page.goto(f"{url}/?kernel=row_reduce")
    page.locator("tbody a").first.click()
    expect(page.locator("#instrument[data-ready]")).to_be_attached()
    page.locator("#charts .place").first.scroll_into_view_if_needed()
    page.locator("#charts canvas[aria-label]").nth(1).wait_for()  # it gets its label when it is drawn


def test_a_dot_says_its_config_time_and_status(page, url):
    opened(page, url)
    [x, y] = page.evaluate(DOTS, 0)["dot"][0]
    chart = page.locator("#charts canvas[tabindex]").first
    chart.hover(position={"x": x, "y": y})
    details = page.locator("#details")
    expect(details).to_contain_text("correct")
    expect(details).to_contain_text(re.compile(r"\d+\.\d\d us.*(the best|x the best).*BLOCK_SIZE_M", re.DOTALL))
    page.mouse.move(2, 2)
    expect(details).to_be_hidden()
    [x, y] = page.evaluate(DOTS, 0)["fault"][0]
    chart.click(position={"x": x, "y": y})
    expect(details).to_contain_text("compile")
    page.mouse.move(2, 2)
    expect(details).to_be_visible()  # pinned
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()


def test_dots_are_walked_by_keyboard_and_read_aloud(page, url):
    opened(page, url)
    page.locator("#charts canvas[tabindex]").first.focus()
    page.keyboard.press("Home")
    expect(page.locator("#spoken")).to_contain_text("31.50 microseconds, correct, verified")
    expect(page.locator("tr.pointed")).to_contain_text("31.50")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("42.00 microseconds, correct")


def test_brushing_marks_the_same_trials_everywhere(page, url):
    opened(page, url)
    chart = page.locator("#charts .chart").first
    box, dots = chart.bounding_box(), page.evaluate(DOTS, 0)["dot"]
    left = min(x for x, _ in dots)
    page.mouse.move(box["x"] + left - 8, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + left + 55, box["y"] + 225, steps=3)
    page.mouse.up()
    expect(page.locator("#shown")).to_contain_text("marked in a chart")
    # The column of the smallest BLOCK_SIZE_M.
    expect(page.locator("#table tbody tr td:nth-child(4)")).to_have_text(["4", "4", "4"])
    other = page.evaluate(DOTS, 1)
    assert other["mark"] and other["faint"] and not other["dot"]
    with page.expect_download() as download:
        page.locator("#download").click()
    assert len(download.value.path().read_text().splitlines()) == 4
    page.get_by_role("button", name="Clear the selection").click()
    expect(page.locator("#table tbody tr").nth(3)).to_be_attached()


def test_the_table_is_sorted_and_filtered_and_the_address_keeps_it(page, url):
    opened(page, url)
    table = page.locator("#table tbody tr")
    page.get_by_label("only within 20% of the best").check()
    expect(table).to_have_count(1)  # 31.5 us; the next takes 42
    page.get_by_label("only within 20% of the best").uncheck()
    page.get_by_label("Status").select_option("compile")
    expect(table.first).to_contain_text("compile")
    expect(table.filter(has_not_text="compile")).to_have_count(0)
    page.locator("#table thead").get_by_role("link", name="BLOCK SIZE N").click()
    page.locator("#table thead").get_by_role("link", name="BLOCK SIZE N").click()
    expect(page).to_have_url(re.compile("status=compile.*sort=-BLOCK_SIZE_N"))
    shown = table.first.inner_text()
    page.reload()
    expect(page.locator("#instrument[data-ready]")).to_be_attached()
    expect(table.first).to_have_text(shown, use_inner_text=True)


def test_what_lies_below_is_laid_out_when_it_comes_near(page, url):
    page.set_viewport_size({"width": 390, "height": 300})  # a browser's "near" grows with the window
    opened(page, url)
    place = page.locator("#provenance")
    is_laid_out = "place => place.checkVisibility({contentVisibilityAuto: true})"
    assert not place.evaluate(is_laid_out)
    place.scroll_into_view_if_needed()
    page.wait_for_function(is_laid_out, arg=place.element_handle())


@pytest.mark.full
def test_parallel_coordinates_are_brushed_along_an_axis(page, url):
    opened(page, url)
    place = page.locator("#parallel .chart")
    page.locator("#parallel").scroll_into_view_if_needed()
    place.locator("canvas[aria-label]").wait_for()
    box = place.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 295)  # the first axis, from below its smallest value
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 265, steps=3)
    page.mouse.up()
    expect(page.locator("#shown")).to_contain_text("marked in a chart")
    values = page.locator("#table tbody tr td:nth-child(4)").all_inner_texts()
    assert set(values) == {"4"}


def test_everything_is_searched_by_keyboard(page, url):
    page.goto(f"{url}/jobs")
    page.keyboard.press("Control+k")
    field, hits = page.get_by_role("searchbox", name="Search"), page.locator("dialog .hits a")
    expect(field).to_be_focused()
    expect(hits.first).to_contain_text("Problems")
    page.keyboard.type("softmax h200")
    expect(hits).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(hits.first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/problems/*")
    expect(page.locator("h1")).to_have_text(re.compile("^softmax"))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_order_of_a_list_is_kept_in_the_address(page, url):
    page.goto(url)
    first = page.locator("tbody tr").first
    page.get_by_role("button", name="Kernel").click()
    expect(first).to_contain_text("row_reduce")
    page.get_by_role("button", name="Kernel").click()
    expect(first).to_contain_text("softmax")
    expect(page).to_have_url(re.compile("order=-Kernel"))
    page.get_by_role("button", name="Kernel").click()
    page.reload()
    expect(first).to_contain_text("row_reduce")


@pytest.mark.full
def test_a_list_renews_itself_in_the_chosen_order(own_page, own_url, tune_into, store_url):
    own_page.clock.install()
    own_page.goto(own_url)
    own_page.get_by_role("button", name="Kernel").click()
    own_page.mouse.click(600, 800)  # away from the list, which is left alone while it has the keyboard
    expect(own_page.locator("tbody tr")).to_have_count(2)
    tune_into(store_url, kernel="a_new_one")
    own_page.clock.fast_forward(11_000)
    expect(own_page.locator("tbody tr")).to_have_count(3)
    expect(own_page.locator("tbody tr").first).to_contain_text("a_new_one")
    expect(own_page.locator("#list")).to_contain_text("3 problems")


def explain(page) -> None:
    """Answer with a report that no compiler has made."""
    shown = {"scope": SCOPE, "sizes": "M=1000,N=8192", "path": "/problems/x", "explained": explanation(REPORT)}
    body = rendering.page("explain.html", here="", **shown).body
    page.route("**/explain", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.route("**/trace.json", lambda route: route.fulfill(json=TRACE))
    page.route("**/timeline.svg", lambda route: route.fulfill(body=REPORT.timeline, content_type="image/svg+xml"))


@pytest.fixture
def course(page, url):
    """The canvas of a timeline, whose explanation and trace do not come from a compiler."""
    page.goto(f"{url}/?kernel=row_reduce")
    explain(page)
    page.locator("tbody a").first.click()
    page.wait_for_url("**/problems/*")
    page.evaluate(
        """async () => {
          document.querySelector('main').insertAdjacentHTML(
            'afterbegin', `<div id="explained" data-from="${location.pathname}/explain"></div>`);
          await import('/static/explained.js');
        }"""
    )
    canvas = page.locator("#course[data-ready] canvas")
    expect(canvas).to_have_attribute("data-to", "100")
    return canvas


def shows(course, start: float, end: float) -> None:
    """Wait until the timeline shows this stretch, in percent, up to what a pixel is worth."""
    latest = time.monotonic() + 30
    while (shown := span(course)) != (pytest.approx(start, abs=0.5), pytest.approx(end, abs=0.5)):
        assert time.monotonic() < latest, shown
        course.page.wait_for_timeout(20)


def span(course) -> tuple[float, float]:
    return float(course.get_attribute("data-from")), float(course.get_attribute("data-to"))


def test_the_timeline_zooms_by_wheel_drag_and_keys(page, course):
    course.focus()
    box = course.bounding_box()
    assert box is not None
    middle = box["x"] + 132 + (box["width"] - 142) / 2
    page.keyboard.press("+")
    shows(course, 25, 75)
    page.keyboard.press("ArrowRight")
    shows(course, 35, 85)
    page.keyboard.press("0")
    shows(course, 0, 100)
    page.mouse.move(middle, box["y"] + 10)
    page.mouse.wheel(0, -100)
    shows(course, 10, 90)
    course.dblclick()
    shows(course, 0, 100)
    page.mouse.move(middle, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(middle + (box["width"] - 142) / 4, box["y"] + 10, steps=3)
    page.mouse.up()
    shows(course, 50, 75)
    page.mouse.move(middle, box["y"] + 38)  # the second lane
    expect(page.locator(".course-tip")).to_contain_text(
        "vadd, 60.000 us from 40.000, on the critical path k.py:3 x + 1"
    )
    page.get_by_role("button", name="Show all").click()
    shows(course, 0, 100)


PERFETTO = """<script>addEventListener("message", ({ data, source, origin }) => {
  if (data === "PING") source.postMessage("PONG", origin);
  else document.title = new TextDecoder().decode(data.perfetto.buffer);
});</script>"""


@pytest.mark.full
def test_perfetto_gets_the_trace_once_it_answers(page, course):
    answer = {"body": PERFETTO, "content_type": "text/html"}
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(**answer))
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open in Perfetto").click()
    expect(opened.value).to_have_title(re.compile("traceEvents.*vadd"))
    expect(page.locator("#timeline-says")).to_have_text("Perfetto has the trace.")


PAGES = {
    "problems": "/",
    "no problems": "/?kernel=none",
    "jobs": "/jobs",
    "a job": "/jobs/1",
    "the fleet": "/fleet",
    "search": "/search?q=row",
    "the API": "/docs",
    "a kernel": "/kernels/row_reduce?shapes=M=100,N=8192",
    "a problem": "/problems/KEY",
    "an explanation": "/problems/KEY/explain",
    "a comparison": "/problems/KEY/compare",
    "a fault": "/nowhere",
}


LOOKS = [("dark", 390), ("light", 1200), ("light", 390), ("dark", 1200)]


def looks():
    """Yield each page in each look; a page is in one of them every time, and in the others in the full tests."""
    for number, (name, path) in enumerate(PAGES.items()):
        for turn, (scheme, width) in enumerate(LOOKS):
            marks = () if turn == number % len(LOOKS) else pytest.mark.full
            yield pytest.param(path, scheme, width, id=f"{name}-{scheme}-{width}", marks=marks)


@pytest.mark.parametrize(("path", "scheme", "width"), list(looks()))
def test_axe_finds_nothing_on_any_page_and_none_is_too_wide(browser, url, path, scheme, width):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    explain(page)
    page.goto(url + path.replace("KEY", SCOPE.key))
    if path.endswith("explain"):
        page.locator("#course").scroll_into_view_if_needed()
        page.locator("#course[data-ready]").wait_for()
    elif path.endswith("KEY"):
        page.locator("#instrument[data-ready]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(axe())
    found = page.evaluate("axe.run()")["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    context.close()


@functools.cache
def axe() -> str:
    """The script of axe-core, out of the wheel of a package that brings it."""
    if (file := table_readers.wheel("axe_playwright_python")) is None:
        pytest.skip("axe is not there; `make wheels` downloads it")
    return zipfile.ZipFile(file).read("axe_playwright_python/axe.min.js").decode()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page, url):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    time = page.locator("tbody tr").first.locator("td", has_text=re.compile(r"^\d+\.\d\d$")).first.bounding_box()
    assert time is not None and time["x"] + time["width"] <= 390  # the time is visible
    page.locator("tbody a").first.click()
    page.locator("#charts .place").first.scroll_into_view_if_needed()
    page.locator("canvas").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_the_tables_are_there(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.get_by_role("link", name="row_reduce", exact=True).click()
    assert page.locator(".winner .figure").inner_text() == "31.50 us, modelled"
    assert page.locator(".heat td.h0").count() >= 1
    assert not page.locator("button[data-copy=triton]").is_visible()
    context.close()


@pytest.mark.parametrize("width", [1200, 390])
def test_what_is_drawn_later_moves_nothing_below_it(browser, url, width):
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(f"{url}/problems/{SCOPE.key}")
    expect(page.locator("#instrument[data-ready]")).to_be_attached()
    height = "document.getElementById('instrument').getBoundingClientRect().height"
    before = page.evaluate(height)
    page.locator("#parallel").scroll_into_view_if_needed()
    page.locator("#parallel canvas").first.wait_for()
    assert page.evaluate(height) == before
    context.close()
