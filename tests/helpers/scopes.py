"""Records like another, for tests."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

R = TypeVar("R")


def changed(record: R, **changes: Any) -> R:
    """A scope, question or suggestion with other fields; those of its problem may be given by name too."""
    names = ("kernel", "dims", "dtype", "flags")
    problem = dataclasses.replace(record.problem, **{name: changes.pop(name) for name in names if name in changes})
    return dataclasses.replace(record, **{"problem": problem} | changes)
