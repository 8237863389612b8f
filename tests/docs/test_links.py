"""Links between the pages of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("landscapes/*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, formed as GitHub forms them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path):
    dead = []
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            dead.append(target)
    assert dead == []


def test_a_code_path_named_in_a_page_exists():
    """Backticked paths such as `tuner/space/search_space.py`, which a move of the module would leave behind."""
    named = re.compile(r"`((?:api|benchmarks|cli|db|docker|docs|kernels|src|tests|tools|tuner)/[\w./-]+\.\w+)`")
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    missing = {
        f"{page.name}: {path}"
        for page in pages
        for path in named.findall(page.read_text())
        if not (ROOT / path).exists() and "NAME" not in path and "FAMILY" not in path
    }
    assert missing == set()
