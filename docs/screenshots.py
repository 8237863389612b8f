"""Take the pictures of docs/page.md: tune on a modelled part, serve what came of it, and photograph it in Chromium.

make screenshots
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tilewise.tuner.hardware import calibrated_costs
from tilewise.tuner.hardware.figure import Figure

IMAGES = Path(__file__).with_name("images")
PART = "Ascend910B4"
EARLIER = dict.fromkeys(
    ("bank_conflict", "bank_crossing"), Figure(1, 1, 1, "cycles a repeat", "made up, for a toolchain before this one")
)
TUNINGS = (
    ("row_reduce", "M=300,N=1024", 30),
    ("row_reduce", "M=4000,N=2048", 30),
    ("row_reduce", "M=1000,N=8192", 60),
    ("softmax", "M=4096,N=512", 40),
    ("vector_add", "N=1000000", 20),
)
TILEWISE = (sys.executable, "-m", "tilewise.cli")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TILEWISE_DB": f"sqlite:///{folder}/tilewise.db", "TILEWISE_DATA": f"{folder}/data"}
        calibrated_costs.keep(calibrated_costs.Calibration(PART, "none", "none", "2026-11-01", EARLIER))
        tune(*TUNINGS[2])
        calibrated_costs.forget(PART)
        for tuning in TUNINGS:
            tune(*tuning)
        token = ("token", "create", "pictures", "--right", "submit", "--json")
        made = subprocess.run([*TILEWISE, *token], check=True, stdout=subprocess.PIPE)
        server = subprocess.Popen([*TILEWISE, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            ready = server.stderr.readline()  # "tilewise serves on http://..."
            photograph(ready.split()[-1], json.loads(made.stdout)["token"])
        finally:
            server.terminate()
            server.wait()


def tune(kernel: str, sizes: str, trials: int) -> None:
    command = ("tune", kernel, "-s", sizes, "--device", f"model:{PART}", "--trials", str(trials))
    subprocess.run([*TILEWISE, *command], check=True, stdout=subprocess.DEVNULL)


def photograph(url: str, token: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        wide = browser.new_page(viewport={"width": 1100, "height": 420})
        wide.goto(url)
        keep(wide, "problems")
        answers(browser.new_page(viewport={"width": 1100, "height": 640}), url)
        open_problem(wide)
        wide.get_by_role("link", name="Cost by source line").scroll_into_view_if_needed()
        wide.locator("#course").wait_for(timeout=120_000)
        wide.locator("#course").scroll_into_view_if_needed()
        wide.locator("#course[data-ready]").wait_for()
        wide.locator("#charts .place").first.scroll_into_view_if_needed()
        wide.locator("#charts canvas[aria-label]").first.focus()
        wide.keyboard.press("Home")
        keep(wide, "landscape", part="section[aria-labelledby=landscape]")
        wide.keyboard.press("Escape")
        wide.locator("#details").wait_for(state="hidden")
        keep(wide, "explained", part="section[aria-labelledby=limits]")
        wide.evaluate("scrollTo(0, 0)")
        keep(wide, "problem")
        wide.goto(url)
        wide.keyboard.press("Control+k")
        wide.keyboard.type("row 910")
        wide.locator("dialog .hits a", has_text="problem").first.wait_for()
        keep(wide, "search")
        wide.goto(f"{url}/jobs?kernel=softmax&dims=M=300,N=1024&device=model:Ascend910B4")
        wide.get_by_label("Trials").fill("30")
        wide.get_by_label("Token", exact=True).fill(token)
        wide.get_by_role("button", name="Tune").click()
        wide.wait_for_url("**/jobs/*")
        wide.locator("[data-field=best]", has_text=".").wait_for(timeout=120_000)
        keep(wide, "job")
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(url)
        open_problem(phone)
        phone.locator("#charts .place").first.scroll_into_view_if_needed()
        phone.locator("#charts canvas[aria-label]").first.wait_for()
        keep(phone, "phone")
        browser.close()


def open_problem(page: Page, *, earlier: bool = False) -> None:
    """Open the problem that two toolchains tuned: the present one, or the one before, which the list has last."""
    rows = page.locator("tbody tr", has_text="8192").get_by_role("link", name="row_reduce")
    (rows.last if earlier else rows.first).click()


def answers(page: Page, url: str) -> None:
    """Photograph the answers to the five questions of docs/page.md, each with the clicks that it names."""
    page.goto(url)
    open_problem(page)
    keep(page, "why")
    page.get_by_role("link", name="What limits it").click()
    page.get_by_text("Cost by source line").first.wait_for()
    keep(page, "limits")
    page.get_by_role("link", name="Devices and toolchains").click()
    keep(page, "changed")
    page.goto(url)
    open_problem(page, earlier=True)
    keep(page, "stale")
    page.goto(url)
    open_problem(page)
    page.locator(".crumbs").get_by_role("link", name="row_reduce").click()
    shapes = (f"M={rows},N={cols}" for rows in range(500, 5500, 500) for cols in (1024, 8192))
    page.get_by_label("Shapes that you may tune").fill("\n".join(shapes))
    page.get_by_role("button", name="Show").click()
    keep(page, "gain")


def keep(page: Page, name: str, *, part: str = "") -> None:
    """Photograph what is visible, or a part of the page as a whole."""
    page.wait_for_timeout(1000)  # charts and pictures
    target = page.locator(part) if part else page
    target.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
