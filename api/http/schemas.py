"""Schemas of requests and answers, for the validation of bodies and for OpenAPI.

Answers are typed dictionaries: a key that is `NotRequired` is absent if its value is unknown, never null or 0.
Times are in microseconds.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    with_config,
)
from typing_extensions import TypeAliasType, TypedDict  # Pydantic cannot read typing's before Python 3.12

from tilewise.db.helion_records import LONGEST_TEXT
from tilewise.kernels.spec import WORD
from tilewise.tuner.space.problem_checks import LARGEST

__all__ = [
    "MOST_QUERIES",
    "Best",
    "Device",
    "Devices",
    "Explanation",
    "Export",
    "Health",
    "HelionRecord",
    "HelionRecordRequest",
    "HelionRecords",
    "History",
    "Imported",
    "Job",
    "JobRequest",
    "Jobs",
    "Kernel",
    "Kernels",
    "Lane",
    "LookupFault",
    "LookupMiss",
    "LookupQuery",
    "LookupRequest",
    "LookupResults",
    "NotTunedProblem",
    "Problem",
    "Problems",
    "Progress",
    "Result",
    "ScopeFields",
    "StoredProblem",
    "Trial",
    "Trials",
    "ValidationProblem",
    "WorkDone",
    "WorkRequest",
    "Worker",
    "Workers",
]

MOST_QUERIES = 1000


def _as_integer(value: object) -> object:
    """Convert 1000.0 to 1000, since JSON and JSON Schema count both as integers. Text and booleans stay refused."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def _size_or_flag(value: object) -> object:
    """Check a size or flag as one value, so that an invalid one is one fault rather than one per type."""
    value = _as_integer(value)
    if type(value) is bool or (type(value) is str and WORD.fullmatch(value)):
        return value
    if type(value) is int and 1 <= value <= LARGEST:
        return value
    raise ValueError(f"expected a whole number from 1 to {LARGEST}; for a flag true, false or a word")


SIZE_OR_FLAG = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": LARGEST},
        {"type": "boolean"},
        {"type": "string", "pattern": r"^[A-Za-z_][\w.+-]{0,63}$"},
    ]
}
"""JSON Schema of a size or a flag's value."""

SizeOrFlag = Annotated[int | bool | str, PlainValidator(_size_or_flag), WithJsonSchema(SIZE_OR_FLAG)]

# Named types, so that clients generated from the document have them under these names.
Dims = TypeAliasType(
    "Dims",
    Annotated[
        dict[str, SizeOrFlag],
        Field(description="The size of each of a kernel's dimensions, and its flags: true, false or a word."),
    ],
)
Config = TypeAliasType(
    "Config",
    Annotated[
        dict[str, int | float | str | bool],
        Field(description="A value for each of a kernel's tile parameters and compile options."),
    ],
)
Clock = TypeAliasType(
    "Clock", Annotated[Literal["measured", "modelled"], Field(description="Source of times: a device or a model.")]
)
Match = TypeAliasType(
    "Match",
    Annotated[
        Literal["exact", "older", "nearest", "portfolio", "predicted"],
        Field(
            description="Source of an answer. exact: stored for this problem, source and toolchain; older: stored for "
            "another toolchain; nearest: won for another shape, and feasible for this one; portfolio: predicted to be "
            "best by the trials of all tuned shapes; predicted: ranked first by the prior. In a request: how far the "
            "answer may relax; each value allows those before it."
        ),
    ],
)
Status = TypeAliasType(
    "Status",
    Annotated[
        Literal["correct", "constraints", "compile", "correctness", "runtime", "timeout", "unmodelled"],
        Field(description="Outcome of a trial. unmodelled: a modelled part could not judge the config."),
    ],
)


