"""Five questions of a kernel engineer, each answered in at most three clicks from the front page, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from browsing import tab
from playwright.sync_api import Locator, Page, expect

UNTUNED = [f"M={m},N={n}" for m in (128, 512, 1500, 2048, 6000) for n in (768, 1024, 4096, 10000)]
FACTS = {"bound_by": "vector", "pipes_us": {"vector": 20.0, "mte2": 9.5}, "programs": 40, "cores": 40, "waves": 1}


@pytest.fixture(scope="module")
def url(servers, tune_into, address, records, tmp_path_factory) -> Iterator[str]:
    """A server whose `row_reduce` was tuned by two toolchains, and at three more shapes by the newer one."""
    store_url = f"sqlite:///{tmp_path_factory.mktemp('questions') / 'tilewise.db'}"
    winner = replace(records[0], facts=FACTS)
    wide, narrow = (
        replace(winner, config=winner.config | {"BLOCK_SIZE_N": n}, time_us=t, verified=False, ordinal=4)
        for n, t in ((1024, 34.65), (64, 63.0))
    )
    then = replace(winner, time_us=30.0, config=wide.config, created=winner.created - timedelta(days=30))
    tune_into(store_url, toolchain="model-0", trials=[then])
    for n, time_us in ((1024, 26.0), (2048, 40.0), (16384, 13.0)):
        tune_into(store_url, dims={"M": 1000, "N": n}, trials=[replace(winner, time_us=time_us)])
    tune_into(store_url, trials=[winner, wide, narrow])
    with servers(store_url) as serve:
        yield address(serve("--no-jobs"))


class Clicks:
    """A tab on the front page that counts its clicks."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def __call__(self, target: Locator) -> None:
        target.click()
        self.count += 1

    def problem(self, *, newest: bool = True) -> None:
        rows = self.page.locator("tbody tr", has_text="M=1000,N=8192").get_by_role("link", name="row_reduce")
        self(rows.first if newest else rows.last)

    def link(self, name: str) -> None:
        self(self.page.get_by_role("link", name=name, exact=True))


@pytest.fixture
def click(browser, url) -> Iterator[Clicks]:
    with tab(browser, url) as page:
        page.goto(url)
        yield Clicks(page)


def test_why_is_this_the_winner(click):
    click.problem()
    click.link("Parameters")
    row = click.page.get_by_role("region", name="Table of parameters").get_by_role("row", name="BLOCK_SIZE_N")
    expect(row).to_be_in_viewport()
    expect(row).to_contain_text(re.compile(r"256.*64 \+100\.0%.*1024 \+10\.0%.*1024 \+10\.0%", re.DOTALL))
    assert click.count == 2


def test_what_limits_it(click):
    click.problem()
    click.link("What limits it")
    limits = click.page.get_by_role("region", name="What limits it")
    expect(limits.get_by_role("heading", name="What limits it")).to_be_in_viewport()
    expect(limits).to_contain_text("40 programs on 40 cores, no tail rows")
    expect(limits.locator(".facts")).to_contain_text(re.compile("Bound by.*vector", re.DOTALL))
    assert click.count == 2


def test_is_it_stale(click):
    click.problem(newest=False)
    expect(click.page.get_by_text("Stale: of an older toolchain. Where it stands")).to_be_in_viewport()
    assert click.count == 1
    click.page.goto(click.page.url.partition("/problems")[0])
    click.problem()
    expect(click.page.get_by_text("Current: of the registered source")).to_be_in_viewport()


def test_what_tuning_twenty_shapes_would_gain(click):
    click.problem()
    click(click.page.locator(".crumbs").get_by_role("link", name="row_reduce"))
    click.page.get_by_label("Shapes that you may tune").fill("\n".join(UNTUNED))
    click(click.page.get_by_role("button", name="Show"))
    gains = click.page.get_by_role("region", name="What tuning these shapes may gain")
    expect(gains.get_by_role("heading")).to_be_in_viewport()
    expect(gains).to_contain_text("times as fast as with their default config (the median; 1.65 to 2.00)")
    expect(gains.locator("tbody tr")).to_have_count(20)
    assert click.count == 3


def test_what_changed_since_the_last_toolchain(click):
    click.problem()
    click.link("Devices and toolchains")
    here = click.page.locator("#elsewhere ~ .scroll tr[aria-current]")
    expect(here).to_be_in_viewport()
    expect(here).to_contain_text(re.compile(r"31\.50.*\+5\.0% slower.*current.*model-1.*another:", re.DOTALL))
    assert click.count == 2
