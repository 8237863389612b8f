"""Runs in a process of `slow_lookups`: answers look-ups that take longer than a seek, and reads batches of them."""

from __future__ import annotations

import functools
import json
import os
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tilewise.api.http import schemas
from tilewise.api.http.lookup_request import request_from_body
from tilewise.api.processes.lookup_batch import Malformed, Part, faulty, missed
from tilewise.api.service.answer_cache import encode
from tilewise.api.service.answers import Found, LookupRequest, exact, prediction, registered, relaxed
from tilewise.db.records import Question, Result
from tilewise.db.sql.database import waiting
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.errors import NotFound, TilewiseError, UsageError
from tilewise.kernels import registry
from tilewise.tuner.lookup.resolve import Match
from tilewise.tuner.lookup.store_source import StoreSource

__all__ = ["serve"]

_LOCK_SECONDS = 5.0
"""Time to wait for another process's lock on an SQLite file."""

_TURN_SECONDS = 0.05
"""Time after which a batch lets others have a turn."""

_NICENESS = 10
"""Look-ups that take a seek come first where cores are scarce."""

_MOST_PREDICTED = 10_000
_GIVEN = {"kernel", "dims", "dtype", "device"}


def serve(url: str, own: tuple[str, ...], task: str, *arguments: Any) -> Any:
    """Return the result of a task of `_Lookups`, or the error that it raised.

    `url` is that of the store, and `own` holds the places of the users' kernels that the server knows.
    """
    try:
        return getattr(_lookups(url, own), task)(*arguments)
    except TilewiseError as error:
        return error


@functools.cache
def _lookups(url: str, own: tuple[str, ...]) -> _Lookups:
    os.nice(_NICENESS)
    with suppress(OSError):  # exists where the kernel shares cores among sessions first: this process has its own
        Path("/proc/self/autogroup").write_text(str(_NICENESS))
    for place in own:
        registry.register(place)
    return _Lookups(open_store(waiting(url, _LOCK_SECONDS), read_only=True))


class _Lookups:
    """The tasks, over an open store."""

    def __init__(self, store: SqlStore) -> None:
        self._store, self._source = store, StoreSource(store)
        self._predicted: OrderedDict[str, Result | None] = OrderedDict()

    def prepare(self) -> None:
        self._source.prepare()

    def one(self, request: LookupRequest) -> Found | None:
        """Answer a request as far as the nearest shape; None if a later step may answer."""
        return self._found(relaxed(self._source, request, Match.NEAREST))

    def one_by_any_means(self, request: LookupRequest) -> Found:
        """Answer a request as far as it allows."""
        result = relaxed(self._source, request, Match.PORTFOLIO) or self._prediction(request.question)
        if result is None:
            raise self._source.not_tuned(request.question)
        return Found(result.match, encode(result.to_json()))

    def batch(self, body: bytes, start: int) -> Part | Malformed:
        """Answer the queries of a batch, from that numbered `start` on, until the turn is over."""
        queries = _read(body)
        if isinstance(queries, Malformed):
            return queries
        part = Part(len(queries), [], {}, [])
        end = time.monotonic() + _TURN_SECONDS
        for query in queries[start:]:
            self._answer(query, part)
            if time.monotonic() > end:
                break
        return part

    def _answer(self, query: schemas.LookupQuery | Malformed, part: Part) -> None:
        """Add the answer to one query, or why there is none. Raises `StoreError`, which concerns them all."""
        if isinstance(query, Malformed):
            part.items.append(faulty(query.faults))
            return
        try:
            request = request_from_body(query)
        except UsageError as error:
            part.items.append(missed(query.model_dump(include=_GIVEN), query.match, error))
            return
        try:
            found = self._exact(request) or self._found(relaxed(self._source, request, Match.NEAREST))
        except (NotFound, UsageError) as error:
            part.items.append(missed(request.question.to_json(), query.match, error))
            if isinstance(error, NotFound) and registered(query.kernel):
                part.unanswered.append(request.question)
            return
        if found is None:
            part.beyond[len(part.items)] = request
        part.items.append(found.body if found else None)

    def _exact(self, request: LookupRequest) -> Found | None:
        if request.toolchain is not None:
            return None
        body = exact(self._store, request.question.kernel, request.question.key)
        return Found(Match.EXACT.value, body) if body else None

    def _found(self, result: Result | None) -> Found | None:
        return Found(result.match, encode(result.to_json())) if result else None

    def _prediction(self, question: Question) -> Result | None:
        if self._source.target(question.device) is None:
            return None
        key = question.key
        if key not in self._predicted:
            self._predicted[key] = prediction(self._source, question)
            if len(self._predicted) > _MOST_PREDICTED:
                self._predicted.popitem(last=False)
        return self._predicted[key]


@functools.lru_cache(maxsize=4)  # a batch that takes several turns is read once
def _read(body: bytes) -> list[schemas.LookupQuery | Malformed] | Malformed:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # the latter for brackets within brackets
        return Malformed([{"type": "json_invalid", "loc": ("body", 0), "msg": "JSON decode error"}])
    try:
        queries = _Batch.model_validate(document).queries
    except ValidationError as error:
        return _malformed(error, "body")
    return [_query(query, index) for index, query in enumerate(queries)]


class _Batch(schemas.LookupRequest):
    """A batch whose queries are read one by one, so that one that is wrong fails alone."""

    queries: Annotated[list[Any], Field(max_length=schemas.MOST_QUERIES)]


def _query(query: Any, index: int) -> schemas.LookupQuery | Malformed:
    try:
        return schemas.LookupQuery.model_validate(query)
    except ValidationError as error:
        return _malformed(error, "body", "queries", index)


def _malformed(error: ValidationError, *place: str | int) -> Malformed:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return Malformed([{**fault, "loc": (*place, *fault["loc"])} for fault in faults])
