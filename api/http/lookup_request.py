"""Parsing of look-up requests from query strings and bodies."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from tilewise.api.http.parameters import Parameters
from tilewise.api.http.schemas import LookupQuery
from tilewise.api.service.answers import LookupRequest, problem_of
from tilewise.db.records import Question
from tilewise.errors import UsageError
from tilewise.tuner.lookup.resolve import Match, device_name

__all__ = ["question_from_parameters", "request_from_body", "request_from_query"]


_MATCHES = [match.value for match in Match]


def request_from_query(kernel: str, query: str) -> LookupRequest:
    """Parse a query string about `kernel`. Raises `UsageError` if it is invalid."""
    parameters = Parameters(_items(query))
    match = parameters.take_choice("match", _MATCHES) or Match.EXACT
    toolchain = parameters.take("toolchain")
    return LookupRequest(question_from_parameters(kernel, parameters), Match(match), toolchain)


def _items(query: str) -> Iterable[tuple[str, str]]:
    if "%" in query or "+" in query:
        return parse_qsl(query, keep_blank_values=True)
    pairs = (pair.partition("=") for pair in query.split("&") if pair)  # nothing is quoted: a third of the time
    return ((name, value) for name, _, value in pairs)


def question_from_parameters(kernel: str, given: Parameters) -> Question:
    """Build a question from the remaining parameters: dtype, device, dimensions and flags."""
    dtype = given.take("dtype") or "float32"
    device = given.take("device")
    if device is None:
        raise UsageError("device is missing; expected the name of a device, such as Ascend910B4")
    return Question(problem_of(kernel, given.take_shape(), dtype), device_name(device))


def request_from_body(query: LookupQuery) -> LookupRequest:
    """Convert one query of a batch. Raises `UsageError` if the kernel has no such dimensions or dtype."""
    question = Question(problem_of(query.kernel, query.dims, query.dtype), device_name(query.device))
    return LookupRequest(question, Match(query.match), query.toolchain)
