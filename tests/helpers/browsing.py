"""Debian's Chromium, and tabs in it, for tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

__all__ = ["CHROMIUM", "DOTS", "chromium", "tab"]

CHROMIUM = shutil.which("chromium")
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

expect.set_options(timeout=30_000)  # as for locators: on a loaded machine 5 s are not enough


DOTS = """(chart) => {
  const canvas = document.querySelectorAll('#charts .chart')[chart].firstChild, { width, height } = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data, found = {};
  for (const name of ['dot', 'faint', 'mark', 'fault']) {
    const ink = document.createElement('canvas').getContext('2d');
    ink.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    ink.fillRect(0, 0, 1, 1);
    const [r, g, b] = ink.getImageData(0, 0, 1, 1).data;
    found[name] = [];
    for (let n = 0; n < data.length; n += 4) {
      const away = Math.abs(data[n] - r) + Math.abs(data[n + 1] - g) + Math.abs(data[n + 2] - b);
      if (away < 5 && data[n + 3] > 250) found[name].push([n / 4 % width, Math.floor(n / 4 / width)]);
    }
  }
  return found;
}"""
"""The pixels of a chart's dots by colour: it is read back, since nothing else says what a canvas shows."""


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
