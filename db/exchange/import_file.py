"""What a file offers: results by scope, suggestions, and what of it is refused and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewise.db.records import Clock, Problem, Scope, Suggestion, Trial

__all__ = ["UNKNOWN_SOURCE", "About", "ImportFile", "Offer", "Refusal", "foreign_scope"]

UNKNOWN_SOURCE = "unknown"
"""The source hash of a kernel whose text is not in the file: it equals none, so that no look-up answers from it."""


@dataclass(frozen=True, slots=True)
class About:
    """What a file of somebody else's does not say, and the caller may; empty where the caller does not either.

    `key` names the arguments that triton's autotuner was keyed on, in its order; `rung` is the dimension that a table
    goes by. `cores` is 0 where unknown.
    """

    kernel: str = ""
    device: str = ""
    dtype: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    cores: int = 0
    rung: str = "M"


@dataclass(frozen=True, slots=True)
class Offer:
    """Trials of one scope; `place` is where in the file they stand."""

    place: str
    scope: Scope
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is not taken from a file: where it stands and what is wrong with it, in one line."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A file, read as a whole before anything of it is used."""

    offers: tuple[Offer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


def foreign_scope(about: About, origin: str, *, device: str = "") -> Scope:
    """The scope of results that somebody else measured. Raises `ValueError` for what neither file nor caller says."""
    device = device or about.device
    said = {"--kernel": about.kernel, "--device": device, "--dtype": about.dtype, "-s": about.dims}
    if missing := [option for option, value in said.items() if not value]:
        raise ValueError(f"it does not say what problem it is of; give {', '.join(missing)}")
    if about.cores < 1:
        raise ValueError(f"nothing is known of {device[:60]!r} here; give its core count with --cores")
    return Scope(
        Problem(about.kernel, dict(about.dims), about.dtype),
        UNKNOWN_SOURCE,
        device,
        Clock.MEASURED,
        origin,
        about.cores,
    )
