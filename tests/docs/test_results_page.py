"""docs/results/README.md has the figures of README.md, docs/ and docstrings as the raw files have them."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
from places import RESULTS, ROOT

from tilewise.benchmarks.claims.claim import RawFiles
from tilewise.benchmarks.claims.commands import MOVED, present_command
from tilewise.benchmarks.claims.constants import MODULES, constants
from tilewise.benchmarks.claims.report import CLAIMS, results_page, without_history
from tilewise.benchmarks.claims.unrecorded import UNRECORDED
from tilewise.benchmarks.verbs import VERBS

FILES = RawFiles(ROOT)
BLOCKS = re.compile(r"```.*?```|<!--.*?-->|\]\([^)]*\)", re.DOTALL)
UNITS = r"\s?(?:%|us\b|ms\b|s\b|x\b|MB\b|GB\b|TB/s|times\b|configs\b|evaluations\b|power-of-two)"
FIGURE = re.compile(rf"(?<!CPython )(?<![\w.`-])(?:\d+\.\d+|\d[\d,]*(?={UNITS}))")
SOURCED = re.compile(
    r"chosen|Programming Guide|data sheet|from the same table|Version of|PTX ISA|white paper|report|Benchmarking",
    re.IGNORECASE,
)


def prose(path):
    return " ".join((ROOT / path).read_text().split())


def test_the_page_is_what_make_docs_would_write_apart_from_commits():
    page = (RESULTS / "README.md").read_text()
    assert without_history(page) == without_history(results_page(ROOT, None))
    assert page != without_history(page)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_is_made_where_the_page_says_with_the_raw_files_figures(claim):
    for place in claim.places:
        assert place.words is None or place.words(FILES.of(claim)) in prose(place.path), place.path
    missing = [path for path in (*claim.about, *claim.files, *claim.earlier) if not (ROOT / path).exists()]
    assert missing == []


def test_every_module_that_a_raw_file_ran_is_named_by_a_present_path():
    texts = [path.read_text() for path in RESULTS.glob("*.json")]
    commands = {command for text in texts for command in re.findall(r"python -m [\w.]+", text)}
    assert {command.split()[-1] for command in commands} >= MOVED.keys()
    gone = [command for command in commands if find_spec(present_command(command).split()[-1]) is None]
    assert gone == []
    assert {verb for text in texts for verb in re.findall(r"tilewise bench (\w+)", text)} <= VERBS.keys()


def test_every_figure_of_the_readme_is_that_of_a_claim():
    text = " ".join(BLOCKS.sub(" ", (ROOT / "README.md").read_text()).split())
    places = [(claim, place) for claim in CLAIMS for place in claim.places if place.path == "README.md"]
    words = [place.words(FILES.of(claim)) for claim, place in places]
    claimed = [figure for each in words if each in text for figure in FIGURE.findall(each)]  # others quote an output
    assert len(claimed) >= 10
    assert sorted(FIGURE.findall(text)) == sorted(claimed)


def test_every_raw_file_has_a_claim():
    """Notes of when marked tests last ran (`test-*.json`) hold no figure."""
    recorded = {str(path.relative_to(ROOT)) for path in RESULTS.glob("*.json") if not path.name.startswith("test-")}
    assert recorded - {path for claim in CLAIMS for path in (*claim.files, *claim.earlier)} == set()


def test_a_figure_without_a_raw_file_stands_where_the_page_says():
    missing = [each.words for each in UNRECORDED if each.words not in prose(each.path)]
    assert missing == []


@pytest.mark.parametrize("module", MODULES)
def test_every_constant_of_a_choice_says_where_its_value_is_from(module):
    found = constants(ROOT, module)
    assert found
    assert [each.names for each in found if not SOURCED.search(each.source)] == []
