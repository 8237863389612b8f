"""Reading questions from query strings and bodies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewise.api.answers import check_question
from tilewise.api.parameters import Parameters
from tilewise.api.schemas import LookupQuery
from tilewise.db.records import Question
from tilewise.errors import UsageError
from tilewise.tuner.lookup import Match, device_name

__all__ = ["Asked", "asked_in_body", "asked_in_query", "read_question"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and how far its answer may relax."""

    question: Question
    match: Match = Match.EXACT
    toolchain: str | None = None


def asked_in_query(kernel: str, items: Iterable[tuple[str, str]]) -> Asked:
    """What a query string asks about `kernel`; raises `UsageError` where it makes no sense."""
    given = Parameters(items)
    match = given.take_choice("match", [match.value for match in Match]) or Match.EXACT
    toolchain = given.take("toolchain")
    return Asked(read_question(kernel, given), Match(match), toolchain)


def read_question(kernel: str, given: Parameters) -> Question:
    """What is left of the parameters as a question: dtype, device and dimensions."""
    dtype = given.take("dtype") or "float32"
    device = given.take("device")
    if device is None:
        raise UsageError("device is missing; expected the name of a device, such as Ascend910B4")
    check_question(kernel, given.names, dtype)
    return Question(kernel, given.take_sizes(), dtype, device_name(device))


def asked_in_body(query: LookupQuery) -> Asked:
    """What one query of a batch asks; raises `UsageError` where the kernel has no such dimensions or dtype."""
    check_question(query.kernel, query.dims.keys(), query.dtype)
    question = Question(query.kernel, query.dims, query.dtype, device_name(query.device))
    return Asked(question, Match(query.match), query.toolchain)
