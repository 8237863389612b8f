"""A client of the REST service, with one method per operation; problems are raised as the package's own errors.

    with Client("http://tiles.example:8300") as client:
        result = client.lookup("row_reduce", {"M": 1000, "N": 8192}, "NVIDIA H200", match="nearest")

Methods return the service's JSON, typed by its documented schemas. `make client` generates this module from the
service's OpenAPI document; do not edit it.
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
    "Explanation",
    "Fault",
    "Flipped",
    "Health",
    "HelionRecord",
    "History",
    "Imported",
    "Job",
    "Kernel",
    "Lane",
    "LookupFault",
    "LookupMiss",
    "LookupQuery",
    "Match",
    "Progress",
    "Refused",
    "Result",
    "Status",
    "StoredProblem",
    "Trial",
    "TrialCounts",
    "WorkDone",
    "WorkLease",
    "Worker",
]

Clock = Literal["measured", "modelled"]
"""Source of times: a device or a model."""

Config = Mapping[str, int | float | str | bool]
"""A value for each of a kernel's tile parameters and compile options."""

Dims = Mapping[str, int | bool | str]
"""The size of each of a kernel's dimensions, and its flags: true, false or a word."""

Match = Literal["exact", "older", "nearest", "portfolio", "predicted"]
"""Source of an answer. exact: stored for this problem, source and toolchain; older: stored for another toolchain;
nearest: won for another shape, and feasible for this one; portfolio: predicted to be best by the trials of all tuned
shapes; predicted: ranked first by the prior. In a request: how far the answer may relax; each value allows those
before it."""

Status = Literal["correct", "constraints", "compile", "correctness", "runtime", "timeout", "unmodelled"]
"""Outcome of a trial. unmodelled: a modelled part could not judge the config."""


class Best(TypedDict):
    """A config that was the fastest for its source, toolchain and clock when it was recorded."""

    config: Config
    time_us: float
    search: str
    ordinal: NotRequired[int]
    source_hash: str
    clock: Clock
    toolchain: str
    tuned_at: str


class Default(TypedDict):
    """The config that is launched without tuning."""

    config: Config
    time_us: NotRequired[float]


class Device(TypedDict):
    """A device as seen from the server's machine."""

    id: str
    name: str
    clock: Clock
    cores: NotRequired[int]
    available: bool
    why_not: NotRequired[str]
    """Reason why it is not available."""


class Explanation(TypedDict):
    """The object that `tilewise explain --json` prints. Further members depend on the kernel and the config."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    config: Config
    feasible: bool
    reason: str
    penalties: Mapping[str, float]
    """How many times as slow each makes the config."""
    prior_score: float
    time_us: NotRequired[float]
    why: NotRequired[str]
    modelled_us: NotRequired[float]
    rows_us: NotRequired[Mapping[str, float]]
    """Parts that add up to `modelled_us`."""
    lines: NotRequired[Sequence[Mapping[str, Any]]]
    """Time by source line."""
    options: NotRequired[Sequence[Mapping[str, Any]]]
    """Price of each compile option."""
    suggestions: NotRequired[Sequence[Mapping[str, Any]]]
    """Changes that make it faster."""
    findings: Sequence[Mapping[str, Any]]
    """Those of `tilewise lint`, with remedies."""


class Fault(TypedDict):
    pointer: str
    """JSON pointer to the fault in the body."""
    detail: str


class Flipped(TypedDict):
    """A shape whose best is another config than before a retune."""

    dims: Dims
    cost: NotRequired[float]
    """What the former best takes over the new one; absent if it fails."""


class Health(TypedDict):
    """The answer of a health check that passed."""

    status: Literal["ok"]


class HelionRecord(TypedDict):
    """A record of Helion's autotuner: neither a trial of tilewise's nor verified by it."""

    key: str
    """Helion's hash of all that the record depends on."""
    device: str
    kernel: NotRequired[str]
    search_us: NotRequired[float]
    """The shortest time that Helion's search saw, by Helion's timer."""
    stored: str
    record: Mapping[str, Any]
    """Helion's own JSON."""


