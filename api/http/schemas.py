"""The forms of requests and answers, for validation of bodies and for OpenAPI.

Answers are typed dictionaries: a key that is `NotRequired` is absent where its value is unknown, never null or 0.
Times are microseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypeAliasType, TypedDict  # Pydantic cannot read typing's before Python 3.12

from tilewise.tuner.space.problem import LARGEST

__all__ = [
    "MOST_QUERIES",
    "Best",
    "Device",
    "Devices",
    "Export",
    "Health",
    "History",
    "Imported",
    "Job",
    "JobRequest",
    "Jobs",
    "Kernel",
    "Kernels",
    "LookupMiss",
    "LookupQuery",
    "LookupRequest",
    "LookupResults",
    "NotTunedProblem",
    "Problem",
    "Progress",
    "Result",
    "ScopeFields",
    "Trial",
    "Trials",
    "ValidationProblem",
]

MOST_QUERIES = 1000


def _as_integer(value: object) -> object:
    """JSON has one kind of number: 1000.0 is the integer 1000, in JSON Schema too. Text and booleans stay refused."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The validator stands behind the bounds, which the document would not have under JSON Schema's names otherwise.
Size = Annotated[int, Field(strict=True, ge=1, le=LARGEST), BeforeValidator(_as_integer)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
Microseconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]

# Named, so that clients made from the document have these names too.
Dims = TypeAliasType(
    "Dims", Annotated[dict[str, Size], Field(description="The size of each of a kernel's dimensions.")]
)
Config = TypeAliasType(
    "Config",
    Annotated[
        dict[str, int | float | str | bool],
        Field(description="A value for each of a kernel's tile parameters and compile options."),
    ],
)
Clock = TypeAliasType("Clock", Annotated[Literal["measured", "modelled"], Field(description="How times came about.")])
Match = TypeAliasType(
    "Match",
    Annotated[
        Literal["exact", "older", "nearest", "portfolio", "predicted"],
        Field(
            description="How an answer is known. exact: stored for this very problem, source and toolchain; "
            "older: with another toolchain; nearest: won for another shape, and feasible here; portfolio: what the "
            "trials of all tuned shapes foretell to be best; predicted: by the prior. As a request: how far the answer "
            "may relax, each allowing those before it."
        ),
    ],
)
Status = TypeAliasType(
    "Status",
    Annotated[
        Literal["correct", "constraints", "compile", "correctness", "runtime", "timeout"],
        Field(description="How a trial ended."),
    ],
)


class LookupQuery(BaseModel):
    """One question: a kernel's problem and the name of the device that is to run it."""

    model_config = ConfigDict(extra="forbid")

    kernel: Name
    dims: Annotated[Dims, Field(examples=[{"M": 1000, "N": 8192}])]
    dtype: Name = "float32"
    device: Annotated[Name, Field(examples=["Ascend910B4"])]
    match: Match = "exact"
    toolchain: Annotated[Name | None, Field(description="what exactly the time must have been found with")] = None


class LookupRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    queries: Annotated[list[LookupQuery], Field(max_length=MOST_QUERIES)]


class Default(TypedDict):
    """What one would launch without tuning."""

    config: Config
    time_us: NotRequired[Microseconds]


class TrialCounts(TypedDict):
    """How many trials there were, and how they ended."""

    total: Count
    correct: Count
    constraints: Count
    compile: Count
    correctness: Count
    runtime: Count
    timeout: Count


class Times(TypedDict):
    """A time, how it was taken, and how sure it is."""

    time_us: NotRequired[Microseconds]
    p20_us: NotRequired[Microseconds]
    p80_us: NotRequired[Microseconds]
    low_us: NotRequired[Microseconds]
    high_us: NotRequired[Microseconds]
    method: NotRequired[Annotated[str, Field(description="how the time was taken")]]
    l2: NotRequired[Annotated[str, Field(description="the cache before each run: cold or warm")]]
    tie: NotRequired[Annotated[bool, Field(description="whether others could not be told apart from the winner")]]
    probability: NotRequired[Annotated[float, Field(ge=0, le=1, description="that none compared was faster")]]


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
        Annotated[float, Field(ge=0, description="sum of the log ratios of the answer's shape to the question's")]
    ]
    verified: Annotated[bool, Field(description="whether the output agreed with the float64 reference")]
    config: Config
    samples: Count
    default: Default | None
    trials: TrialCounts
    evaluations_to_best: NotRequired[Annotated[int, Field(ge=1)]]
    seconds: Annotated[float, Field(ge=0, description="wall time that the trials took")]
    why: str
    tuned_at: Moment


