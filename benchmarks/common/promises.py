"""The outcome of a benchmark that looks for broken promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

__all__ = ["show_promises"]


def show_promises(body: Mapping[str, Any]) -> None:
    """Print a benchmark's figures and its `faults`, a line each, or that there are none."""
    for name, value in body.items():
        if name != "faults":
            click.echo(f"{name.replace('_', ' ')}: {value}")
    for fault in body["faults"]:
        click.echo(f"fault: {fault}")
    if not body["faults"]:
        click.echo("no promise was broken")
