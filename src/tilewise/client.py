"""A client of the REST service: one method an operation, problems as the package's own errors.

    with Client("http://tiles.example:8300") as client:
        result = client.lookup("row_reduce", {"M": 1000, "N": 8192}, "NVIDIA H200", match="nearest")

Answers are the service's JSON, typed by the schemas that it documents. Made from the service's OpenAPI document by
`make client`, and not to be changed by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, cast

from tilewise.connection import Connection, part

__all__ = [
    "Best",
    "Client",
    "Clock",
    "Config",
    "Default",
    "Device",
    "Dims",
    "Health",
    "History",
    "Imported",
    "Job",
    "Kernel",
    "LookupMiss",
    "LookupQuery",
    "Match",
    "Progress",
    "Refused",
    "Result",
    "Status",
    "Trial",
    "TrialCounts",
]

Clock = Literal["measured", "modelled"]
"""How times came about."""

Config = Mapping[str, int | float | str | bool]
"""A value for each of a kernel's tile parameters and compile options."""

Dims = Mapping[str, int]
"""The size of each of a kernel's dimensions."""

Match = Literal["exact", "older", "nearest", "portfolio", "predicted"]
"""How an answer is known. exact: stored for this very problem, source and toolchain; older: with another toolchain;
nearest: won for another shape, and feasible here; portfolio: what the trials of all tuned shapes foretell to be
best; predicted: by the prior. As a request: how far the answer may relax, each allowing those before it."""

Status = Literal["correct", "constraints", "compile", "correctness", "runtime", "timeout"]
"""How a trial ended."""


class Best(TypedDict):
    """A config that was the fastest of its source, toolchain and clock when it was recorded."""

    config: Config
    time_us: float
    search: str
    ordinal: NotRequired[int]
    source_hash: str
    clock: Clock
    toolchain: str
    tuned_at: str


class Default(TypedDict):
    """What one would launch without tuning."""

    config: Config
    time_us: NotRequired[float]


class Device(TypedDict):
    """A device that the server's own machine knows of."""

    id: str
    name: str
    clock: Clock
    cores: NotRequired[int]
    available: bool
    why_not: NotRequired[str]
    """What it lacks, where it is not available."""


class Health(TypedDict):
    """All is well."""

    status: Literal["ok"]


class History(TypedDict):
    """Every best that a problem had, in the order in which they were recorded."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    bests: Sequence[Best]


class Imported(TypedDict):
    """What an import did: trials that were new, replaced one, or changed nothing; and what was not taken."""

    added: int
    updated: int
    unchanged: int
    bests_changed: int
    refused: Sequence[Refused]


class Job(TypedDict):
    """A tuning that was asked for, and how far it is."""

    id: int
    kernel: str
    shapes: Sequence[Dims]
    dtype: str
    device: str
    trials: NotRequired[int]
    seconds: NotRequired[float]
    search: str
    seed: int
    priority: int
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    reason: str
    """Why it failed; empty otherwise."""
    progress: Progress
    attempts: int
    """How often it was begun; it goes on from its stored trials."""
    cancelling: bool
    created: str
    started: NotRequired[str]
    finished: NotRequired[str]


class Kernel(TypedDict):
    """What can be tuned."""

    name: str
    summary: str
    dims: Sequence[str]
    dtypes: Sequence[str]
    parameters: Sequence[str]
    """Tile parameters and compile options, by name."""


class LookupMiss(TypedDict):
    """A question that nothing stored answers; `why` says what is known instead."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    match: Match
    config: None
    why: str


class LookupQuery(TypedDict):
    """One question: a kernel's problem and the name of the device that is to run it."""

    kernel: str
    dims: Dims
    dtype: NotRequired[str]
    device: str
    match: NotRequired[Match]
    toolchain: NotRequired[str | None]
    """What exactly the time must have been found with."""


class Progress(TypedDict):
    """How far a job is; what is not known yet is absent."""

    shapes_done: NotRequired[int]
    shapes: NotRequired[int]
    dims: NotRequired[Dims]
    """The shape that is being tuned."""
    trials: NotRequired[int]
    """Of that shape, stored ones included."""
    of: NotRequired[int]
    best_us: NotRequired[float]
    clock: NotRequired[Clock]
    scope: NotRequired[str]
    """Key of what is being tuned: /problems/{key} shows it."""
    failed: NotRequired[Sequence[str]]


class Refused(TypedDict):
    """A part of an import that was not taken."""

    place: str
    reason: str


