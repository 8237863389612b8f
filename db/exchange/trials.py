"""Trials and scopes as JSON: all of their fields, absent where unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tilewise.db.evidence import flaw
from tilewise.db.exchange.fields import Fields
from tilewise.db.records import Clock, Result, Scope, Status, Trial

__all__ = ["result_from_json", "scope_from_json", "trial_from_json", "trial_to_json"]


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The `evidence` item of the export file."""
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
        "settled_us": trial.settled_us,
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
    """The trial that `trial_to_json` wrote; raises `ValueError` for what is missing, ill-typed or impossible."""
    fields = Fields.of(body)
    trial = Trial(
        config=fields.config("config"),
        status=_status(fields.text("status")),
        reason=fields.text("reason"),
        time_us=fields.optional_number("time_us"),
        p20_us=fields.optional_number("p20_us"),
        p80_us=fields.optional_number("p80_us"),
        samples=fields.integer("samples"),
        low_us=fields.optional_number("low_us"),
        high_us=fields.optional_number("high_us"),
        dropped=fields.optional_flag("dropped"),
        method=fields.optional_text("method"),
        l2=fields.optional_text("l2"),
        settled_us=fields.optional_number("settled_us"),
        verified=fields.flag("verified"),
        is_default=fields.flag("is_default"),
        ordinal=fields.optional_integer("ordinal"),
        search=fields.text("search"),
        seed=fields.optional_integer("seed"),
        facts=fields.mapping("facts"),
        why=fields.text("why"),
        seconds=fields.number("seconds"),
        created=fields.moment("created"),
    )
    if found := flaw(trial):
        raise ValueError(found)
    return trial


def result_from_json(body: Any) -> Result:
    """The result that `Result.to_json` wrote, its winner with what that says of it, without counts and default.

    Raises `ValueError` for what is missing, ill-typed or impossible, and for a result without a config.
    """
    fields = Fields.of(body)
    time = fields.optional_number("time_us")
    winner = Trial(
        config=fields.config("config"),
        status=Status.CORRECT,
        time_us=time,
        p20_us=fields.optional_number("p20_us"),
        p80_us=fields.optional_number("p80_us"),
        samples=fields.integer("samples"),
        verified=fields.flag("verified"),
        ordinal=fields.optional_integer("evaluations_to_best"),
        why=fields.text("why"),
        created=fields.moment("tuned_at") if time is not None else datetime.now(UTC),
    )
    if time is not None and (found := flaw(winner)):
        raise ValueError(found)
    match, distance = fields.text("match"), fields.optional_number("distance")
    return Result(scope_from_json(body), winner, None, {}, fields.number("seconds"), match, distance)


def scope_from_json(body: Any) -> Scope:
    """The scope that an entry of the export file names; raises `ValueError` for what is missing or ill-typed."""
    fields = Fields.of(body)
    clock = fields.text("clock")
    if clock not in list(Clock):
        raise ValueError(f"clock is {clock[:40]!r}; expected {' or '.join(Clock)}")
    return Scope(
        kernel=fields.text("kernel"),
        source_hash=fields.text("source_hash"),
        dims=fields.dims("dims"),
        dtype=fields.text("dtype"),
        device=fields.text("device"),
        clock=Clock(clock),
        toolchain=fields.text("toolchain"),
        cores=fields.integer("cores", least=1),
    )


def _status(text: str) -> Status:
    if text not in list(Status):
        raise ValueError(f"status is {text[:40]!r}; expected one of {', '.join(Status)}")
    return Status(text)
