"""Requests that schemathesis generates from the server's own OpenAPI document, valid and invalid ones, against a server
process, with tokens that may do everything and without any. Each answer is compared with the document."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewise.benchmarks.common.header import service_header
from tilewise.benchmarks.common.many import fill
from tilewise.benchmarks.service.serve import serving
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Unavailable

if TYPE_CHECKING:
    from schemathesis import GenerationMode
    from schemathesis.schemas import APIOperation

    Operation: TypeAlias = APIOperation[Any, Any, Any, Any]

__all__ = ["ARGUED", "bench_conform", "left_out"]

ARGUED = {
    "positive_data_acceptance": "a document cannot say which sizes and parameters belong to which kernel, nor which "
    "keys, jobs and devices there are: the server refuses requests that are well-formed",
    "negative_data_rejection of /v1/lookup": "a query that does not match its schema fails alone, within an answer",
}
"""Checks that are left out, and why."""

_STREAM = "/v1/jobs/{number}/events"
"""It ends only with its job."""

_STORED = 1000
_ROUND = 50
"""Cases of an operation before it is the next one's turn."""

_EXAMPLES = 20
"""Faults that are recorded in full."""

_SERVED = ("--no-jobs", "--writes-a-minute", "1000000", "--trusted-proxy", "127.0.0.1")
"""The server believes the address that each case names as its own: one address may try few wrong tokens."""

_FIRST_ADDRESS = int(IPv4Address("10.0.0.0"))


@dataclass(slots=True)
class _Seen:
    cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def bench_conform(cases: int, *, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Send at least so many cases with a token and as many without; return the JSON, with a row for each.

    Raises `Unavailable` without schemathesis.
    """
    try:
        import schemathesis
    except ImportError as error:
        raise Unavailable("schemathesis is not installed; install tilewise[test]") from error
    rows = []
    for caller in ("token", "stranger"):
        with tempfile.TemporaryDirectory(prefix="tilewise-conform-") as folder:
            url = f"sqlite:///{Path(folder) / 'tilewise.db'}"
            fill(url, _STORED)
            with open_store(url) as store:
                rights = (Right.ADMIN, Right.WORK) if caller == "token" else ()
                tokens = {right: Tokens(store.database).create("conform", right) for right in rights}
            with serving(url, options=_SERVED) as (address, *_):
                seen = _sent(address, tokens, cases, seed, say)
        rows.append(
            {
                "caller": caller,
                "cases": seen.cases,
                "statuses": dict(sorted(seen.statuses.items())),
                "faults": dict(seen.faults),
                "examples": list(seen.examples.values()),
            }
        )
    header = service_header(f"tilewise bench conform --cases {cases} --seed {seed}")
    return {**header, "schemathesis": schemathesis.__version__, "left_out": ARGUED, "rows": rows}


def _sent(address: str, tokens: Mapping[Right, str], cases: int, seed: int, say: Callable[[str], None]) -> _Seen:
    import schemathesis

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    seen, waiting, turn = _Seen(), list(_inputs(schema)), 0
    while seen.cases < cases and waiting:
        turn += 1
        for operation, mode in list(waiting):
            before = seen.cases
            _one_round(operation, mode, tokens, seed + turn, seen)
            if seen.cases - before < _ROUND:
                waiting.remove((operation, mode))  # it has no more inputs that differ
        say(f"{seen.cases} of {cases} cases {'with' if tokens else 'without'} a token; {seen.faults.total()} faults")
    return seen


def _inputs(schema: Any) -> Iterator[tuple[Operation, GenerationMode]]:
    """Yield each operation with each kind of inputs that it can have."""
    from schemathesis import GenerationMode

    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == _STREAM:
            continue
        yield operation, GenerationMode.POSITIVE
        if operation.query or operation.path_parameters or operation.body:
            yield operation, GenerationMode.NEGATIVE


def left_out(path: str, mode: GenerationMode) -> list[Callable[..., Any]]:
    """Return the checks of `ARGUED` that do not hold for a path and a kind of inputs."""
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    if (path, mode) == ("/v1/lookup", GenerationMode.NEGATIVE):
        return [positive_data_acceptance, negative_data_rejection]
    return [positive_data_acceptance]


def _one_round(operation: Operation, mode: GenerationMode, tokens: Mapping[Right, str], seed: int, seen: _Seen) -> None:
    """Send one round of an operation's cases.

    A token goes with each call: a check of the authentication takes one of the configuration for a made-up one.
    """
    import hypothesis
    from schemathesis.errors import FailureGroup

    excluded = left_out(operation.path, mode)
    token = tokens.get(Right.WORK if operation.path.startswith("/v1/work/") else Right.ADMIN)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=_ROUND, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        own = {"X-Forwarded-For": str(IPv4Address(_FIRST_ADDRESS + seen.cases))}
        headers = own | ({"Authorization": f"Bearer {token}"} if token else {})
        answer = case.call(headers=headers)
        seen.cases += 1
        seen.statuses[str(answer.status_code)] += 1
        try:
            case.validate_response(answer, headers=headers, transport_kwargs={"headers": own}, excluded_checks=excluded)
        except FailureGroup as group:
            for failure in group.exceptions:
                name = f"{operation.label}: {failure.title}"
                seen.faults[name] += 1
                if len(seen.examples) < _EXAMPLES:
                    seen.examples.setdefault(name, f"{name}: {failure.message}\n{case.as_curl_command()}"[:2000])

    send()
