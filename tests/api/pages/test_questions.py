"""What a kernel engineer asks, answered from the front page in at most three clicks, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from browsing import tab
from playwright.sync_api import Browser, Page, expect
from scopes import changed
from service_fixtures import DEFAULT, SCOPE, WINNER

from tilewise.db.sql.sql_store import open_store

BEFORE = replace(SCOPE, toolchain="model-0")
FACTS = {"bound_by": "V", "programs": 40, "cores": 40, "waves": 1, "pipes_us": {"V": 28.5, "MTE2": 9.25}}


class Clicks:
    """A page that starts at the list of problems, and the number of clicks since."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.made = page, 0
        page.goto(url)

    def on(self, role: str, name: str) -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()
        self.made += 1

    def on_problem(self, best: str) -> None:
        """Open the problem of which the list shows this best time."""
        self.page.locator("tbody tr", has_text=best).get_by_role("link").first.click()
        self.made += 1


@pytest.fixture(scope="module")
def url(servers, address, tmp_path_factory) -> Iterator[str]:
    """A server of a problem that two toolchains tuned, the newer one slower and with another winner, and of another
    shape that is tuned too."""
    store_url = f"sqlite:///{tmp_path_factory.mktemp('questions') / 'tilewise.db'}"
    winner = replace(WINNER, facts=FACTS)
    other = replace(WINNER, config=WINNER.config | {"BLOCK_SIZE_N": 128})
    before = replace(other, time_us=28.0), replace(DEFAULT, time_us=50.0)
    with open_store(store_url) as store:
        store.record(BEFORE, [replace(trial, created=trial.created - timedelta(days=9)) for trial in before])
        store.record(SCOPE, [winner, replace(other, time_us=33.0, verified=False), DEFAULT])
        store.record(changed(SCOPE, dims={"M": 300, "N": 1024}), [replace(winner, time_us=8.0), DEFAULT])
    with servers(store_url) as serve:
        yield address(serve())


@pytest.fixture
def clicks(browser: Browser, url: str) -> Iterator[Clicks]:
    with tab(browser, url) as page:
        clicks = Clicks(page, url)
        yield clicks
    assert clicks.made <= 3


def test_why_is_this_the_winner(clicks):
    clicks.on_problem("31.5")
    expect(clicks.page.locator(".card.winner")).to_contain_text(WINNER.why)
    clicks.on("link", "Parameters")
    row = clicks.page.get_by_role("region", name="Table of parameters").get_by_role("row", name="BLOCK_SIZE_N")
    expect(row).to_contain_text("256")  # the winner's value, and what another one costs
    expect(row).to_contain_text("128 +4.8%")
    expect(row.get_by_role("link")).to_have_text("128 +4.8%")  # the fastest with another value


def test_why_it_beats_the_default(clicks):
    clicks.on_problem("31.5")
    clicks.on("link", "Compare the two")
    expect(clicks.page.get_by_role("row", name="BLOCK_SIZE_M").first).to_contain_text("25")
    expect(clicks.page.get_by_role("row", name="BLOCK_SIZE_M").first).to_contain_text("32")


def test_what_limits_it(clicks):
    clicks.on_problem("31.5")
    clicks.on("link", "What limits it")
    limits = clicks.page.get_by_role("region", name="What limits it")
    expect(limits).to_be_in_viewport()
    expect(limits).to_contain_text("vector")


def test_is_it_stale(clicks):
    clicks.on_problem("28.0")
    expect(clicks.page.locator("p.stale")).to_contain_text("Stale")
    expect(clicks.page.locator("p.stale")).to_be_in_viewport()
    clicks.on("link", "Where it stands")
    expect(clicks.page.get_by_role("table").filter(has_text="model-1")).to_be_in_viewport()


def test_is_it_still_current(clicks):
    clicks.on_problem("31.5")
    expect(clicks.page.get_by_text("Current: of the registered source")).to_be_in_viewport()


def test_what_would_tuning_these_twenty_shapes_gain(clicks):
    shapes = [f"M={100 * number},N=8192" for number in range(1, 21)]
    clicks.on_problem("31.5")
    clicks.on("link", "row_reduce")
    clicks.page.get_by_label("Shapes that you may tune").fill("\n".join(shapes))
    clicks.on("button", "Show")
    gains = clicks.page.get_by_role("region", name="What tuning these shapes may gain")
    expect(gains).to_contain_text("1.65 times")
    expect(gains.locator("tbody tr")).to_have_count(20)
    expect(gains.get_by_role("link", name="Tune those that are not tuned")).to_be_visible()


def test_what_changed_since_the_last_toolchain(clicks):
    clicks.on_problem("31.5")
    clicks.on("link", "Devices and toolchains")
    row = clicks.page.get_by_role("row", name="(this page)")
    expect(row).to_be_in_viewport()
    expect(row).to_contain_text("+12.5% slower")
    expect(row).to_contain_text("another:")