class History(TypedDict):
    """All best configs that a problem has had, in the order of recording."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    bests: Sequence[Best]


class Imported(TypedDict):
    """The outcome of an import: trials that were added, replaced another, or changed nothing, and the refused parts."""

    added: int
    updated: int
    unchanged: int
    bests_changed: int
    refused: Sequence[Refused]


class Job(TypedDict):
    """A submitted tuning and its progress."""

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
    """Reason why it failed; empty otherwise."""
    progress: Progress
    attempts: int
    """Number of starts; each resumes from the stored trials."""
    cancelling: bool
    toolchain: NotRequired[str]
    """The only toolchain that it may run on."""
    fresh: NotRequired[bool]
    """It ignores trials that were stored before."""
    ran_on: NotRequired[str]
    """Host and device where it runs or ran last."""
    runnable_on: NotRequired[Sequence[str]]
    """Hosts and devices that could run it, if it waits."""
    waits: NotRequired[str]
    """Reason why it waits, as far as it is known."""
    deadline: NotRequired[str]
    created: str
    started: NotRequired[str]
    finished: NotRequired[str]


class Kernel(TypedDict):
    """A kernel that can be tuned."""

    name: str
    summary: str
    dims: Sequence[str]
    dtypes: Sequence[str]
    parameters: Sequence[str]
    """Tile parameters and compile options, by name."""
    flags: NotRequired[Mapping[str, Sequence[bool | str]]]
    """Values of each flag; the first is the default."""
    objective: NotRequired[str]
    """The metric that ranks its configs instead of the time."""


class Lane(TypedDict):
    """A device of a worker."""

    id: str
    name: str
    clock: Clock
    toolchain: NotRequired[str]
    """Absent if it is unknown until a job opens the device."""
    job: NotRequired[int]
    """Number of the job that runs on it."""


class LookupFault(TypedDict):
    """A query of a batch that does not match its schema, which spoils no other."""

    config: None
    why: str
    type: str
    """Urn:tilewise:problem:bad-request."""
    errors: Sequence[Fault]


class LookupMiss(TypedDict):
    """A look-up without a result; `why` says what is known instead."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    match: Match
    config: None
    why: str
    type: str
    """Type of the problem, such as urn:tilewise:problem:not-tuned."""


class LookupQuery(TypedDict):
    """One look-up: a kernel's problem and the name of the device that will run it."""

    kernel: str
    dims: Dims
    dtype: NotRequired[str]
    device: str
    match: NotRequired[Match]
    toolchain: NotRequired[str | None]
    """Toolchain of an exact answer; others count as older."""


class Progress(TypedDict):
    """The progress of a job; values that are not known yet are absent."""

    shapes_done: NotRequired[int]
    shapes: NotRequired[int]
    dims: NotRequired[Dims]
    """The shape that is being tuned."""
    trials: NotRequired[int]
    """Trials of that shape, stored ones included."""
    of: NotRequired[int]
    best_us: NotRequired[float]
    clock: NotRequired[Clock]
    scope: NotRequired[str]
    """Key of the problem being tuned: /problems/{key} shows it."""
    failed: NotRequired[Sequence[str]]
    flipped: NotRequired[Sequence[Flipped]]


class Refused(TypedDict):
    """A part of an import that was refused."""

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
    """Timing method."""
    l2: NotRequired[str]
    """L2 cache before each run: cold or warm."""
    tie: NotRequired[bool]
    """True if others were not clearly slower than the winner."""
    probability: NotRequired[float]
    """Probability that no compared config was faster."""
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
    """Sum of the log ratios between the answer's dims and the requested ones."""
    verified: bool
    """True if the output agreed with `verified_by`."""
    verified_by: NotRequired[Literal["reference", "self"]]
    """The float64 reference, or the kernel's own default config where it has no reference."""
    config: Config
    samples: int
    default: Default | None
    trials: TrialCounts
    evaluations_to_best: NotRequired[int]
    metrics: NotRequired[Mapping[str, float]]
    """The spec's own figures, and the energy in uJ."""
    seconds: float
    """Wall time that the trials took."""
    why: str
    tuned_at: str