class Result(TypedDict):
    """The best known config of a problem on a device, with its evidence."""

    time_us: NotRequired[float]
    p20_us: NotRequired[float]
    p80_us: NotRequired[float]
    low_us: NotRequired[float]
    high_us: NotRequired[float]
    method: NotRequired[str]
    """How the time was taken."""
    l2: NotRequired[str]
    """The cache before each run: cold or warm."""
    tie: NotRequired[bool]
    """Whether others could not be told apart from the winner."""
    probability: NotRequired[float]
    """That none compared was faster."""
    kernel: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    source_hash: str
    cores: int
    match: Match
    distance: NotRequired[float]
    """Sum of the log ratios of the answer's shape to the question's."""
    verified: bool
    """Whether the output agreed with the float64 reference."""
    config: Config
    samples: int
    default: Default | None
    trials: TrialCounts
    evaluations_to_best: NotRequired[int]
    seconds: float
    """Wall time that the trials took."""
    why: str
    tuned_at: str


class Trial(TypedDict):
    """One config tried once, and what came of it."""

    kernel: str
    source_hash: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    cores: int
    time_us: NotRequired[float]
    p20_us: NotRequired[float]
    p80_us: NotRequired[float]
    low_us: NotRequired[float]
    high_us: NotRequired[float]
    method: NotRequired[str]
    """How the time was taken."""
    l2: NotRequired[str]
    """The cache before each run: cold or warm."""
    tie: NotRequired[bool]
    """Whether others could not be told apart from the winner."""
    probability: NotRequired[float]
    """That none compared was faster."""
    config: Config
    status: Status
    reason: str
    samples: int
    verified: bool
    is_default: bool
    ordinal: NotRequired[int]
    search: str
    seed: NotRequired[int]
    facts: Mapping[str, Any]
    why: str
    seconds: float
    created: str
    current: bool
    """Whether it counts; false where a newer one replaced it."""


class TrialCounts(TypedDict):
    """How many trials there were, and how they ended."""

    total: int
    correct: int
    constraints: int
    compile: int
    correctness: int
    runtime: int
    timeout: int


