"""Reading questions from query strings and bodies: strict, one clear line for each fault."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewise.api.answers import check_question
from tilewise.api.schemas import LookupQuery
from tilewise.db.records import Question
from tilewise.errors import BadDimension, UsageError
from tilewise.tuner.problem import LARGEST

__all__ = ["question_from_body", "question_from_query"]

_WHOLE_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_SHOWN = 40


def question_from_query(kernel: str, parameters: Iterable[tuple[str, str]]) -> Question:
    """The question that a query string asks about `kernel`; raises `UsageError` where it makes no sense."""
    values = _once_each(parameters)
    _check_match(values.pop("match", "exact"))
    dtype = values.pop("dtype", "float32")
    device = _device(values.pop("device", ""))
    check_question(kernel, values.keys(), dtype)
    return Question(kernel, {name: _size(name, text) for name, text in values.items()}, dtype, device)


def question_from_body(query: LookupQuery) -> Question:
    """The question of one query of a batch; raises `UsageError` where the kernel has no such dimensions or dtype."""
    check_question(query.kernel, query.dims.keys(), query.dtype)
    return Question(query.kernel, query.dims, query.dtype, query.device)


def _once_each(parameters: Iterable[tuple[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in parameters:
        if name in values:
            raise UsageError(f"{name[:_SHOWN]!r} is given more than once; give it once")
        values[name] = value
    return values


def _check_match(match: str) -> None:
    if match in ("nearest", "predicted"):
        raise UsageError(f"match={match} comes in a later version; only match=exact is answered so far")
    if match != "exact":
        raise UsageError(f"match is {match[:_SHOWN]!r}; expected exact")


def _device(name: str) -> str:
    if not name:
        raise UsageError("device is missing; expected the name of a device, such as Ascend910B4")
    return name


def _size(name: str, text: str) -> int:
    """Only plain digits are a size: `int` would also take `1_000`, `+5`, spaces and the digits of other scripts."""
    if not _WHOLE_NUMBER.fullmatch(text) or int(text) > LARGEST:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        raise BadDimension(f"{name[:_SHOWN]} is {shown!r}; expected a whole number from 1 to {LARGEST}")
    return int(text)
