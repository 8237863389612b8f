"""docs/kernels.md shows all kernels and the recorded results."""

from __future__ import annotations

from places import DOCS

from tilewise.benchmarks.common.cases import SHAPES
from tilewise.benchmarks.gpu.report import filled
from tilewise.kernels import registry


def test_the_tables_are_what_make_docs_would_write():
    page = (DOCS / "kernels.md").read_text()
    assert filled(page, DOCS / "results") == page


def test_every_kernel_has_a_paragraph_and_shapes_to_be_timed_at():
    page = (DOCS / "kernels.md").read_text()
    for name in registry.names():
        assert f"**`{name}`**" in page
        assert len(SHAPES[name]) >= 3
