"""Changed copies of records, for tests."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

R = TypeVar("R")


def changed(record: R, **changes: Any) -> R:
    """Return a scope, question or suggestion with changed fields; fields of its problem may be given too, and flags
    among the dims, as users write them."""
    if "dims" in changes:
        flags = {name: value for name, value in changes["dims"].items() if isinstance(value, bool | str)}
        changes["dims"] = {name: value for name, value in changes["dims"].items() if name not in flags}
        changes["flags"] = {**changes.get("flags", {}), **flags}
    names = ("kernel", "dims", "dtype", "flags")
    problem = dataclasses.replace(record.problem, **{name: changes.pop(name) for name in names if name in changes})
    return dataclasses.replace(record, **{"problem": problem} | changes)
