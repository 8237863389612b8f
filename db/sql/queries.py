"""The store's SELECTs. Each is one statement, so it sees one state of the database without a transaction."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    TextualSelect,
    and_,
    bindparam,
    column,
    func,
    literal_column,
    select,
    text,
    tuple_,
    type_coerce,
)

from tilewise.db.records import Status
from tilewise.db.sql.encoded_result import DEFAULT_COLUMNS, WINNER_COLUMNS
from tilewise.db.sql.models import answers, best, revision, scopes, suggestions, trials
from tilewise.db.sql.rows import FIGURE_COLUMNS, SCOPE_COLUMNS, SUGGESTION_COLUMNS, TRIAL_COLUMNS

__all__ = [
    "ANSWER",
    "ANSWERED",
    "ANSWERS",
    "ANSWER_OF_SOURCE",
    "CHANGED",
    "CURRENT",
    "CURRENT_ANSWERS",
    "DEVICES",
    "DRAWN",
    "ENCODED",
    "ENCODED_OF_SOURCE",
    "FIGURES",
    "GROUPS",
    "KERNELS",
    "LOOKUP",
    "LOOKUP_OF_SOURCE",
    "NEWEST",
    "NEXT_FAMILY",
    "PAGES",
    "RESULT",
    "REVISION",
    "SCOPE",
    "SIZES",
    "SUGGESTIONS",
    "TRIAL",
    "TRIALS",
    "TRIALS_OF",
    "TRIALS_OF_STATUS",
    "VERIFIED",
    "WRITTEN",
    "WRITTEN_AT",
    "count_of_scopes",
    "encoded_of",
    "page_of_results",
    "page_of_scopes",
]

_PAGE_LENGTH = 500
_PAGE_OF_SIZES = 10_000  # parsing a page takes 4 ms, for which other threads may have to wait

CURRENT = text("trials.current")  # must be literally the condition of the partial indexes

_tally = trials.alias("tally")


def _total(figure: ColumnElement[Any], *of: ColumnElement[bool]) -> ColumnElement[Any]:
    """Select a figure over the scope's current trials, read from `ix_trials_tally` alone."""
    counted = select(figure).select_from(_tally).where(_tally.c.scope_id == scopes.c.id, text("tally.current"), *of)
    return counted.scalar_subquery()


def _results(
    *, with_winner: bool, winners: Iterable[str] = TRIAL_COLUMNS, defaults: Iterable[str] = TRIAL_COLUMNS
) -> Select[Any]:
    """Select rows for `read_result` with all columns of winner and default, of all scopes or of those with a winner."""
    winner, default, baseline = trials.alias("winner"), trials.alias("default_trial"), trials.alias("baseline")
    winner_id = select(best.c.id).where(best.c.scope_id == scopes.c.id).scalar_subquery()
    default_id = select(func.max(baseline.c.id)).where(
        baseline.c.scope_id == scopes.c.id, text("baseline.current AND baseline.is_default")
    )
    return (
        select(
            *(scopes.c[name] for name in SCOPE_COLUMNS),
            *(winner.c[name] for name in winners),
            *(default.c[name] for name in defaults),
            *(_total(func.count(), _tally.c.status == literal_column(f"'{status}'")) for status in Status),
            # Any status matches. Without this condition SQLite uses an index without `seconds` and reads every trial.
            _total(func.sum(_tally.c.seconds), _tally.c.status >= literal_column("''")),
        )
        .select_from(scopes)
        .join(winner, winner.c.id == winner_id, isouter=not with_winner)
        .join(default, default.c.id == default_id.scalar_subquery(), isouter=True)
    )


def _answers(**columns: Iterable[str]) -> Select[Any]:
    found = _results(with_winner=True, **columns).where(scopes.c.question_key == bindparam("key"))
    newest = text("winner.created DESC")
    return found.order_by(scopes.c.clock, newest, scopes.c.id.desc())  # "measured" sorts before "modelled"


RESULT = _results(with_winner=False).where(scopes.c.key == bindparam("key"))
ANSWERS = _answers()
LOOKUP = ANSWERS.limit(1)
LOOKUP_OF_SOURCE = LOOKUP.where(scopes.c.source_hash == bindparam("source_hash"))

# SQLite copies every column to the sorter: the widest row takes 33 us, and this one 19 us.
ENCODED = _answers(winners=WINNER_COLUMNS, defaults=DEFAULT_COLUMNS).limit(literal_column("1"))
ENCODED_OF_SOURCE = ENCODED.where(scopes.c.source_hash == bindparam("source_hash"))


def encoded_of(ids: BindParameter[Any]) -> Select[Any]:
    """Select rows for `encode_row`, each followed by the id of its scope, of the scopes among these with a winner."""
    found = _results(with_winner=True, winners=WINNER_COLUMNS, defaults=DEFAULT_COLUMNS)
    return found.add_columns(scopes.c.id).where(scopes.c.id.in_(ids))