class LookupQuery(BaseModel):
    """One look-up: a kernel's problem and the name of the device that will run it."""

    model_config = ConfigDict(extra="forbid")

    kernel: Name
    dims: Annotated[Dims, Field(examples=[{"M": 1000, "N": 8192}])]
    dtype: Name = "float32"
    device: Annotated[Name, Field(examples=["Ascend910B4"])]
    match: Match = "exact"
    toolchain: Annotated[Name | None, Field(description="toolchain of an exact answer; others count as older")] = None


class LookupRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queries: Annotated[list[LookupQuery], Field(max_length=MOST_QUERIES)]


class Default(TypedDict):
    """The config that is launched without tuning."""

    config: Config
    time_us: NotRequired[Microseconds]


class TrialCounts(TypedDict):
    """Number of trials in total and by outcome."""

    total: Count
    correct: Count
    constraints: Count
    compile: Count
    correctness: Count
    runtime: Count
    timeout: Count
    unmodelled: Count


class Times(TypedDict):
    """A time, the method of its measurement, and its uncertainty."""

    time_us: NotRequired[Microseconds]
    p20_us: NotRequired[Microseconds]
    p80_us: NotRequired[Microseconds]
    low_us: NotRequired[Microseconds]
    high_us: NotRequired[Microseconds]
    method: NotRequired[Annotated[str, Field(description="timing method")]]
    l2: NotRequired[Annotated[str, Field(description="L2 cache before each run: cold or warm")]]
    tie: NotRequired[Annotated[bool, Field(description="true if others were not clearly slower than the winner")]]
    probability: NotRequired[
        Annotated[float, Field(ge=0, le=1, description="probability that no compared config was faster")]
    ]


VerifiedBy = Annotated[
    Literal["reference", "self"],
    Field(description="the float64 reference, or the kernel's own default config where it has no reference"),
]


class Result(Times):
    """The best known config of a problem on a device, with its evidence."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    source_hash: str
    cores: int
    match: Match
    distance: NotRequired[
        Annotated[
            float, Field(ge=0, description="sum of the log ratios between the answer's dims and the requested ones")
        ]
    ]
    verified: Annotated[bool, Field(description="true if the output agreed with `verified_by`")]
    verified_by: NotRequired[VerifiedBy]
    config: Config
    samples: Count
    default: Default | None
    trials: TrialCounts
    evaluations_to_best: NotRequired[Annotated[int, Field(ge=1)]]
    metrics: NotRequired[Annotated[dict[str, float], Field(description="the spec's own figures, and the energy in uJ")]]
    seconds: Annotated[float, Field(ge=0, description="wall time that the trials took")]
    why: str
    tuned_at: Moment


class LookupMiss(TypedDict):
    """A look-up without a result; `why` says what is known instead."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    match: Match
    config: None
    why: str
    type: Annotated[str, Field(description="type of the problem, such as urn:tilewise:problem:not-tuned")]


class Fault(TypedDict):
    pointer: Annotated[str, Field(description="JSON pointer to the fault in the body")]
    detail: str


class LookupFault(TypedDict):
    """A query of a batch that does not match its schema, which spoils no other."""

    config: None
    why: str
    type: Annotated[str, Field(description="urn:tilewise:problem:bad-request")]
    errors: list[Fault]


class LookupResults(TypedDict):
    """One entry per query, in the order of the queries."""

    results: list[Result | LookupMiss | LookupFault]


class Kernel(TypedDict):
    """A kernel that can be tuned."""

    name: str
    summary: str
    dims: list[str]
    dtypes: list[str]
    parameters: Annotated[list[str], Field(description="tile parameters and compile options, by name")]
    flags: NotRequired[
        Annotated[dict[str, list[bool | str]], Field(description="values of each flag; the first is the default")]
    ]
    objective: NotRequired[Annotated[str, Field(description="the metric that ranks its configs instead of the time")]]


class Kernels(TypedDict):
    kernels: list[Kernel]


class Device(TypedDict):
    """A device as seen from the server's machine."""

    id: Annotated[str, Field(examples=["model:Ascend910B4"])]
    name: Annotated[str, Field(examples=["Ascend910B4"])]
    clock: Clock
    cores: NotRequired[Annotated[int, Field(ge=1)]]
    available: bool
    why_not: NotRequired[Annotated[str, Field(min_length=1, description="reason why it is not available")]]