class StoredProblem(TypedDict):
    """A problem on one device, source and toolchain, and its best config."""

    kernel: str
    source_hash: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    cores: int
    key: str
    """Key of the problem: /problems/{key} shows it."""
    config: Config | None
    """The best config; null if none is verified."""
    verified: bool
    time_us: NotRequired[float]
    speed_up: NotRequired[float]
    """The default's time over the best time."""
    default: NotRequired[Default]
    trials: TrialCounts
    tuned_at: NotRequired[str]


class Trial(TypedDict):
    """One run of a config, with its outcome."""

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
    """Timing method."""
    l2: NotRequired[str]
    """L2 cache before each run: cold or warm."""
    tie: NotRequired[bool]
    """True if others were not clearly slower than the winner."""
    probability: NotRequired[float]
    """Probability that no compared config was faster."""
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
    """False if the trial no longer counts: a newer one replaced it."""


class TrialCounts(TypedDict):
    """Number of trials in total and by outcome."""

    total: int
    correct: int
    constraints: int
    compile: int
    correctness: int
    runtime: int
    timeout: int
    unmodelled: int


class WorkDone(TypedDict):
    """The result of a worker's operation."""

    result: Any
    """Null if it returns nothing."""


class WorkLease(TypedDict):
    """A worker's claim of a job."""

    job: int
    owner: str
    number: int


class Worker(TypedDict):
    """A process that runs jobs on the devices of its host."""

    id: int
    host: str
    version: str
    """Of tilewise."""
    started: str
    draining: bool
    """It is being stopped, and takes no more jobs."""
    kernels: Sequence[str]
    devices: Sequence[Lane]