class Client(Connection):
    """All that can be asked of a server; `Connection` says how."""

    def lookup(
        self,
        kernel: str,
        dims: Mapping[str, int],
        device: str,
        *,
        dtype: str = "float32",
        match: Match = "exact",
        toolchain: str | None = None,
    ) -> Result:
        """The best known config of a problem.

        An answer says in `match` how it is known, and in `why` what from.

        - `kernel`: name of a kernel: one of /v1/kernels, or of a user's file
        - `dims`: the size of each of the kernel's dimensions: one query parameter each, once, in plain digits
        - `dtype`: type of the kernel's inputs
        - `device`: the device's name, whether its times were measured or modelled
        - `match`: how far the answer may relax; each allows those before it
        - `toolchain`: what exactly the time must have been found with

        Raises `NotFound`: Unknown kernel, or nothing stored for this problem.
        """
        return cast(
            "Result",
            self._document(
                "GET",
                f"/v1/configs/{part(kernel)}",
                params={**dims, "dtype": dtype, "device": device, "match": match, "toolchain": toolchain},
            ),
        )

    def lookup_many(self, queries: Sequence[LookupQuery]) -> Sequence[Result | LookupMiss]:
        """Many look-ups at once.

        Answers come in the order of the queries; what nothing stored answers has a null `config`.
        """
        return cast(
            "Sequence[Result | LookupMiss]", self._document("POST", "/v1/lookup", body={"queries": queries})["results"]
        )

    def kernels(self) -> Sequence[Kernel]:
        """What can be tuned.

        The kernels that come with tilewise, and those that the server was started with; others that are stored can
        be looked up too.
        """
        return cast("Sequence[Kernel]", self._document("GET", "/v1/kernels")["kernels"])

    def devices(self) -> Sequence[Device]:
        """What can be tuned on.

        Devices as seen from the server's own machine.
        """
        return cast("Sequence[Device]", self._document("GET", "/v1/devices")["devices"])

    def trials(
        self,
        *,
        kernel: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        status: Status | None = None,
        limit: int = 100,
    ) -> Iterator[Trial]:
        """What was tried.

        Pages of trials, with those that newer ones replaced. `next` leads to the next page; it is absent on the
        last. A page may be shorter than `limit`, and even empty, before the last one.

        - `kernel`: only this kernel
        - `dtype`: only this dtype
        - `device`: only this device name
        - `status`: only trials that ended so
        - `limit`: trials a page
        """
        return self._pages(
            "GET",
            "/v1/trials",
            "trials",
            ("after", "next"),
            params={"kernel": kernel, "dtype": dtype, "device": device, "status": status, "limit": limit},
        )

    def history(self, kernel: str, dims: Mapping[str, int], device: str, *, dtype: str = "float32") -> History:
        """How the best of a problem came about.

        Every trial that was the fastest of its source, toolchain and clock when it was recorded, in that order.

        - `kernel`: name of a kernel: one of /v1/kernels, or of a user's file
        - `dims`: the size of each of the kernel's dimensions: one query parameter each, once, in plain digits
        - `dtype`: type of the kernel's inputs
        - `device`: the device's name, whether its times were measured or modelled

        Raises `NotFound`: Nothing is stored for this problem.
        """
        return cast(
            "History",
            self._document("GET", f"/v1/history/{part(kernel)}", params={**dims, "dtype": dtype, "device": device}),
        )

    def export(self, *, kernel: str | None = None, dtype: str | None = None, device: str | None = None) -> bytes:
        """Every best with its evidence.

        The file that `tilewise import` and the decorator read: of one moment, and sent as it is read. A connection
        that ends before the checksum, which comes last, was cut off.

        - `kernel`: only this kernel
        - `dtype`: only this dtype
        - `device`: only this device name
        """
        return self._send("GET", "/v1/export", params={"kernel": kernel, "dtype": dtype, "device": device}).content

    def import_results(self, data: bytes) -> Imported:
        """Results of another database.

        Merge an export file, in one transaction; what is there and better known stays. What cannot be is refused,
        each with its place and the reason, and the rest is taken.

        - `data`: the file's content
        """
        return cast("Imported", self._document("POST", "/v1/import", body=data))

    def jobs(self, *, limit: int = 50, before: int | None = None) -> Sequence[Job]:
        """Jobs, the newest first.

        The last job's number given as `before` brings the next page.

        - `limit`: jobs a page
        - `before`: the last number of the page before
        """
        return cast(
            "Sequence[Job]", self._document("GET", "/v1/jobs", params={"limit": limit, "before": before})["jobs"]
        )

    def submit(
        self,
        kernel: str,
        shapes: Sequence[Dims],
        device: str,
        *,
        dtype: str = "float32",
        trials: int | None = None,
        seconds: float | None = None,
        search: Literal["guided", "tpe", "random", "exhaustive"] = "guided",
        seed: int = 0,
        priority: int = 0,
    ) -> Job:
        """Ask for a tuning.

        The same request twice is one job. Jobs run on the server's own devices, one a device, the highest priority
        first and of that the oldest; each trial is kept as soon as it is made.

        - `device`: a device's id in /v1/devices

        Raises `NotFound`: The kernel is not one of /v1/kernels.
        """
        return cast(
            "Job",
            self._document(
                "POST",
                "/v1/jobs",
                body={
                    "kernel": kernel,
                    "shapes": shapes,
                    "dtype": dtype,
                    "device": device,
                    "trials": trials,
                    "seconds": seconds,
                    "search": search,
                    "seed": seed,
                    "priority": priority,
                },
            ),
        )

    def job(self, number: int) -> Job:
        """One job.

        What was asked for, and how far it is.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("GET", f"/v1/jobs/{part(number)}"))

    def cancel(self, number: int) -> Job:
        """Cancel a job.

        One that waits is cancelled at once, one that runs after the trial it is at; its trials are kept. A job that
        has ended stays as it is.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("DELETE", f"/v1/jobs/{part(number)}"))

    def events(self, number: int) -> Iterator[Job]:
        """How a job goes, as it goes.

        Server-sent events: one `job` with the job's JSON now, one whenever it changes, and the end of the stream
        when the job has ended.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return self._events("GET", f"/v1/jobs/{part(number)}/events")

    def healthz(self) -> Health:
        """Whether the server runs.

        Does not touch the database.
        """
        return cast("Health", self._document("GET", "/healthz"))

    def readyz(self) -> Health:
        """Whether it can answer.

        Asks the database for the version of its schema, which must be the one that this program needs, and one
        indexed question.
        """
        return cast("Health", self._document("GET", "/readyz"))

    def metrics(self) -> str:
        """Figures for Prometheus.

        In Prometheus' text format.
        """
        return self._send("GET", "/metrics").text
