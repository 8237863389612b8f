"""Markdown tables, and their insertion into a page between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["markdown", "placed"]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def placed(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with each text inserted at the marker of its name; raise `ValueError` unless there is one."""
    for name, table in tables.items():
        marker = f"<!-- {name} -->\n"
        if page.count(marker) != 1:
            raise ValueError(f"the page has {page.count(marker)} markers {marker.strip()}; expected 1")
        before, after = page.split(marker)
        page = f"{before}{marker}{table}\n<!-- end -->{after.partition('<!-- end -->')[2]}"
    return page
