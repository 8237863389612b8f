"""`tilewise bench faults`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilewise.tuner.cli.options import common, print_json
from tilewise.tuner.cli.text import output

__all__ = ["faults"]


@click.command()
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def faults(file: str | None, as_json: bool) -> int:
    """Tune with configs among the others that crash, hang and lie, on an NVIDIA GPU.

    Exits with 1 where a sound config got no time, a faulty one not its own reason, or something is left behind.
    """
    from tilewise.tuner.bench.faults import bench_faults
    from tilewise.tuner.cli.progress import working

    with working("faults:") as progress:
        body = {"command": "tilewise bench faults", **bench_faults(progress=progress)}
    if file:
        Path(file).write_text(json.dumps(body, indent=2) + "\n")
    if as_json:
        print_json(body)
    else:
        _show(body)
    sound = body["innocent"]["timed"] == body["configs"]["sound"]
    expected = body["as_expected"] == body["configs"]["faulty"]
    return 0 if sound and expected and not any(body["left_behind"].values()) else 1


def _show(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']}: faults among sound configs", title_justify="left")
    for heading in ("fault", "stored as", "reason", "as expected"):
        table.add_column(heading)
    for row in body["faults"]:
        table.add_row(row["fault"], row["status"], row["reason"], "yes" if row["as_expected"] else "NO")
    console = output()
    console.print(table)
    innocent, configs = body["innocent"], body["configs"]
    console.print(f"{innocent['timed']} of {configs['sound']} sound configs timed; times by those of a clean run:")
    for name in ("clean_again", "among_faults"):
        low, median, high = (innocent[name][key] for key in ("lowest", "median", "highest"))
        console.print(f"  {name.replace('_', ' ')}: {low:.3f} to {high:.3f}, median {median:.3f}")
    left = {what: names for what, names in body["left_behind"].items() if names}
    console.print(f"left behind: {left or 'nothing'}")
