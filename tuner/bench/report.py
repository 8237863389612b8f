"""The tables of docs/kernels.md, generated from the specs and the recorded results: `make docs` writes them.

Each stands between `<!-- NAME -->` and `<!-- end -->`; a test compares what stands there with what would be written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.kernels import registry

__all__ = ["filled"]

_TIMES = {
    "tuned_us": "tuned",
    "default_us": "default",
    "eager_us": "eager",
    "compile_us": "`torch.compile`",
    "max_autotune_us": "max-autotune",
}


def filled(page: str, results: Path) -> str:
    """The page with its tables as they are now; `results` is the folder of recorded results."""
    tables = {
        "kernels": _kernels(),
        "h200": _results(json.loads((results / "h200-kernels.json").read_text())),
        "model": _results(json.loads((results / "model-kernels.json").read_text())),
    }
    for name, table in tables.items():
        page, found = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            lambda _, name=name, table=table: f"<!-- {name} -->\n{table}\n<!-- end -->",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
        if found != 1:
            raise ValueError(f"the page has {found} places for the table {name!r}; expected 1")
    return page


def _kernels() -> str:
    rows = []
    for name in registry.names():
        spec = registry.load(name)
        parameters = ", ".join(f"`{p.name}`" for p in spec.parameters)
        rows.append([f"`{name}`", spec.summary.replace("|", "\\|"), ", ".join(spec.dims), parameters])
    return _markdown(["kernel", "computes", "dimensions", "tuned"], rows)


def _results(body: Mapping[str, Any]) -> str:
    shown = [key for key in _TIMES if any(key in row for row in body["rows"])]
    rows = []
    for row in body["rows"]:
        sizes = ", ".join(f"{name}={size}" for name, size in row["dims"].items())
        times = [f"{row[key]:.2f}" if key in row else "" for key in shown]
        share = f"{row['share_of_rate']:.1%}" if "share_of_rate" in row else ""
        variant = row.get("config", {}).get("VARIANT", "")
        rows.append([f"`{row['kernel']}`", sizes, *times, share, variant])
    return _markdown(["kernel", "shape", *(_TIMES[key] for key in shown), "share of the rate", "variant"], rows)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(), page.parent / "results"))
