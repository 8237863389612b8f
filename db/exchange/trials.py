"""Trials, scopes and results as JSON with all of their fields; unknown fields are absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tilewise.db.evidence import flaw
from tilewise.db.exchange.typed import Config, Count, Moment, Name, Number, Object, Shape, Size, Text, typed
from tilewise.db.records import VERIFIED_BY, Clock, Problem, Result, Scope, Status, Trial

__all__ = ["result_from_json", "scope_from_json", "trial_from_json", "trial_to_json"]


class _Trial(msgspec.Struct, rename={"time_to_beat_us": "settled_us"}):
    """An `evidence` item of the export file; its fields are those of `Trial`."""

    config: Config
    status: Status
    reason: Text
    samples: Count
    verified: bool
    is_default: bool
    search: Name
    facts: Object
    why: Text
    seconds: Number
    created: Moment
    time_us: Number | None = None
    p20_us: Number | None = None
    p80_us: Number | None = None
    low_us: Number | None = None
    high_us: Number | None = None
    dropped: bool | None = None
    method: Name | None = None
    l2: Name | None = None
    time_to_beat_us: Number | None = None
    ordinal: Count | None = None
    seed: Count | None = None


class _Scope(msgspec.Struct):
    kernel: Name
    source_hash: Name
    dims: Shape
    dtype: Name
    device: Name
    clock: Clock
    toolchain: Name
    cores: Size


class _Result(msgspec.Struct):
    """The fields of `Result.to_json` about the winner."""

    config: Config
    samples: Count
    verified: bool
    why: Text
    seconds: Number
    match: Name
    time_us: Number | None = None
    p20_us: Number | None = None
    p80_us: Number | None = None
    evaluations_to_best: Count | None = None
    tuned_at: Moment | None = None
    distance: Number | None = None
    verified_by: str | None = None


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """Return a trial as an `evidence` item of the export file."""
    body = {
        "config": dict(trial.config),
        "status": str(trial.status),
        "reason": trial.reason,
        "time_us": trial.time_us,
        "p20_us": trial.p20_us,
        "p80_us": trial.p80_us,
        "samples": trial.samples,
        "low_us": trial.low_us,
        "high_us": trial.high_us,
        "dropped": trial.dropped or None,
        "method": trial.method or None,
        "l2": trial.l2 or None,
        "settled_us": trial.time_to_beat_us,
        "verified": trial.verified,
        "is_default": trial.is_default,
        "ordinal": trial.ordinal,
        "search": trial.search,
        "seed": trial.seed,
        "facts": dict(trial.facts),
        "why": trial.why,
        "seconds": trial.seconds,
        "created": trial.created.astimezone(UTC).isoformat(),
    }
    return {name: value for name, value in body.items() if value is not None}


def trial_from_json(body: Any) -> Trial:
    """Read the trial that `trial_to_json` wrote; raises `ValueError` if a field is missing, ill-typed or impossible."""
    known = msgspec.structs.asdict(typed(body, _Trial))
    texts = {"dropped": bool(known["dropped"]), "method": known["method"] or "", "l2": known["l2"] or ""}
    return _possible(Trial(**known | texts | {"created": _utc(known["created"])}))


def result_from_json(body: Any) -> Result:
    """Return the result that `Result.to_json` wrote, with the winner's known fields but without counts and default.

    Raises `ValueError` if a field is missing, ill-typed or impossible, or if the result has no config.
    """
    known = typed(body, _Result)
    if known.time_us is not None and known.tuned_at is None:
        raise ValueError("tuned_at is missing")
    winner = Trial(
        config=known.config,
        status=Status.CORRECT,
        time_us=known.time_us,
        p20_us=known.p20_us,
        p80_us=known.p80_us,
        samples=known.samples,
        verified=known.verified,
        facts={VERIFIED_BY: "self"} if known.verified_by == "self" else {},
        ordinal=known.evaluations_to_best,
        why=known.why,
        created=_utc(known.tuned_at) if known.tuned_at and known.time_us is not None else datetime.now(UTC),
    )
    winner = winner if known.time_us is None else _possible(winner)
    return Result(scope_from_json(body), winner, None, {}, known.seconds, known.match, known.distance)


def scope_from_json(body: Any) -> Scope:
    """Return the scope of an entry of the export file. Raises `ValueError` if a field is missing or ill-typed."""
    known = typed(body, _Scope)
    problem = Problem.of(known.kernel, known.dims, known.dtype)
    return Scope(problem, known.source_hash, known.device, known.clock, known.toolchain, known.cores)


def _possible(trial: Trial) -> Trial:
    if found := flaw(trial):
        raise ValueError(found)
    return trial


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{moment.isoformat()} is out of range in UTC") from error