class Devices(TypedDict):
    devices: list[Device]


class ScopeFields(TypedDict):
    """The scope of trials; only trials of one scope are compared."""

    kernel: str
    source_hash: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    cores: Annotated[int, Field(ge=1)]


class Trial(ScopeFields, Times):
    """One run of a config, with its outcome."""

    config: Config
    status: Status
    reason: str
    samples: Count
    verified: bool
    is_default: bool
    ordinal: NotRequired[Count]
    search: str
    seed: NotRequired[Count]
    facts: dict[str, Any]
    why: str
    seconds: Annotated[float, Field(ge=0)]
    created: Moment
    current: Annotated[bool, Field(description="false if the trial no longer counts: a newer one replaced it")]


class Trials(TypedDict):
    trials: list[Trial]
    next: NotRequired[Annotated[str, Field(description="value of `after` for the next page; absent on the last")]]


class StoredProblem(ScopeFields):
    """A problem on one device, source and toolchain, and its best config."""

    key: Annotated[str, Field(description="key of the problem: /problems/{key} shows it")]
    config: Annotated[Config | None, Field(description="the best config; null if none is verified")]
    verified: bool
    time_us: NotRequired[Microseconds]
    speed_up: NotRequired[Annotated[float, Field(gt=0, description="the default's time over the best time")]]
    default: NotRequired[Default]
    trials: TrialCounts
    tuned_at: NotRequired[Moment]


class Problems(TypedDict):
    problems: list[StoredProblem]
    next: NotRequired[Annotated[str, Field(description="value of `after` for the next page; absent on the last")]]


class Best(TypedDict):
    """A config that was the fastest for its source, toolchain and clock when it was recorded."""

    config: Config
    time_us: Microseconds
    search: str
    ordinal: NotRequired[Count]
    source_hash: str
    clock: Clock
    toolchain: str
    tuned_at: Moment


