"""Debian's Chromium, and tabs in it, for tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

__all__ = ["CHROMIUM", "chromium", "tab"]

CHROMIUM = shutil.which("chromium")
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

expect.set_options(timeout=30_000)  # as for locators: on a loaded machine 5 s are not enough


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, url: str) -> Iterator[Page]:
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
