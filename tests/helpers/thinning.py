"""A pytest plugin: of a test marked `in_part(n)` the gate runs n cases, spread over all; the others are `full`."""

from __future__ import annotations

import pytest

MARKER = "in_part"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases beyond the n as `full`, before tests are chosen by their markers."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(MARKER) is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in cases.values():
        marker = every[0].get_closest_marker(MARKER)
        assert marker is not None
        kept = spread(len(every), *marker.args)
        for index, item in enumerate(every):
            if index not in kept:
                item.add_marker("full")


def spread(count: int, kept: int) -> set[int]:
    """Return the indices of up to `kept` of `count` cases, evenly apart, the first and the last among them."""
    if kept >= count:
        return set(range(count))
    return {round(index * (count - 1) / max(kept - 1, 1)) for index in range(kept)}
