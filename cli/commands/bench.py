"""`tilewise bench`: the project's own benchmarks, which are part of a checkout but not of a wheel."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

from tilewise.cli.verbs import Verb, VerbGroup
from tilewise.errors import UsageError

__all__ = ["bench"]

_PACKAGE = "tilewise.benchmarks"


def _verbs() -> Mapping[str, Verb]:
    try:
        verbs: Mapping[str, Verb] = importlib.import_module(f"{_PACKAGE}.verbs").VERBS
    except ModuleNotFoundError as error:
        if error.name != _PACKAGE:
            raise
        raise UsageError("benchmarks run from a checkout: git clone the project and `pip install -e .` there") from None
    return verbs


@click.group(cls=VerbGroup, package=_PACKAGE, verbs=_verbs)
def bench() -> None:
    """Run the project's own benchmarks."""
