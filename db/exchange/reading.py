"""What a file offers: results by scope, suggestions, and what of it is refused and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewise.db.records import Scope, Suggestion, Trial

__all__ = ["About", "Offer", "Reading", "Refusal"]


@dataclass(frozen=True, slots=True)
class About:
    """What a file of somebody else's does not say, and the caller must; empty where the caller does not either.

    `key` names the arguments that triton's autotuner was keyed on, in its order. `cores` is 0 where unknown.
    """

    kernel: str = ""
    device: str = ""
    dtype: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    cores: int = 0


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
class Reading:
    """A file, read as a whole before anything of it is used."""

    offers: tuple[Offer, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