class Client(Connection):
    """A client with a method for each operation of a server; see `Connection` for tokens, timeouts and errors."""

    def lookup(
        self,
        kernel: str,
        dims: Mapping[str, int | bool | str],
        device: str,
        *,
        dtype: str = "float32",
        match: Match = "exact",
        toolchain: str | None = None,
    ) -> Result:
        """Look up the best known config of a problem.

        Return one result. Its `match` names the source of the answer, and its `why` gives the evidence.

        - `kernel`: name of a kernel: one that /v1/kernels lists, or one from a user's file
        - `dims`: size of each dimension of the kernel, in plain digits, and its flags: a query parameter each
        - `dtype`: type of the kernel's inputs
        - `device`: name of the device; its times may be measured or modelled
        - `match`: how far the answer may relax; each value allows those before it
        - `toolchain`: toolchain of an exact answer; others count as older

        Raises `NotFound`: The kernel is unknown, or nothing is stored for this problem.
        """
        return cast(
            "Result",
            self._document(
                "GET",
                f"/v1/configs/{part(kernel)}",
                params={**dims, "dtype": dtype, "device": device, "match": match, "toolchain": toolchain},
            ),
        )

    def lookup_many(self, queries: Sequence[LookupQuery]) -> Sequence[Result | LookupMiss | LookupFault]:
        """Look up many problems at once.

        Return results in the order of the queries. One without an answer has a null `config`, and the `type` of the
        problem; one that does not match its schema fails alone, and has `errors`. Of one batch, at most 16 queries
        are answered by portfolios or predictions; further ones are `busy`.
        """
        return cast(
            "Sequence[Result | LookupMiss | LookupFault]",
            self._document("POST", "/v1/lookup", body={"queries": queries})["results"],
        )

    def explain(
        self, kernel: str, dims: Mapping[str, int | bool | str], device: str, *, dtype: str = "float32"
    ) -> Explanation:
        """Explain the best config of a problem.

        Return what the model of the part says of the config that a look-up returns: time by pipe and by source line,
        the price of each compile option, faster neighbours, and the findings of the linter. It is compiled once,
        which takes seconds.

        - `kernel`: name of a kernel: one that /v1/kernels lists, or one from a user's file
        - `dims`: size of each dimension of the kernel, in plain digits, and its flags: a query parameter each
        - `dtype`: type of the kernel's inputs
        - `device`: name of the device; its times may be measured or modelled

        Raises `NotFound`: Nothing is stored for this problem, or it cannot be modelled.
        """
        return cast(
            "Explanation",
            self._document("GET", f"/v1/explain/{part(kernel)}", params={**dims, "dtype": dtype, "device": device}),
        )

    def kernels(self) -> Sequence[Kernel]:
        """List the kernels that can be tuned.

        Return the kernels that come with tilewise and those that the server was started with. Other kernels with
        stored results can be looked up too.
        """
        return cast("Sequence[Kernel]", self._document("GET", "/v1/kernels")["kernels"])

    def devices(self) -> Sequence[Device]:
        """List the devices.

        Return the devices as seen from the server's own machine.
        """
        return cast("Sequence[Device]", self._document("GET", "/v1/devices")["devices"])

    def problems(
        self,
        *,
        kernel: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        dims: str | None = None,
        limit: int = 50,
    ) -> Iterator[StoredProblem]:
        """List problems, those written to last first.

        Return problems in pages, with their best configs; `config` is null where none is verified. `next` and the
        `Link` header lead to the next page; they are absent on the last.

        - `kernel`: only this kernel
        - `dtype`: only this dtype
        - `device`: only this device name
        - `dims`: only shapes with these sizes and flags
        - `limit`: problems per page
        """
        return self._pages(
            "GET",
            "/v1/problems",
            "problems",
            ("after", "next"),
            params={"kernel": kernel, "dtype": dtype, "device": device, "dims": dims, "limit": limit},
        )

    def trials(
        self,
        *,
        kernel: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        dims: str | None = None,
        status: Status | None = None,
        limit: int = 100,
    ) -> Iterator[Trial]:
        """List trials.

        Return trials in pages, including trials that newer ones replaced. `next` and the `Link` header lead to the
        next page; they are absent on the last. A page before the last may be shorter than `limit`, or even empty.

        - `kernel`: only this kernel
        - `dtype`: only this dtype
        - `device`: only this device name
        - `dims`: only shapes with these sizes and flags
        - `status`: only trials with this status
        - `limit`: trials per page
        """
        return self._pages(
            "GET",
            "/v1/trials",
            "trials",
            ("after", "next"),
            params={"kernel": kernel, "dtype": dtype, "device": device, "dims": dims, "status": status, "limit": limit},
        )

    def history(
        self, kernel: str, dims: Mapping[str, int | bool | str], device: str, *, dtype: str = "float32"
    ) -> History:
        """List the best configs that a problem has had.

        Return every trial that was the fastest for its source, toolchain and clock when it was recorded, in the
        order of recording.

        - `kernel`: name of a kernel: one that /v1/kernels lists, or one from a user's file
        - `dims`: size of each dimension of the kernel, in plain digits, and its flags: a query parameter each
        - `dtype`: type of the kernel's inputs
        - `device`: name of the device; its times may be measured or modelled

        Raises `NotFound`: Nothing is stored for this problem.
        """
        return cast(
            "History",
            self._document("GET", f"/v1/history/{part(kernel)}", params={**dims, "dtype": dtype, "device": device}),
        )

    def export(
        self, *, kernel: str | None = None, dtype: str | None = None, device: str | None = None, dims: str | None = None
    ) -> bytes:
        """Export every best config with its evidence.

        Stream the file that `tilewise import` and the decorator read, from one snapshot of the database. The
        checksum comes last: a file without it was cut off.

        - `kernel`: only this kernel
        - `dtype`: only this dtype
        - `device`: only this device name
        - `dims`: only shapes with these sizes and flags
        """
        return self._send(
            "GET", "/v1/export", params={"kernel": kernel, "dtype": dtype, "device": device, "dims": dims}
        ).content

    def import_results(self, data: bytes) -> Imported:
        """Import results of another database.

        Merge an export file, plain or gzipped, in one transaction. A stored trial with stronger evidence stays.
        Impossible parts are refused, each with its place and the reason; the rest is imported.

        - `data`: the file's content
        """
        return cast("Imported", self._document("POST", "/v1/import", body=data))

    def jobs(
        self,
        *,
        limit: int = 50,
        state: Literal["queued", "running", "done", "failed", "cancelled"] | None = None,
        kernel: str | None = None,
        device: str | None = None,
    ) -> Iterator[Job]:
        """List jobs, the newest first.

        Return one page of jobs. For the next page, pass `next`, the number of its last job, as `before`; the `Link`
        header leads there too. They are absent on the last page.

        - `limit`: jobs per page
        - `state`: only jobs in this state
        - `kernel`: only jobs of this kernel
        - `device`: only jobs of the device with this id
        """
        return self._pages(
            "GET",
            "/v1/jobs",
            "jobs",
            ("before", "next"),
            params={"limit": limit, "state": state, "kernel": kernel, "device": device},
        )

    def submit(
        self,
        kernel: str,
        shapes: Sequence[Dims],
        device: str,
        *,
        search: Literal["guided", "tpe", "random", "exhaustive", "retune"] = "guided",
        dtype: str = "float32",
        toolchain: str = "",
        fresh: bool = False,
        within: float | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        seed: int = 0,
        priority: int = 0,
    ) -> Job:
        """Submit a tuning job.

        Return the job of this request; the same request twice is one job. Jobs run on the devices of the server and
        of live workers, one per device, by priority and then by age. Each trial is stored as soon as it is made.

        - `search`: retune: time the best configs of an older toolchain or source again, instead of a search
        - `shapes`: at least one; a retune without any is of all that were tuned
        - `device`: id of a device in /v1/devices or /v1/workers, such as cuda:1; cuda for any free one; or the name
          of a device that measures
        - `toolchain`: run on no other toolchain than this one of /v1/workers
        - `fresh`: ignore trials that were stored before the job

        Raises `NotFound`: /v1/kernels does not list the kernel.
        """
        return cast(
            "Job",
            self._document(
                "POST",
                "/v1/jobs",
                body={
                    "kernel": kernel,
                    "search": search,
                    "shapes": shapes,
                    "dtype": dtype,
                    "device": device,
                    "toolchain": toolchain,
                    "fresh": fresh,
                    "within": within,
                    "trials": trials,
                    "seconds": seconds,
                    "seed": seed,
                    "priority": priority,
                },
            ),
        )

    def job(self, number: int) -> Job:
        """Show one job.

        Return the job's request, its progress, and where it runs or why it waits.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("GET", f"/v1/jobs/{part(number)}"))

    def cancel(self, number: int) -> Job:
        """Cancel a job.

        Cancel a waiting job at once, and a running one after its current trial; its trials are kept. A job that has
        ended stays as it is.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("DELETE", f"/v1/jobs/{part(number)}"))

    def retry(self, number: int) -> Job:
        """Retry a job.

        Queue a failed or cancelled job again; it goes on from its trials. Any other job stays as it is. If another
        job serves the same request by now, return that one.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("POST", f"/v1/jobs/{part(number)}/retry"))

    def delete_record(self, number: int) -> Job:
        """Delete the record of a job.

        Delete the record of a job that has ended, and return it. Its trials stay, and an equal request is a new job.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return cast("Job", self._document("DELETE", f"/v1/jobs/{part(number)}/record"))

    def events(self, number: int) -> Iterator[Job]:
        """Follow the progress of a job.

        Stream server-sent events: a `job` event with the job's JSON now, and one after each change. The stream ends
        when the job has ended.

        - `number`: the job's number

        Raises `NotFound`: There is no such job.
        """
        return self._events("GET", f"/v1/jobs/{part(number)}/events")

    def workers(self) -> Sequence[Worker]:
        """List the live workers.

        Return the processes that run jobs, this server's among them, each with its devices and their jobs. One that
        was lost disappears after a minute without a sign of life.
        """
        return cast("Sequence[Worker]", self._document("GET", "/v1/workers")["workers"])

    def work(
        self,
        operation: Literal[
            "jobs.beat",
            "jobs.begin",
            "jobs.claim",
            "jobs.expire",
            "jobs.finish",
            "jobs.get",
            "jobs.give_back",
            "jobs.next",
            "jobs.running",
            "jobs.take_back",
            "jobs.waiting",
            "kernels.digests",
            "kernels.get",
            "store.answers",
            "store.mark",
            "store.record",
            "store.result",
            "store.results",
            "store.retire",
            "store.scopes",
            "store.suggestions",
            "store.trials",
            "store.verify",
            "workers.all",
            "workers.beat",
            "workers.forget",
            "workers.leave",
            "workers.register",
        ],
        arguments: Mapping[str, Any],
        *,
        lease: WorkLease | None = None,
        number: int | None = None,
    ) -> WorkDone:
        """Carry out an operation of a worker.

        Carry out what `tilewise worker --server` asks for, and return its `result`. A write to the store is for the
        job of a lease. If one of its number or a later one was stored under that lease, it succeeds and writes
        nothing.

        - `operation`: a method of the queue or the store
        - `arguments`: arguments of the operation, by name
        - `lease`: the job's, for a write to the store
        - `number`: rises with each write to the store

        Raises `NotFound`: There is no such operation, job or trial.
        """
        return cast(
            "WorkDone",
            self._document(
                "POST", f"/v1/work/{part(operation)}", body={"arguments": arguments, "lease": lease, "number": number}
            ),
        )

    def helion_records(
        self, *, kernel: str | None = None, device: str | None = None, limit: int = 50
    ) -> Iterator[HelionRecord]:
        """List records of Helion's autotuner, the newest first.

        Return one page of records, which no look-up answers from: they are Helion's, and nothing here verified them.

        - `kernel`: only records of this kernel
        - `device`: only records of this hardware, as Helion calls it
        - `limit`: records per page
        """
        return self._pages(
            "GET",
            "/v1/helion",
            "records",
            ("before", "next"),
            params={"kernel": kernel, "device": device, "limit": limit},
        )

    def helion_record(self, key: str) -> HelionRecord:
        """Show a record of Helion's autotuner.

        Return a record as Helion wrote it.

        - `key`: Helion's hash of all that the record depends on

        Raises `NotFound`: There is no such record.
        """
        return cast("HelionRecord", self._document("GET", f"/v1/helion/{part(key)}"))

    def keep_helion_record(
        self, key: str, record: Mapping[str, Any], device: str, *, kernel: str = "", search_us: float | None = None
    ) -> HelionRecord:
        """Keep a record of Helion's autotuner.

        Keep a record, in place of one of the same key. Of many, those written last are kept.

        - `key`: Helion's hash of all that the record depends on
        - `record`: Helion's own JSON
        - `device`: the hardware, as Helion calls it
        - `kernel`: the kernel's name, if known
        """
        return cast(
            "HelionRecord",
            self._document(
                "PUT",
                f"/v1/helion/{part(key)}",
                body={"record": record, "device": device, "kernel": kernel, "search_us": search_us},
            ),
        )

    def healthz(self) -> Health:
        """Check that the server runs.

        Answer without touching the database.
        """
        return cast("Health", self._document("GET", "/healthz"))

    def readyz(self) -> Health:
        """Check that the server can answer.

        Check that the database has the schema version that this program needs, and run one indexed query. Checks at
        the same time are one.
        """
        return cast("Health", self._document("GET", "/readyz"))

    def metrics(self) -> str:
        """Metrics for Prometheus.

        Return the metrics in Prometheus' text format: those of all processes of the server, by the label `process`.
        Those of the fleet are counted at most once in `RECOUNT_SECONDS`, and stay as they are while the database
        fails.
        """
        return self._send("GET", "/metrics").text
