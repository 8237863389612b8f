"""Seconds until the page of a problem with many trials is usable, in Chromium against a server process.

Each load has a browser context of its own, so that nothing comes from a cache. It opens the page at its charts. The
page is usable once the first chart is drawn, the table has rows, and the browser has painted both.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.benchmarks.common.header import service_header
from tilewise.benchmarks.service.serve import serving
from tilewise.db.exchange.import_file import About, Offer
from tilewise.db.exchange.registry import read
from tilewise.db.records import Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["bench_page"]

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_LOAD_MS = 120_000.0

_WATCH = """
window.usable = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("the page was not usable within two minutes")), 120_000);
  const wanted = ["#instrument[data-ready]", "#charts canvas[aria-label]", "#table tbody tr"];
  const look = () => {
    if (wanted.every((selector) => document.querySelector(selector)))
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
"""
"""A canvas gets its label when it is drawn; what an animation frame changes is painted before the next task."""

_READ = """async () => {
  const usable = await window.usable;
  const [page] = performance.getEntriesByType("navigation");
  const trials = performance.getEntriesByType("resource").find((each) => each.name.endsWith("/trials.json"));
  return {
    first_byte_ms: page.responseStart, page_ms: page.responseEnd, page_bytes: page.decodedBodySize,
    trials_ms: trials.responseEnd, trials_bytes: trials.decodedBodySize, usable_ms: usable,
  };
}"""


def bench_page(
    files: Sequence[str], trials: Sequence[int], *, loads: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run the benchmark and return its JSON, with a row for each file and number of trials.

    Raises `Unavailable` without Chromium and playwright.
    """
    offers = [(file, _largest(file)) for file in files]
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewise-page-") as folder, _Chromium() as browser:
        for number, (file, offer, wanted) in enumerate((*one, many) for one in offers for many in trials):
            say(f"{wanted} trials of {Path(file).name}")
            url = f"sqlite:///{folder}/{number}.db"
            with open_store(url, create=True) as store:
                store.merge([(offer.scope, list(islice(_endless(offer.trials), wanted)))], most_changes=0)
            with serving(url) as (address, *_):
                seen = [_load(browser, f"{address}/problems/{offer.scope.key}#charts") for _ in range(loads)]
            rows.append({"file": Path(file).name, "trials": wanted, **_row(seen)})
    words = [*files, *(f"--trials {many}" for many in trials), f"--loads {loads}"]
    return {**service_header(f"tilewise bench page {' '.join(words)}"), "chromium": browser.version, "rows": rows}


def _largest(file: str) -> Offer:
    """Return the offer of a file that has the most trials."""
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    offers = read(data, path.name, About(), written=datetime.now(UTC)).offers
    if not offers:
        raise UsageError(f"{file} has no trials")
    return max(offers, key=lambda offer: len(offer.trials))


def _endless(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield the trials, then copies of them that are slower and told apart by a parameter of their own."""
    yield from trials
    for copy in count(1):
        for trial in trials:
            time_us = None if trial.time_us is None else trial.time_us * (1 + copy / 100)
            config = {**trial.config, "COPY": copy}
            yield replace(trial, config=config, time_us=time_us, verified=False, ordinal=None, is_default=False)


class _Chromium:
    """The browser, from `with` to its end."""

    def __enter__(self) -> Browser:
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise Unavailable("playwright is not installed; install tilewise[test]") from error
        program = shutil.which("chromium")
        if program is None:
            raise Unavailable("chromium is not installed; install it (Debian package: chromium)")
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=program, args=_FLAGS)
        return self._browser

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()


def _load(browser: Browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(_LOAD_MS)
        page.add_init_script(_WATCH)
        page.goto(address)
        found: dict[str, float] = page.evaluate(_READ)
        return found
    finally:
        context.close()


def _row(seen: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the first load, for which the server reads the trials, the median of the later ones, and all of them."""
    rounded = [{name: round(value, 1) for name, value in load.items()} for load in seen]
    later = rounded[1:] or rounded
    return {
        "first": rounded[0],
        "median": {name: round(statistics.median(load[name] for load in later), 1) for name in rounded[0]},
        "loads": rounded,
    }