class History(TypedDict):
    """All best configs that a problem has had, in the order of recording."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    bests: list[Best]


@with_config(ConfigDict(json_schema_extra={"x-file": True}))  # clients store and send it unchanged
class Export(TypedDict):
    """An export file; each entry is a result with its source hash, core count and evidence."""

    format: Literal["tilewise"]
    version: int
    created: Moment
    sha256: str
    entries: list[dict[str, Any]]


class Refused(TypedDict):
    """A part of an import that was refused."""

    place: str
    reason: str


class Imported(TypedDict):
    """The outcome of an import: trials that were added, replaced another, or changed nothing, and the refused parts."""

    added: Count
    updated: Count
    unchanged: Count
    bests_changed: Count
    refused: Annotated[list[Refused], Field(max_length=100)]


class JobRequest(BaseModel):
    """A tuning to run; the budget applies to each shape."""

    model_config = ConfigDict(extra="forbid")

    kernel: Name
    search: Annotated[
        Literal["guided", "tpe", "random", "exhaustive", "retune"],
        Field(description="retune: time the best configs of an older toolchain or source again, instead of a search"),
    ] = "guided"
    shapes: Annotated[
        list[Dims],
        Field(
            max_length=100,
            examples=[[{"M": 1000, "N": 8192}]],
            description="at least one; a retune without any is of all that were tuned",
        ),
    ]
    dtype: Name = "float32"
    device: Annotated[
        Name,
        Field(
            description="id of a device in /v1/devices or /v1/workers, such as cuda:1; cuda for any free one; or the "
            "name of a device that measures",
            examples=["model:Ascend910B4"],
        ),
    ]
    toolchain: Annotated[
        str, Field(max_length=1000, description="run on no other toolchain than this one of /v1/workers")
    ] = ""
    fresh: Annotated[bool, Field(strict=True, description="ignore trials that were stored before the job")] = False
    within: (
        Annotated[float, Field(gt=0, le=366 * 86400, description="seconds from now after which the job fails")] | None
    ) = None
    trials: Annotated[int, Field(strict=True, ge=1, le=100_000), BeforeValidator(_as_integer)] | None = None
    seconds: (
        Annotated[
            float, Field(gt=0, le=7 * 86400, description="for each shape; a retune begins no further shape after them")
        ]
        | None
    ) = None
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), BeforeValidator(_as_integer)] = 0
    priority: Annotated[int, Field(strict=True, ge=-100, le=100), BeforeValidator(_as_integer)] = 0

    @field_validator("shapes")
    @classmethod
    def _has_shapes(cls, shapes: list[Any], info: ValidationInfo) -> list[Any]:
        if not shapes and info.data.get("search") != "retune":
            raise ValueError("a search needs at least one shape")
        return shapes


class Flipped(TypedDict):
    """A shape whose best is another config than before a retune."""

    dims: Dims
    cost: NotRequired[
        Annotated[
            float,
            Field(
                gt=0, allow_inf_nan=False, description="what the former best takes over the new one; absent if it fails"
            ),
        ]
    ]


class Progress(TypedDict):
    """The progress of a job; values that are not known yet are absent."""

    shapes_done: NotRequired[Count]
    shapes: NotRequired[Count]
    dims: NotRequired[Annotated[Dims, Field(description="the shape that is being tuned")]]
    trials: NotRequired[Annotated[int, Field(ge=0, description="trials of that shape, stored ones included")]]
    of: NotRequired[Count]
    best_us: NotRequired[Microseconds]
    clock: NotRequired[Clock]
    scope: NotRequired[Annotated[str, Field(description="key of the problem being tuned: /problems/{key} shows it")]]
    failed: NotRequired[list[str]]
    flipped: NotRequired[list[Flipped]]


class Job(TypedDict):
    """A submitted tuning and its progress."""

    id: Annotated[int, Field(ge=1)]
    kernel: str
    shapes: list[Dims]
    dtype: str
    device: str
    trials: NotRequired[Count]
    seconds: NotRequired[Annotated[float, Field(gt=0)]]
    search: str
    seed: Count
    priority: int
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    reason: Annotated[str, Field(description="reason why it failed; empty otherwise")]
    progress: Progress
    attempts: Annotated[int, Field(ge=0, description="number of starts; each resumes from the stored trials")]
    cancelling: bool
    toolchain: NotRequired[Annotated[str, Field(description="the only toolchain that it may run on")]]
    fresh: NotRequired[Annotated[bool, Field(description="it ignores trials that were stored before")]]
    ran_on: NotRequired[Annotated[str, Field(description="host and device where it runs or ran last")]]
    runnable_on: NotRequired[
        Annotated[list[str], Field(description="hosts and devices that could run it, if it waits")]
    ]
    waits: NotRequired[Annotated[str, Field(description="reason why it waits, as far as it is known")]]
    deadline: NotRequired[Moment]
    created: Moment
    started: NotRequired[Moment]
    finished: NotRequired[Moment]


class Lane(TypedDict):
    """A device of a worker."""

    id: Annotated[str, Field(examples=["cuda:1"])]
    name: Annotated[str, Field(examples=["NVIDIA H200"])]
    clock: Clock
    toolchain: NotRequired[Annotated[str, Field(description="absent if it is unknown until a job opens the device")]]
    job: NotRequired[Annotated[int, Field(ge=1, description="number of the job that runs on it")]]


class Worker(TypedDict):
    """A process that runs jobs on the devices of its host."""

    id: Annotated[int, Field(ge=1)]
    host: str
    version: Annotated[str, Field(description="of tilewise")]
    started: Moment
    draining: Annotated[bool, Field(description="it is being stopped, and takes no more jobs")]
    kernels: list[str]
    devices: list[Lane]


@with_config(ConfigDict(extra="allow"))
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
    penalties: Annotated[dict[str, float], Field(description="how many times as slow each makes the config")]
    prior_score: float
    time_us: NotRequired[Microseconds]
    why: NotRequired[str]
    modelled_us: NotRequired[Microseconds]
    rows_us: NotRequired[Annotated[dict[str, float], Field(description="parts that add up to `modelled_us`")]]
    lines: NotRequired[Annotated[list[dict[str, Any]], Field(description="time by source line")]]
    options: NotRequired[Annotated[list[dict[str, Any]], Field(description="price of each compile option")]]
    suggestions: NotRequired[Annotated[list[dict[str, Any]], Field(description="changes that make it faster")]]
    findings: Annotated[list[dict[str, Any]], Field(description="those of `tilewise lint`, with remedies")]


def _as_text(record: Any) -> str:
    """Write a record as JSON. Refuse what no JSON text holds: NaN, half a character or a nesting too deep to write."""
    if not isinstance(record, dict):
        raise ValueError("is not an object")
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON that can be kept: {error}") from None
    if size > LONGEST_TEXT:
        raise ValueError(f"has more than {LONGEST_TEXT} bytes as JSON")
    return text


Plain = Annotated[str, Field(strict=True, max_length=200, pattern="^[ -~]*$")]


class HelionRecordRequest(BaseModel):
    """A record that Helion's autotuner wrote."""

    model_config = ConfigDict(extra="forbid")

    record: Annotated[
        str,
        BeforeValidator(_as_text),
        WithJsonSchema({"type": "object", "additionalProperties": True, "description": "Helion's own JSON"}),
    ]
    device: Annotated[Plain, Field(description="the hardware, as Helion calls it", examples=["NVIDIA H200"])]
    kernel: Annotated[Plain, Field(description="the kernel's name, if known")] = ""
    search_us: (
        Annotated[float, Field(strict=True, gt=0, le=1e12, description="the shortest time that Helion's search saw")]
        | None
    ) = None


