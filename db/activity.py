"""The number of stored trials, and the rate at which they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from tilewise.db.sql import models
from tilewise.db.sql.database import Database

__all__ = ["last_trial", "trials_a_minute"]

_MOST = 1000
_LAST = select(func.coalesce(func.max(models.trials.c.id), 0))
_LATEST = select(models.trials.c.created).order_by(models.trials.c.id.desc()).limit(_MOST)


def last_trial(database: Database) -> int:
    """Return the number of the trial that was stored last, or 0. Numbers grow."""
    return int(database.fetch_value(_LAST))


def trials_a_minute(database: Database, now: datetime | None = None) -> float:
    """Return the rate of the last minute, from at most the last `_MOST` trials. It is shown, and decides nothing."""
    now = now or datetime.now(UTC)
    recent = [made for (made,) in database.fetch(_LATEST) if now - timedelta(minutes=1) < made <= now]
    if len(recent) < _MOST:
        return float(len(recent))
    span_seconds: float = (now - min(recent)).total_seconds()
    return 60 * len(recent) / max(1e-3, span_seconds)