_is_current = and_(
    answers.c.scope_id == scopes.c.id,
    answers.c.revision == scopes.c.revision,
    answers.c.format == bindparam("format", type_=Integer),
)

# A body for each scope of the question, None where it is not current; of two, either might be the better.
ANSWER = (
    select(answers.c.body)
    .select_from(scopes)
    .join(answers, _is_current, isouter=True)
    .where(scopes.c.question_key == bindparam("key"))
    .limit(literal_column("2"))
)
ANSWER_OF_SOURCE = ANSWER.where(scopes.c.source_hash == bindparam("source_hash"))

# A page of all scopes, with the scope of the answer again where it is current. (A filter on it would have PostgreSQL
# read all answers for each page.)
ANSWERED = (
    select(scopes.c.id, answers.c.scope_id)
    .join(answers, and_(_is_current, answers.c.scope_id > bindparam("last")), isouter=True)
    .where(scopes.c.id > bindparam("last"))
    .order_by(scopes.c.id)
    .limit(bindparam("most", type_=Integer))
)

# Rows for `encode_row`, each followed by the answer that is stored and its scope.
CURRENT_ANSWERS = (
    _results(with_winner=False, winners=WINNER_COLUMNS, defaults=DEFAULT_COLUMNS)
    .add_columns(answers.c.body, answers.c.scope_id)
    .join(answers, _is_current)
    .where(answers.c.scope_id > bindparam("last"), scopes.c.id > bindparam("last"))
    .order_by(answers.c.scope_id)
    .limit(bindparam("most", type_=Integer))
)

SCOPE = select(*(scopes.c[name] for name in SCOPE_COLUMNS)).where(scopes.c.key == bindparam("key"))


VERIFIED = (
    select(*(scopes.c[name] for name in SCOPE_COLUMNS), *(trials.c[name] for name in TRIAL_COLUMNS))
    .join(trials, trials.c.scope_id == scopes.c.id)
    .where(scopes.c.question_key == bindparam("key"), trials.c.verified)
    .order_by(trials.c.id)
)

TRIALS_OF = (
    select(trials.c.id, trials.c.current, *(trials.c[name] for name in TRIAL_COLUMNS))
    .where(trials.c.scope_id == bindparam("scope"), trials.c.id > bindparam("after"))
    .order_by(trials.c.id)
    .limit(bindparam("most", type_=Integer))
)

TRIALS_OF_STATUS = TRIALS_OF.where(trials.c.status == bindparam("status"))


@functools.cache
def page_of_scopes(columns: frozenset[str], dims: int) -> Select[Any]:
    """Select scopes from the id `first` on, each preceded by its id, and filtered like `page_of_results`."""
    page = select(scopes.c.id, *(scopes.c[name] for name in SCOPE_COLUMNS)).where(scopes.c.id >= bindparam("first"))
    return _narrowed(page, columns, dims).order_by(scopes.c.id).limit(bindparam("most", type_=Integer))


@functools.cache
def page_of_results(columns: frozenset[str], dims: int, *, at_once: bool = False) -> Select[Any]:
    """Select rows for `read_result`, each followed by the scope's revision and id, those written to last first.

    They are of the scopes written to before the revision `before` or, with `at_once`, in that revision and with a
    lower id than `scope`: one condition for both would read all scopes of a large import again for each page.

    They are filtered by these columns and by this many dimensions, each a LIKE pattern for the dims. These are compared
    as JSON with a comma after the last one too.
    """
    page = _results(with_winner=False).add_columns(scopes.c.revision, scopes.c.id)
    if at_once:
        page = page.where(scopes.c.revision == bindparam("before"), scopes.c.id < bindparam("scope"))
    else:
        page = page.where(scopes.c.revision < bindparam("before"))
    latest = scopes.c.revision.desc(), scopes.c.id.desc()
    return _narrowed(page, columns, dims).order_by(*latest).limit(bindparam("most", type_=Integer))


@functools.cache
def count_of_scopes(columns: frozenset[str], dims: int) -> Select[Any]:
    """Count scopes up to `most`, filtered like `page_of_results`."""
    page = _narrowed(select(scopes.c.id), columns, dims).limit(bindparam("most", type_=Integer))
    return select(func.count()).select_from(page.subquery())


def _narrowed(page: Select[Any], columns: frozenset[str], dims: int) -> Select[Any]:
    for name in sorted(columns):
        page = page.where(scopes.c[name] == bindparam(name))
    for index in range(dims):
        stored = func.replace(scopes.c.dims, "}", ",")
        page = page.where(stored.like(bindparam(f"dim_{index}"), escape="\\"))
    return page


