"""A connection to the REST service, with what all operations share: timeouts, pages, streams and errors.

The operations are in `tilewise.client`, which is generated from the service's OpenAPI document. Imports only httpx2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from tilewise.errors import (
    Busy,
    Forbidden,
    LeaseLost,
    NotFound,
    NothingFeasible,
    TilewiseError,
    Unauthorized,
    Unavailable,
    UnknownKernel,
    UsageError,
)

__all__ = ["BY_STATUS", "Connection", "part"]

_ERRORS: Mapping[str, type[TilewiseError]] = {
    "bad-request": UsageError,
    "not-found": NotFound,
    "not-tuned": NotFound,
    "lease-lost": LeaseLost,
    "nothing-feasible": NothingFeasible,
    "unknown-kernel": UnknownKernel,
}
"""Errors by the last part of a problem's type."""

BY_STATUS: Mapping[int, type[TilewiseError]] = {
    400: UsageError,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    413: UsageError,
    422: UsageError,
    429: Busy,
}

_WRITE_SECONDS = 75.0
"""A server lets a write wait 30 s for its turn and 30 s for a lock. A client that gives up cannot know the outcome."""


class Connection:
    """A connection to one server, for use by several threads.

    `token` is needed for writing, and for reading if the server requires it. `timeout` is in seconds per request;
    requests other than GET wait longer. `transport` is httpx2's, for tests. Methods raise the package's errors:
    `NotFound` if nothing is stored, `UsageError` for an invalid request, `Forbidden` without the right token,
    `Unavailable` if the server cannot be reached, is overloaded or returns an invalid response.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not a server address; expected http://host:port")
        self._write_timeout = max(timeout, _WRITE_SECONDS)
        self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)

    def ready(self) -> bool:
        """Return whether the server can be reached and is ready to answer."""
        try:
            self._document("GET", "/readyz")
        except Unavailable:
            return False
        return True

    def openapi(self) -> Mapping[str, Any]:
        """Return the document that describes the service and all its operations."""
        found: Mapping[str, Any] = self._document("GET", "/openapi.json")
        return found

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _document(self, method: str, path: str, **sent: Any) -> Any:
        """Send a request and return the JSON object in the response."""
        response = self._send(method, path, **sent)
        try:
            body = response.json()
        except ValueError as error:
            raise Unavailable(f"{response.url} did not return JSON; is it a tilewise server?") from error
        if not isinstance(body, dict):
            raise Unavailable(f"{response.url} did not return a JSON object; is it a tilewise server?")
        return body

    def _pages(
        self, method: str, path: str, items: str, following: tuple[str, str], params: Mapping[str, Any]
    ) -> Iterator[Any]:
        """Yield the items of all pages, from the key `items`.

        `following` is the parameter that selects a page, and the key under which a page gives the next one's value.
        """
        parameter, key = following
        page: dict[str, Any] = {}
        while not page or key in page:
            page = self._document(method, path, params={**params, parameter: page.get(key)})
            yield from page[items]

    def _events(self, method: str, path: str) -> Iterator[Any]:
        """Yield the data of each server-sent event, parsed as JSON."""
        try:
            with self._http.stream(method, path, timeout=60.0) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _error(response, self.url)
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx2.HTTPError as error:
            raise Unavailable(f"lost the connection to {self.url}: {error or type(error).__name__}") from error

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
    ) -> httpx2.Response:
        """Send a request, without values that are None. A body of bytes is sent as it is, any other as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(_given(body), default=_plain).encode()
        try:
            response = self._http.request(
                method,
                path,
                params=_given(params or {}) or None,
                content=content,
                headers={} if content is None else {"content-type": "application/json"},
                timeout=httpx2.USE_CLIENT_DEFAULT if method == "GET" else self._write_timeout,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unavailable(f"cannot reach {self.url}: {error or type(error).__name__}") from error
        if response.status_code >= 400:
            raise _error(response, self.url)
        return response


def part(name: object) -> str:
    """Quote a name or number as one part of a path."""
    return quote(str(name), safe="")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _plain(value: object) -> Any:
    """Convert a mapping or sequence of a class that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{value!r} cannot be sent as JSON")


def _error(response: httpx2.Response, url: str) -> TilewiseError:
    """Return the error that the service raised, from its problem document or else from the status alone."""
    try:
        problem = response.json()
        detail, kind = " ".join(str(problem["detail"]).split()), str(problem["type"]).rpartition(":")[2]
    except (ValueError, KeyError, TypeError):
        detail, kind = f"{url} answered {response.status_code}", ""
    return _ERRORS.get(kind, BY_STATUS.get(response.status_code, Unavailable))(detail)
