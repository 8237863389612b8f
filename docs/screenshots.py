"""Take the pictures of docs/page.md: tune on a modelled part, serve the results, and photograph them in Chromium.

make screenshots
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tilewise.tuner.hardware.ascend_costs import FIGURES
from tilewise.tuner.hardware.calibrated_costs import Calibration
from tilewise.tuner.hardware.calibrated_costs import keep as keep_calibration

IMAGES = Path(__file__).with_name("images")
PART = "Ascend910B4"
TUNINGS = (
    ("row_reduce", "M=4096,N=1024", 20),
    ("row_reduce", "M=256,N=16384", 20),
    ("softmax", "M=4096,N=512", 40),
    ("vector_add", "N=1000000", 20),
)
TWICE = ("row_reduce", "M=1000,N=8192", 60)
"""Tuned by the shipped model and again by a calibrated one, which is another toolchain."""
CALIBRATED = {"launch_us": 1.6, "read_share": 0.97}
"""Figures of a chip that does not exist: nobody has calibrated one."""
UNTUNED = [f"M={m},N={n}" for m in (128, 512, 1500, 2048, 6000) for n in (768, 1024, 4096, 10000)]
TILEWISE = (sys.executable, "-m", "tilewise.cli")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWISE_DB"] = f"sqlite:///{folder}/tilewise.db"
        os.environ["TILEWISE_DATA"] = folder
        tune(*TWICE)
        figures = {name: replace(FIGURES[name], value=value) for name, value in CALIBRATED.items()}
        keep_calibration(Calibration(PART, PART, "none", "2026-11-24", figures))
        for tuning in (*TUNINGS, TWICE):
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
        wide.locator("tbody").get_by_role("link", name="row_reduce").first.click()  # written to last
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
        answer_questions(wide, url)
        phone = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        phone.goto(url)
        phone.locator("tbody").get_by_role("link", name="row_reduce").first.click()
        phone.locator("#charts .place").first.scroll_into_view_if_needed()
        phone.locator("#charts canvas[aria-label]").first.wait_for()
        keep(phone, "phone")
        browser.close()


def answer_questions(page: Page, url: str) -> None:
    """Photograph the answers to the five questions of docs/page.md, clicking from the front page."""
    page.set_viewport_size({"width": 1100, "height": 640})
    problems = page.locator("tbody").get_by_role("link", name="row_reduce")
    for name, link in (("why", "Parameters"), ("limits", "What limits it"), ("changed", "Devices and toolchains")):
        page.goto(url)
        problems.first.click()
        page.get_by_role("link", name=link, exact=True).click()
        if name == "limits":
            page.locator("#explained #parts").wait_for(timeout=120_000)
        keep(page, f"question-{name}")
    page.goto(url)
    problems.last.click()
    keep(page, "question-stale")
    page.goto(f"{url}/?kernel=row_reduce")
    page.get_by_role("link", name="Overview of row_reduce").click()
    page.get_by_label("Shapes that you may tune").fill("\n".join(UNTUNED))
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name="What tuning these shapes may gain").scroll_into_view_if_needed()
    keep(page, "question-gain")


def keep(page: Page, name: str, *, part: str = "") -> None:
    """Photograph what is visible, or a part of the page as a whole."""
    page.wait_for_timeout(1000)  # charts and pictures
    target = page.locator(part) if part else page
    target.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