TRIALS = (
    select(*(trials.c[name] for name in TRIAL_COLUMNS))
    .join(scopes, scopes.c.id == trials.c.scope_id)
    .where(scopes.c.key == bindparam("key"), CURRENT, trials.c.id > bindparam("since"))
    .order_by(trials.c.id)
)

# Read as a number, `verified` needs no conversion, for which each row would be copied.
_VERIFIED: ColumnElement[Any] = type_coerce(trials.c.verified, Integer)

TRIAL = (
    select(*(trials.c[name] for name in TRIAL_COLUMNS))
    .join(scopes, scopes.c.id == trials.c.scope_id)
    .where(scopes.c.key == bindparam("key"), CURRENT, trials.c.config_key == bindparam("config_key"))
)

FIGURES = (
    select(*(_VERIFIED if name == "verified" else trials.c[name] for name in FIGURE_COLUMNS))
    .join(scopes, scopes.c.id == trials.c.scope_id)
    .where(scopes.c.key == bindparam("key"), CURRENT)
    .order_by(trials.c.id)
)

WRITTEN_AT = select(scopes.c.revision).where(scopes.c.key == bindparam("key"))

NEWEST = select(func.max(trials.c.id))

REVISION = select(revision.c.number)

CHANGED = (
    select(scopes.c.question_key).where(scopes.c.revision > bindparam("seen")).limit(bindparam("most", type_=Integer))
)

WRITTEN = (
    select(*(scopes.c[name] for name in SCOPE_COLUMNS))
    .where(scopes.c.revision > bindparam("since"))
    .order_by(scopes.c.revision, scopes.c.id)
)

SUGGESTIONS = (
    select(*(suggestions.c[name] for name in SUGGESTION_COLUMNS))
    .where(suggestions.c.kernel == bindparam("kernel"))
    .order_by(suggestions.c.id)
)

_OF_FAMILY = tuple(scopes.c[name] == bindparam(name) for name in ("kernel", "dtype", "device"))


def _sizes() -> Select[Any]:
    """Select one row per source. The database joins the texts in a third of the time that fetching them takes, and lets
    other threads run meanwhile."""
    page = (
        select(scopes.c.id, scopes.c.dims, scopes.c.source_hash)
        .where(*_OF_FAMILY, scopes.c.id > bindparam("last"))
        .order_by(scopes.c.id)
        .limit(_PAGE_OF_SIZES)
        .subquery("page")
    )
    comma: Any = literal_column("','")  # bound text is filled in on execution only, not by `Query`
    together = func.aggregate_strings(page.c.dims, comma)
    return select(func.max(page.c.id), page.c.source_hash, together).group_by(page.c.source_hash)


SIZES = _sizes()

_COMPARED = tuple(scopes.c[name] for name in ("source_hash", "clock", "toolchain", "cores"))
"""The columns that scopes of a family must share for their times to be compared across shapes."""

GROUPS = select(*_COMPARED).where(*_OF_FAMILY).distinct()

DRAWN = (
    select(*(scopes.c[name] for name in SCOPE_COLUMNS))
    .where(*_OF_FAMILY, *(column == bindparam(column.name) for column in _COMPARED))
    .order_by(scopes.c.key)
    .limit(bindparam("most", type_=Integer))
)


def _distinct(name: str) -> TextualSelect:
    """Select an indexed column's values with one seek per value; `SELECT DISTINCT` would read one entry per scope."""
    return text(
        f"""
        WITH RECURSIVE seen (value) AS (
            SELECT min({name}) FROM scopes
            UNION ALL
            SELECT (SELECT min({name}) FROM scopes WHERE {name} > seen.value) FROM seen WHERE seen.value IS NOT NULL
        )
        SELECT value FROM seen WHERE value IS NOT NULL
        """
    ).columns(column("value"))


_FAMILY = (scopes.c.kernel, scopes.c.dtype, scopes.c.device)
NEXT_FAMILY = (
    select(*_FAMILY)
    .where(tuple_(*_FAMILY) > tuple_(*(bindparam(each.name) for each in _FAMILY)))
    .order_by(*_FAMILY)
    .limit(1)
)
"""The first kernel, dtype and device after the given ones: one seek."""

DEVICES = _distinct("device")
KERNELS = _distinct("kernel")


def _scope_page(*filters: str) -> Select[Any]:
    page = select(scopes.c.id, *(scopes.c[name] for name in SCOPE_COLUMNS)).where(scopes.c.id > bindparam("last"))
    for name in filters:
        page = page.where(scopes.c[name] == bindparam(name))
    return page.order_by(scopes.c.id).limit(_PAGE_LENGTH)


PAGES = {frozenset(names): _scope_page(*names) for names in ((), ("kernel",), ("device",), ("kernel", "device"))}
"""Pages of scopes after the id `last`, each preceded by its id, by the columns that a page is filtered on."""