class HelionRecord(TypedDict):
    """A record of Helion's autotuner: neither a trial of tilewise's nor verified by it."""

    key: Annotated[str, Field(description="Helion's hash of all that the record depends on")]
    device: str
    kernel: NotRequired[str]
    search_us: NotRequired[
        Annotated[float, Field(gt=0, description="the shortest time that Helion's search saw, by Helion's timer")]
    ]
    stored: Moment
    record: Annotated[dict[str, Any], Field(description="Helion's own JSON")]


class HelionRecords(TypedDict):
    records: list[HelionRecord]
    next: NotRequired[Annotated[str, Field(description="value of `before` for the next page; absent on the last")]]


Number = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]


class WorkLease(TypedDict):
    """A worker's claim of a job."""

    job: Number
    owner: str
    number: Number


class WorkRequest(BaseModel):
    """A call of one of a worker's operations. Its values are those of `tilewise.db`, in the form of their fields."""

    model_config = ConfigDict(extra="forbid")

    arguments: Annotated[dict[str, Any], Field(description="arguments of the operation, by name")]
    lease: Annotated[WorkLease | None, Field(description="the job's, for a write to the store")] = None
    number: Annotated[Number | None, Field(description="rises with each write to the store")] = None


class WorkDone(TypedDict):
    """The result of a worker's operation."""

    result: Annotated[Any, Field(description="null if it returns nothing")]


class Workers(TypedDict):
    workers: list[Worker]


class Jobs(TypedDict):
    jobs: list[Job]
    next: NotRequired[Annotated[str, Field(description="value of `before` for the next page; absent on the last")]]


class Health(TypedDict):
    """The answer of a health check that passed."""

    status: Literal["ok"]


class Problem(TypedDict):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    instance: str


class NotTunedProblem(Problem):
    nearest: NotRequired[
        Annotated[list[Dims], Field(max_length=5, description="tuned shapes of the kernel, nearest first")]
    ]


class ValidationProblem(Problem):
    errors: list[Fault]
