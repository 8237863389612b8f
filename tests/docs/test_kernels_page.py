"""docs/kernels.md shows the kernels and results that there are."""

from __future__ import annotations

from pathlib import Path

from tilewise.kernels import registry
from tilewise.tuner.bench.cases import SHAPES
from tilewise.tuner.bench.report import filled

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_what_make_docs_would_write():
    page = (DOCS / "kernels.md").read_text()
    assert filled(page, DOCS / "results") == page


def test_every_kernel_has_a_paragraph_and_shapes_to_be_timed_at():
    page = (DOCS / "kernels.md").read_text()
    for name in registry.names():
        assert f"**`{name}`**" in page
        assert len(SHAPES[name]) >= 3
