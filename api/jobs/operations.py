"""The operations of a worker that a server carries out for it, and how their values travel as JSON.

Each is a method of a contract, such as `jobs.claim` or `store.record`. Arguments and results travel by the types of its
signature. A name keeps its meaning from version to version: a method with other arguments gets another name, so that
workers one version behind their server go on.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from tilewise.db.queue import Queue
from tilewise.db.store import Store
from tilewise.db.workers import Workers
from tilewise.errors import StoreError, UsageError
from tilewise.kernels.signing import Shelf

__all__ = ["OPERATIONS", "Operation"]

_METHODS: Mapping[str, tuple[type, str]] = {
    "jobs": (Queue, "get running waiting next claim begin beat finish take_back give_back expire"),
    "workers": (Workers, "register beat leave forget all"),
    "kernels": (Shelf, "digests get"),
    "store": (Store, "record verify retire mark trials result results answers scopes suggestions"),
}
_READING = {"jobs.get", "jobs.running", "jobs.waiting", "jobs.next", "workers.all", "kernels.digests", "kernels.get"}
_LEASED = {"store.record", "store.verify", "store.retire"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of the contract of `part`. A `leased` one writes for a job, and needs its lease."""

    part: str
    method: str
    signature: inspect.Signature
    arguments: Mapping[str, Any]
    returns: Any

    @property
    def name(self) -> str:
        return f"{self.part}.{self.method}"

    @property
    def leased(self) -> bool:
        return self.name in _LEASED

    @property
    def writes(self) -> bool:
        return self.leased or (self.part != "store" and self.name not in _READING)

    def by_name(self, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        _, *bound = self.signature.bind(None, *given, **named).arguments.items()
        return dict(bound)

    def to_json(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of arguments by name. Raises `StoreError` for values that no JSON holds."""
        return {name: _plain(value) for name, value in arguments.items()}

    def from_json(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call. Raises `UsageError` if they are not those of the method."""
        _refuse_huge_integers(body)
        try:
            self.signature.bind(None, **body)
            return {name: msgspec.convert(value, self.arguments[name]) for name, value in body.items()}
        except (TypeError, msgspec.ValidationError) as error:
            raise UsageError(f"arguments of {self.name}: {error}") from error

    def result_to_json(self, result: Any) -> Any:
        return _plain(list(result) if isinstance(result, Iterator) else result)

    def result_from_json(self, body: Any) -> Any:
        """Return the result of a call. Raises `StoreError` if it is not of the method's type."""
        lazy = get_origin(self.returns) is Iterator
        try:
            found = msgspec.convert(body, types.GenericAlias(list, get_args(self.returns)) if lazy else self.returns)
        except msgspec.ValidationError as error:
            raise StoreError(f"the server's answer to {self.name} is of another version: {error}") from error
        return iter(found) if lazy else found


def _operation(part: str, method: str, function: Callable[..., Any]) -> Operation:
    hints = get_type_hints(function)
    return Operation(part, method, inspect.signature(function), hints, hints.pop("return"))


def _refuse_huge_integers(body: Any) -> None:
    """Raise `UsageError` for an integer that has no place in 64 bits, as those of the database have."""
    left = [body]
    while left:
        value = left.pop()
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise UsageError("an integer among the arguments does not fit 64 bits")
        if isinstance(value, dict | list):
            left.extend(value.values() if isinstance(value, dict) else value)


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=_as_dict)
    except (TypeError, ValueError) as error:
        raise StoreError(f"cannot be sent as JSON: {error}") from error


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain value")


OPERATIONS: Mapping[str, Operation] = {
    f"{part}.{method}": _operation(part, method, getattr(contract, method))
    for part, (contract, methods) in _METHODS.items()
    for method in methods.split()
}
"""All operations by name."""
