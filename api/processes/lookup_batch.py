"""Records that pass between the server and the process that reads and answers a batch of look-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewise.api.http.problem_types import faults_of, type_of
from tilewise.api.service.answer_cache import encode
from tilewise.api.service.answers import LookupRequest
from tilewise.db.records import Question
from tilewise.errors import TilewiseError, UsageError

__all__ = ["Malformed", "Part", "faulty", "missed"]


class Malformed(NamedTuple):
    """A batch, or a query of it, that does not match its schema, and the errors that Pydantic found."""

    faults: list[dict[str, Any]]


class Part(NamedTuple):
    """Answers to some consecutive queries of a batch of `total`.

    `items` are encoded; None stands for a request that may be answered by a portfolio or the prior, which `beyond`
    holds by its index in `items`. `unanswered` lists the questions about registered kernels that nothing answers.
    """

    total: int
    items: list[bytes | None]
    beyond: dict[int, LookupRequest]
    unanswered: list[Question]


def missed(given: Mapping[str, Any], match: str, error: TilewiseError) -> bytes:
    """Encode the entry of a batch for a query without an answer; its `type` is that of the error as a problem."""
    return encode({**given, "match": match, "config": None, "why": str(error), "type": type_of(error)})


def faulty(errors: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the entry of a batch for a query that does not match its schema."""
    faults = faults_of(errors)
    why = f"the query does not match its schema: {faults[0]['pointer']}: {faults[0]['detail']}"
    return encode({"config": None, "why": why, "type": type_of(UsageError()), "errors": faults})
