"""The page in a real browser: Debian's Chromium against a server process."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tilewise.db.records import Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens

CHROMIUM = shutil.which("chromium")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def url(serve, tune, address, records) -> str:
    landscape = list(_landscape(*records))
    tune(trials=landscape)
    tune(kernel="softmax", device="NVIDIA H200", trials=landscape)
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
    """A tab that fails the test on a script error or a request to another host."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith(url) else faults.append(request.url))
    yield page
    context.close()
    assert faults == []


def test_a_user_searches_opens_a_problem_and_copies_its_config(page, url):
    page.goto(url)
    page.get_by_label("Kernel").select_option("row_reduce")
    page.get_by_role("button", name="Search").click()
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="row_reduce").click()
    spreads = len(page.locator("#spreads > div").all())
    assert spreads > 0
    expect(page.locator("#spreads canvas")).to_have_count(spreads)  # drawn once their script has run
    page.locator("button[data-copy=triton]").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("triton.Config({'BLOCK_SIZE_M': 25,")
    page.get_by_label("Across").select_option("BLOCK_SIZE_N")
    page.get_by_label("Down").select_option("BLOCK_SIZE_M")
    page.get_by_role("button", name="Show").click()
    assert "BLOCK_SIZE_M down, BLOCK_SIZE_N across" in page.locator(".heat caption").inner_text()


def test_a_user_asks_for_a_job_and_watches_it_finish(page, url, store_url):
    with open_store(store_url) as store:
        token = Tokens(store.database).create("browser", Right.SUBMIT)
    page.goto(url)
    page.get_by_role("link", name="row_reduce").click()
    page.get_by_role("link", name="Tune this problem again").click()
    assert page.get_by_label("Shape").input_value() == "M=1000,N=8192"
    page.get_by_label("Kernel").select_option("vector_add")
    page.get_by_label("Shape").fill("N=100000")
    page.get_by_label("Device").select_option("model:Ascend910B4")
    page.get_by_label("Trials").fill("3")
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/*")
    state = page.locator("[data-field=state]", has_text=re.compile("done|failed"))
    state.wait_for(timeout=90_000)
    assert state.inner_text() == "done", page.locator("main").inner_text()
    page.get_by_role("link", name="Trials so far").click()
    assert page.locator("h1").inner_text().startswith("vector_add")


def test_a_closed_page_asks_for_the_token_as_a_password(browser, serve, tune, address, store_url):
    tune()
    url = address(serve("--reads", "closed", "--no-jobs"))
    with open_store(store_url) as store:
        tokens = Tokens(store.database)
        password, token = tokens.create("reader", Right.READ), tokens.create("test", Right.SUBMIT)
    context = browser.new_context(http_credentials={"username": "me", "password": password})
    page = context.new_page()
    page.goto(f"{url}/jobs")
    page.get_by_label("Kernel").select_option("vector_add")
    page.get_by_label("Shape").fill("N=4096")
    page.get_by_label("Device").select_option("model:Ascend910B4")
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Tune").click()
    page.wait_for_url("**/jobs/1")
    expect(page.locator("[data-field=state]")).to_have_text("queued")
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.locator("[data-field=state]")).to_have_text("cancelled")  # updated by the event stream
    context.close()


def test_what_a_job_lacks_is_said(page, url):
    page.goto(f"{url}/jobs?dims=M")
    page.get_by_label("Token", exact=True).fill("x")
    page.get_by_role("button", name="Tune").click()
    assert "expected sizes such as M=1000,N=8192" in page.get_by_role("alert").inner_text()


def test_it_is_walked_by_keyboard(page, url):
    page.goto(url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    for _ in range(6):  # four filters, the button, the first problem
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/problems/*")
    assert page.locator("h1").inner_text().startswith("softmax")


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(page, url, scheme):
    """The contrast of every visible text is at least 4.5 (WCAG 2, AA)."""
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    assert page.evaluate(CONTRASTS) == []
    page.locator("tbody a").first.click()
    page.wait_for_url("**/problems/*")  # and its style sheet
    assert page.evaluate(CONTRASTS) == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page, url):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    time = page.locator("tbody tr").first.locator("td", has_text=re.compile(r"^\d+\.\d\d$")).first.bounding_box()
    assert time is not None and time["x"] + time["width"] <= 390  # the time is visible
    page.locator("tbody a").first.click()
    page.locator("canvas").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_the_tables_are_there(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.get_by_role("link", name="row_reduce").click()
    assert page.locator(".winner .figure").inner_text() == "31.50 us, modelled"
    assert page.locator(".heat td.h0").count() >= 1
    assert not page.locator("button[data-copy=triton]").is_visible()
    context.close()


CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const mixed = (a, top, bottom) => [0, 1, 2].map((i) => a * top[i] + (1 - a) * bottom[i]);
  const over = (top, bottom) => mixed(top[3] ?? 1, top, bottom);
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    return own.length === 4 && own[3] === 0 ? ground(element.parentElement) : over(own, ground(element.parentElement));
  };
  const faults = [];
  for (const element of document.querySelectorAll("main *, header *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join("");
    if (!text || !element.checkVisibility() || element.tagName === "SCRIPT") continue;
    const behind = ground(element), ink = over(parse(getComputedStyle(element).color), behind);
    const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`${text}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return faults;
}"""