class LookupMiss(TypedDict):
    """A question that nothing stored answers; `why` says what is known instead."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    match: Match
    config: None
    why: str


class LookupResults(TypedDict):
    """One entry a query, in the order of the queries."""

    results: list[Result | LookupMiss]


class Kernel(TypedDict):
    """What can be tuned."""

    name: str
    summary: str
    dims: list[str]
    dtypes: list[str]
    parameters: Annotated[list[str], Field(description="tile parameters and compile options, by name")]


class Kernels(TypedDict):
    kernels: list[Kernel]


class Device(TypedDict):
    """A device that the server's own machine knows of."""

    id: Annotated[str, Field(examples=["model:Ascend910B4"])]
    name: Annotated[str, Field(examples=["Ascend910B4"])]
    clock: Clock
    cores: NotRequired[Annotated[int, Field(ge=1)]]
    available: bool
    why_not: NotRequired[Annotated[str, Field(min_length=1, description="what it lacks, where it is not available")]]


class Devices(TypedDict):
    devices: list[Device]


class ScopeFields(TypedDict):
    """What trials must share to be compared."""

    kernel: str
    source_hash: str
    dims: Dims
    dtype: str
    device: str
    clock: Clock
    toolchain: str
    cores: Annotated[int, Field(ge=1)]


class Trial(ScopeFields, Times):
    """One config tried once, and what came of it."""

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
    current: Annotated[bool, Field(description="whether it counts; false where a newer one replaced it")]


class Trials(TypedDict):
    trials: list[Trial]
    next: NotRequired[Annotated[str, Field(description="`after` of the next page; absent on the last")]]


class Best(TypedDict):
    """A config that was the fastest of its source, toolchain and clock when it was recorded."""

    config: Config
    time_us: Microseconds
    search: str
    ordinal: NotRequired[Count]
    source_hash: str
    clock: Clock
    toolchain: str
    tuned_at: Moment


class History(TypedDict):
    """Every best that a problem had, in the order in which they were recorded."""

    kernel: str
    dims: Dims
    dtype: str
    device: str
    bests: list[Best]


@with_config(ConfigDict(json_schema_extra={"x-file": True}))  # to be kept and sent as it is
class Export(TypedDict):
    """An export file; an entry is a result with its source hash, cores and evidence."""

    format: Literal["tilewise"]
    version: int
    created: Moment
    sha256: str
    entries: list[dict[str, Any]]


class Refused(TypedDict):
    """A part of an import that was not taken."""

    place: str
    reason: str


class Imported(TypedDict):
    """What an import did: trials that were new, replaced one, or changed nothing; and what was not taken."""

    added: Count
    updated: Count
    unchanged: Count
    bests_changed: Count
    refused: Annotated[list[Refused], Field(max_length=100)]


class JobRequest(BaseModel):
    """A tuning to run: each shape with that budget."""

    model_config = ConfigDict(extra="forbid")

    kernel: Name
    shapes: Annotated[list[Dims], Field(min_length=1, max_length=100, examples=[[{"M": 1000, "N": 8192}]])]
    dtype: Name = "float32"
    device: Annotated[Name, Field(description="a device's id in /v1/devices", examples=["model:Ascend910B4"])]
    trials: Annotated[int, Field(strict=True, ge=1, le=100_000), BeforeValidator(_as_integer)] | None = None
    seconds: Annotated[float, Field(gt=0, le=7 * 86400)] | None = None
    search: Literal["guided", "tpe", "random", "exhaustive"] = "guided"
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1), BeforeValidator(_as_integer)] = 0
    priority: Annotated[int, Field(strict=True, ge=-100, le=100), BeforeValidator(_as_integer)] = 0


class Progress(TypedDict):
    """How far a job is; what is not known yet is absent."""

    shapes_done: NotRequired[Count]
    shapes: NotRequired[Count]
    dims: NotRequired[Annotated[Dims, Field(description="the shape that is being tuned")]]
    trials: NotRequired[Annotated[int, Field(ge=0, description="of that shape, stored ones included")]]
    of: NotRequired[Count]
    best_us: NotRequired[Microseconds]
    clock: NotRequired[Clock]
    scope: NotRequired[Annotated[str, Field(description="key of what is being tuned: /problems/{key} shows it")]]
    failed: NotRequired[list[str]]


class Job(TypedDict):
    """A tuning that was asked for, and how far it is."""

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
    reason: Annotated[str, Field(description="why it failed; empty otherwise")]
    progress: Progress
    attempts: Annotated[int, Field(ge=0, description="how often it was begun; it goes on from its stored trials")]
    cancelling: bool
    created: Moment
    started: NotRequired[Moment]
    finished: NotRequired[Moment]


class Jobs(TypedDict):
    jobs: list[Job]


class Health(TypedDict):
    """All is well."""

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


class Fault(TypedDict):
    pointer: Annotated[str, Field(description="JSON pointer to the faulty place in the body")]
    detail: str


class ValidationProblem(Problem):
    errors: list[Fault]
