"""docs/model.md and the page of published timings match the code and the recorded results."""

import json
import re

import pytest
from places import DOCS

from tilewise.benchmarks.model.model_report import filled, results_page
from tilewise.tuner.hardware.cube_costs import TRUST


def test_the_table_of_figures_is_that_of_the_code():
    page = (DOCS / "model.md").read_text()
    assert filled(page) == page
    with pytest.raises(ValueError, match="0 markers <!-- figures -->"):
        filled("a page without one")


def test_the_page_of_published_timings_is_that_of_the_recorded_results():
    results = DOCS / "results"
    now, earlier = (json.loads((results / f"model-published{which}.json").read_text()) for which in ("", "-earlier"))
    assert results_page(now, earlier) == (results / "model-published.md").read_text()


def test_the_page_tells_between_which_multiples_of_a_modelled_time_the_real_one_lies():
    page = (DOCS / "model.md").read_text()
    rows = re.findall(r"^\| ([a-z -]+) \| .* \| ([0-9.]+) to ([0-9.]+) \|$", page, re.MULTILINE)
    assert {kind: (float(low), float(high)) for kind, low, high in rows} == TRUST
