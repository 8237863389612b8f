"""The tables, and `best` as a view over them.

They use SQLAlchemy Core only, since the ORM would double the start-up time of every `tilewise lookup`. Every look-up
seeks in one of two hashed columns, `scopes.key` (a `Scope`) or `scopes.question_key` (a `Question`); a composite key
would be scanned. Partial indexes separate the current trials from history, so that neither slows the other down.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    column,
    false,
    table,
    text,
)

__all__ = [
    "BEST_VIEW",
    "UtcDateTime",
    "answers",
    "artefacts",
    "best",
    "compilations",
    "helion_records",
    "jobs",
    "metadata",
    "revision",
    "scopes",
    "signed_kernels",
    "suggestions",
    "tokens",
    "trials",
    "workers",
]

_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows itself only in an INTEGER key


class UtcDateTime(TypeDecorator[datetime]):
    """A time stored in UTC and read back with its time zone. SQLite has no time zones and stores it without."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; expected an aware datetime")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(naming_convention={"ck": "ck_%(table_name)s_%(constraint_name)s"})

scopes = Table(
    "scopes",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", Text, nullable=False),
    Column("question_key", Text, nullable=False),
    Column("kernel", Text, nullable=False),
    Column("source_hash", Text, nullable=False),
    Column("dims", Text, nullable=False),  # JSON, in the order of the kernel's dimensions
    Column("dtype", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("clock", Text, nullable=False),
    Column("toolchain", Text, nullable=False),
    Column("cores", BigInteger, nullable=False),
    Column("first_seen", UtcDateTime, nullable=False),
    Column("revision", BigInteger, nullable=False, server_default="0"),  # the revision of the last write to its trials
    CheckConstraint("clock IN ('measured', 'modelled')", name="clock"),
    Index("ix_scopes_key", "key", unique=True),
    Index("ix_scopes_question_key", "question_key"),
    Index("ix_scopes_neighbours", "kernel", "dtype", "device"),
    Index("ix_scopes_device", "device"),
    Index("ix_scopes_revision", "revision"),
)

answers = Table(
    "answers",
    metadata,
    Column("scope_id", _Id, ForeignKey("scopes.id", name="fk_answers_scope_id"), primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),  # the scope's when this was encoded; a later one makes it stale
    Column("format", Integer, nullable=False),  # the encoder's
    Column("body", Text, nullable=False),  # JSON
)
"""The encoded answer of each scope with a winner. They stand apart, so that listings of scopes need not read them."""

revision = Table(
    "revision",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="single"),
)
"""One row that counts the writes. Writers take turns at it, so numbers grow in the order of commits."""


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Return an index over some of the trials.

    The condition is text because SQLite uses a partial index only if the query repeats its condition literally, and
    SQLAlchemy would render a boolean column differently here and there. PostgreSQL's condition, which is the same, is
    only in the migration: naming that dialect here would import it, which costs 40 ms of every start.
    """
    return Index(name, *columns, unique=unique, sqlite_where=text(where))


trials = Table(
    "trials",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("scope_id", _Id, ForeignKey("scopes.id", name="fk_trials_scope_id"), nullable=False),
    Column("current", Boolean, nullable=False),
    Column("config", Text, nullable=False),  # JSON, in the order of the kernel's parameters
    Column("config_key", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time_us", Double),
    Column("p20_us", Double),
    Column("p80_us", Double),
    Column("samples", BigInteger, nullable=False),
    Column("low_us", Double),
    Column("high_us", Double),
    Column("dropped", Boolean, nullable=False, server_default=false()),
    Column("method", Text, nullable=False, server_default=""),
    Column("l2", Text, nullable=False, server_default=""),
    Column("settled_us", Double),
    Column("standing_us", Double),  # settled_us, or else the cost: time_us, or the metric that is the objective
    Column("verified", Boolean, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("ordinal", BigInteger),
    Column("search", Text, nullable=False),
    Column("seed", BigInteger),
    Column("facts", Text, nullable=False),  # JSON
    Column("why", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    CheckConstraint(
        "status IN ('correct', 'constraints', 'compile', 'correctness', 'runtime', 'timeout', 'unmodelled')",
        name="status",
    ),
    CheckConstraint("status <> 'correct' OR time_us IS NOT NULL", name="timed"),
    CheckConstraint("status = 'correct' OR NOT verified", name="verified"),
    CheckConstraint("time_us > 0", name="time"),
    _partial("ix_trials_current", "scope_id", "config_key", where="current", unique=True),
    _partial("ix_trials_fastest", "scope_id", "standing_us", "ordinal", where="current AND verified"),
    _partial("ix_trials_default", "scope_id", where="current AND is_default"),
    _partial("ix_trials_tally", "scope_id", "status", "seconds", where="current"),
    Index("ix_trials_scope", "scope_id", "id"),
)

suggestions = Table(
    "suggestions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", Text, nullable=False),
    Column("kernel", Text, nullable=False),
    Column("dims", Text, nullable=False),  # JSON, as in scopes
    Column("dtype", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("config", Text, nullable=False),  # JSON, as in trials
    Column("origin", Text, nullable=False),
    Index("ix_suggestions_key", "key", unique=True),
    Index("ix_suggestions_kernel", "kernel"),
)
"""Recommended configs, which have no time. They are not trials, and never a best."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False),  # SHA-256; a secret of 256 random bits needs no slower hash
    Column("scope", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("revoked", UtcDateTime),
    CheckConstraint("scope IN ('read', 'submit', 'admin', 'work')", name="scope"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", Text, nullable=False),
    Column("kernel", Text, nullable=False),
    Column("shapes", Text, nullable=False),  # JSON: a list of dimension sizes by name
    Column("dtype", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("trials", BigInteger),
    Column("seconds", Double),
    Column("search", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("progress", Text, nullable=False),  # JSON
    Column("owner", Text, nullable=False),  # the process that runs it
    Column("beats", BigInteger, nullable=False),  # the owner's signs of life
    Column("attempts", BigInteger, nullable=False),  # starts, and so the number of the lease
    Column("stored", BigInteger, nullable=False, server_default="0"),  # new configs tried under this lease
    Column("fruitless", BigInteger, nullable=False, server_default="0"),  # starts in a row that stored none
    Column("cancelling", Boolean, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("started", UtcDateTime),
    Column("finished", UtcDateTime),
    Column("host", Text, nullable=False, server_default=""),  # where it runs or ran last
    Column("lane", Text, nullable=False, server_default=""),  # the device's id there
    Column("toolchain", Text, nullable=False, server_default=""),  # the only one allowed; empty: any
    Column("fresh", Boolean, nullable=False, server_default=false()),
    Column("mark", BigInteger),  # trials recorded before it do not count for a fresh job
    Column("deadline", UtcDateTime),
    Column("token", BigInteger),  # whose request it is
    Column("written", BigInteger, nullable=False, server_default="0"),  # the lease's last numbered write
    CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"),
    _partial("ix_jobs_key", "key", where="state IN ('queued', 'running', 'done')", unique=True),
    Index("ix_jobs_state", "state", "device"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("owner", Text, nullable=False),  # the identity of its process
    Column("host", Text, nullable=False),
    Column("version", Text, nullable=False),  # of tilewise
    Column("lanes", Text, nullable=False),  # JSON: its devices
    Column("kernels", Text, nullable=False),  # JSON: the names of those that it knows
    Column("beats", BigInteger, nullable=False),  # signs of life
    Column("draining", Boolean, nullable=False),
    Column("started", UtcDateTime, nullable=False),
)

signed_kernels = Table(
    "signed_kernels",
    metadata,
    Column("name", Text, primary_key=True),
    Column("file", Text, nullable=False),  # its name, without a folder
    Column("spec", Text, nullable=False),  # the name of the KernelSpec in it
    Column("text", Text, nullable=False),
    Column("digest", Text, nullable=False),  # of all above
    Column("signature", Text, nullable=False),  # of the digest
    Column("signed", UtcDateTime, nullable=False),
)

helion_records = Table(
    "helion_records",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", Text, nullable=False),  # Helion's hash of all that its record depends on
    Column("kernel", Text, nullable=False),  # empty if unknown
    Column("device", Text, nullable=False),
    Column("search_us", Double),
    Column("text", Text, nullable=False),  # JSON, as Helion wrote it
    Column("stored", UtcDateTime, nullable=False),
    Index("ix_helion_records_key", "key", unique=True),
)

artefacts = Table(
    "artefacts",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("key", Text, nullable=False),  # the hash of all that the content depends on
    Column("content", LargeBinary, nullable=False),
    Column("seal", Text, nullable=False),  # an operator's, of the key and the content
    Column("bytes", BigInteger, nullable=False),
    Index("ix_artefacts_key", "key", unique=True),
)

compilations = Table(
    "compilations",
    metadata,
    Column("key", Text, primary_key=True),
    Column("owner", Text, nullable=False),  # the process that compiles
    Column("beats", BigInteger, nullable=False),  # its signs of life
)

BEST_VIEW = """
CREATE VIEW best AS
SELECT winner.id, scopes.id AS scope_id, winner.current, winner.config, winner.config_key, winner.status, winner.reason,
    winner.time_us, winner.p20_us, winner.p80_us, winner.samples, winner.low_us, winner.high_us, winner.dropped,
    winner.method, winner.l2, winner.settled_us, winner.standing_us, winner.verified, winner.is_default, winner.ordinal,
    winner.search, winner.seed, winner.facts, winner.why, winner.seconds, winner.created
FROM scopes JOIN trials AS winner ON winner.id = (
    SELECT trial.id FROM trials AS trial
    WHERE trial.scope_id = scopes.id AND trial.current AND trial.verified
    ORDER BY trial.standing_us, trial.settled_us IS NULL, trial.ordinal IS NULL, trial.ordinal, trial.id
    LIMIT 1
)
"""
"""The winner of each scope: one seek per scope in `ix_trials_fastest`, since only `correct` trials can be verified.

`scope_id` is the scope's own id, not the winner's equal one, so that a query for one scope seeks instead of scanning.
"""

best: Any = table("best", *(column(c.name, c.type) for c in trials.columns))
