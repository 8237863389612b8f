"""docs/service.md shows the figures of the recorded results."""

from __future__ import annotations

from places import RESULTS

from tilewise.benchmarks.service.service_report import filled


def test_the_tables_are_what_make_docs_would_write():
    page = (RESULTS.parent / "service.md").read_text()
    assert filled(page, RESULTS) == page
