"""A client of the REST service: one method an operation, problems as the package's own errors.

    with Client("http://tiles.example:8300") as client:
        result = client.lookup("row_reduce", {"M": 1000, "N": 8192}, device="NVIDIA H200", match="nearest")

Answers are the service's JSON, typed by the very schemas that it documents. Imports nothing but httpx2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

import httpx2

from tilewise.errors import (
    Busy,
    Forbidden,
    NotFound,
    NothingFeasible,
    TilewiseError,
    Unauthorized,
    Unavailable,
    UnknownKernel,
    UsageError,
)

if TYPE_CHECKING:
    from tilewise.api import schemas

__all__ = ["Client"]

_ERRORS: Mapping[str, type[TilewiseError]] = {
    "bad-request": UsageError,
    "not-found": NotFound,
    "not-tuned": NotFound,
    "nothing-feasible": NothingFeasible,
    "unknown-kernel": UnknownKernel,
}
"""By the last part of a problem's type."""

_BY_STATUS: Mapping[int, type[TilewiseError]] = {
    400: UsageError,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    413: UsageError,
    422: UsageError,
    429: Busy,
}


_WRITE_SECONDS = 75.0
"""A server lets a write wait 30 s for its turn and 30 s for a lock; who gives up does not know how it ended."""


class Client:
    """A connection to one server, for use by several threads.

    `token` is needed for writing, and for reading where the server's reads are closed. `timeout` is in seconds, a
    request; writes wait longer. `transport` is httpx2's, for tests. Methods raise the package's errors: `NotFound`
    where nothing is stored, `UsageError` for what makes no sense, `Forbidden` without the right token, `Unavailable`
    where the server cannot be reached, is overloaded or answers what is no answer of it.
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
            raise UsageError(f"{url!r} is no server's address; expected http://host:port")
        self._patient = max(timeout, _WRITE_SECONDS)
        self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)

    # Reading -----------------------------------------------------------------------------------------------------

    def lookup(
        self,
        kernel: str,
        dims: Mapping[str, int],
        *,
        device: str,
        dtype: str = "float32",
        match: str = "exact",
        toolchain: str | None = None,
    ) -> schemas.Result:
        """The best known config; raises `NotFound` where nothing qualifies."""
        asked = {**dims, "dtype": dtype, "device": device, "match": match, "toolchain": toolchain}
        return cast("schemas.Result", self._get(f"/v1/configs/{_part(kernel)}", asked))

    def lookup_many(self, queries: Sequence[Mapping[str, Any]]) -> list[schemas.Result | schemas.LookupMiss]:
        """Answers in the order of the queries, `{"kernel", "dims", "dtype", "device", "match"}` each; a miss has a
        null config."""
        body = _document(self._send("POST", "/v1/lookup", json={"queries": list(queries)}))
        return cast("list[schemas.Result | schemas.LookupMiss]", body["results"])

    def kernels(self) -> list[schemas.Kernel]:
        return cast("list[schemas.Kernel]", self._get("/v1/kernels")["kernels"])

    def devices(self) -> list[schemas.Device]:
        """What the server's own machine has."""
        return cast("list[schemas.Device]", self._get("/v1/devices")["devices"])

    def trials(
        self,
        *,
        kernel: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        status: str | None = None,
        page: int = 1000,
    ) -> Iterator[schemas.Trial]:
        """All that fit, `page` at a time."""
        asked = {"kernel": kernel, "dtype": dtype, "device": device, "status": status, "limit": page}
        after: str | None = None
        while True:
            body = self._get("/v1/trials", asked | {"after": after})
            yield from body["trials"]
            after = body.get("next")
            if after is None:
                return

    def history(
        self, kernel: str, dims: Mapping[str, int], *, device: str, dtype: str = "float32"
    ) -> list[schemas.Best]:
        """How the best of a problem came about."""
        body = self._get(f"/v1/history/{_part(kernel)}", {**dims, "dtype": dtype, "device": device})
        return cast("list[schemas.Best]", body["bests"])

    def export(self, *, kernel: str | None = None, dtype: str | None = None, device: str | None = None) -> bytes:
        """The export file of every best that fits."""
        return self._send("GET", "/v1/export", params={"kernel": kernel, "dtype": dtype, "device": device}).content

    def import_results(self, data: bytes) -> schemas.Imported:
        """Merge an export file into the server's database; needs an admin's token."""
        headers = {"content-type": "application/json"}
        response = self._send("POST", "/v1/import", content=data, headers=headers, timeout=self._patient)
        return cast("schemas.Imported", _document(response))

    # Jobs --------------------------------------------------------------------------------------------------------

    def submit(
        self, kernel: str, shapes: Sequence[Mapping[str, int]], *, device: str, dtype: str = "float32", **rest: Any
    ) -> schemas.Job:
        """Ask for a tuning; the same request twice is one job. `rest` may hold `trials`, `seconds`, `search`, `seed`
        and `priority`. Needs a token that allows to submit."""
        sizes = [dict(dims) for dims in shapes]
        asked = {"kernel": kernel, "shapes": sizes, "device": device, "dtype": dtype, **rest}
        return cast("schemas.Job", _document(self._send("POST", "/v1/jobs", json=asked, timeout=self._patient)))

    def job(self, number: int) -> schemas.Job:
        return cast("schemas.Job", self._get(f"/v1/jobs/{number}"))

    def jobs(self, *, before: int | None = None, limit: int = 50) -> list[schemas.Job]:
        """The newest first."""
        return cast("list[schemas.Job]", self._get("/v1/jobs", {"before": before, "limit": limit})["jobs"])

    def cancel(self, number: int) -> schemas.Job:
        return cast("schemas.Job", _document(self._send("DELETE", f"/v1/jobs/{number}", timeout=self._patient)))

    def events(self, number: int) -> Iterator[schemas.Job]:
        """The job now and whenever it changes, until it has ended."""
        try:
            with self._http.stream("GET", f"/v1/jobs/{number}/events", timeout=60.0) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _error(response, self.url)
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx2.HTTPError as error:
            raise Unavailable(f"lost {self.url}: {error or type(error).__name__}") from error

    def ready(self) -> bool:
        """Whether the server is there and can answer."""
        try:
            self._get("/readyz")
        except Unavailable:
            return False
        return True

    # How ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return _document(self._send("GET", path, params=params))

    def _send(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, **content: Any
    ) -> httpx2.Response:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=given or None, **content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unavailable(f"cannot reach {self.url}: {error or type(error).__name__}") from error
        if response.status_code >= 400:
            raise _error(response, self.url)
        return response


def _part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _document(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError as error:
        raise Unavailable(f"{response.url} answered what is no JSON; is a tilewise server there?") from error
    if not isinstance(body, dict):
        raise Unavailable(f"{response.url} answered what is no document; is a tilewise server there?")
    return body


def _error(response: httpx2.Response, url: str) -> TilewiseError:
    """A problem document as the error that the service raised; anything else by its status alone."""
    try:
        problem = response.json()
        detail, kind = " ".join(str(problem["detail"]).split()), str(problem["type"]).rpartition(":")[2]
    except (ValueError, KeyError, TypeError):
        detail, kind = f"{url} answered {response.status_code}", ""
    return _ERRORS.get(kind, _BY_STATUS.get(response.status_code, Unavailable))(detail)
