"""The content of an imported file: results by scope, suggestions, and refused parts with their reasons."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewise.db.records import Clock, Problem, Scope, Shape, Suggestion, Trial

__all__ = ["UNKNOWN_SOURCE", "About", "ImportFile", "Offer", "Refusal", "foreign_scope"]

UNKNOWN_SOURCE = "unknown"
"""The source hash of a kernel whose source the file does not hold. It equals no hash, so no look-up returns it."""


@dataclass(frozen=True, slots=True)
class About:
    """Facts from the caller that another tool's file may lack; empty if the caller does not give them either.

    `key` names the arguments that triton's autotuner was keyed on, in order. `rung` is the dimension that a table is
    indexed by. `cores` is 0 if unknown.
    """

    kernel: str = ""
    device: str = ""
    dtype: str = ""
    dims: Shape = field(default_factory=dict)
    key: tuple[str, ...] = ()
    cores: int = 0
    rung: str = "M"


@dataclass(frozen=True, slots=True)
class Offer:
    """Trials of one scope; `place` is their location in the file."""

    place: str
    scope: Scope
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A part of a file that is refused: its location, and in one line what is wrong with it."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportFile:
    """A file's content, read as a whole before any of it is used."""

    offers: tuple[Offer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


def foreign_scope(about: About, origin: str, *, device: str = "") -> Scope:
    """Return the scope of results that another tool measured. Raises `ValueError` if file and caller lack a fact."""
    device = device or about.device
    given = {"--kernel": about.kernel, "--device": device, "--dtype": about.dtype, "-s": about.dims}
    if missing := [option for option, value in given.items() if not value]:
        raise ValueError(f"it does not identify its problem; give {', '.join(missing)}")
    if about.cores < 1:
        raise ValueError(f"the core count of {device[:60]!r} is not known here; give it with --cores")
    return Scope(
        Problem.of(about.kernel, about.dims, about.dtype),
        UNKNOWN_SOURCE,
        device,
        Clock.MEASURED,
        origin,
        about.cores,
    )
