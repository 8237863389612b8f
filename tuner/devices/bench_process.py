"""The bench process of a measured device: the tensors, the launches and the clock.

It answers the requests below, one at a time, through `call`. What a config does to it (a fault, a hang, memory that
grows) is for the other side to see and to answer by a new process. The same `Bench` may be used without a process of
its own, by benchmarks that time other things beside configs.
"""

from __future__ import annotations

import errno
import functools
import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from tilewise.db.records import Status
from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Outcome, Timing, Verdict
from tilewise.tuner.devices.cuda_timer import summarise
from tilewise.tuner.devices.runtime import Description, Failure, Run, Runtime
from tilewise.tuner.verify import DRAWS, Arguments, check_outputs, disagreement, verify

__all__ = ["ENTRY", "Bench", "Reply", "Request", "call"]

ENTRY = "tilewise.tuner.devices.bench_process:call"

Request = Literal["describe", "bytes_per_us", "prepare", "measure", "verify"]

Answer = TypeVar("Answer", bound=Outcome | Verdict)

SECONDS, BLOCK = 0.05, 20
"""A config is timed for so long at least, in blocks of so many runs."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[Answer]):
    """The answer about one config; after a `lost` one this process can do nothing more."""

    answer: Answer
    lost: bool = False


def call(runtime: Sequence[Any], request: Request, *arguments: Any) -> Any:
    """Answer one request. `runtime` is how to open the accelerator: `"package.module:function"` and its arguments.

    Requests about a config name the kernel by where its spec stands. Raises `BadSpec` and `Unavailable` only.
    """
    bench = _bench(*runtime)
    if request in ("describe", "bytes_per_us"):
        return getattr(bench, request)()
    origin, problem, *rest = arguments
    return getattr(bench, request)(_spec(origin), problem, *rest)


@functools.cache
def _bench(runtime: str, *arguments: Any) -> Bench:
    module, _, name = runtime.partition(":")
    return Bench(getattr(importlib.import_module(module), name)(*arguments))


_spec = functools.cache(registry.load)


class Bench:
    """One accelerator and the tensors of one problem on it; only the last problem's are kept."""

    def __init__(self, runtime: Runtime, *, seconds: float = SECONDS) -> None:
        self.runtime, self._seconds = runtime, seconds
        self._held: tuple[KernelSpec, Problem, Arguments] | None = None

    def describe(self) -> Description:
        return self.runtime.describe()

    def bytes_per_us(self) -> float | None:
        return self.runtime.bytes_per_us()

    def prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Draw the inputs and compute the reference, which takes long on some devices. Raises `BadSpec`."""
        self.runtime.check(spec)
        self.arguments(spec, problem).expected()
        self.runtime.synchronize()

    def measure(self, spec: KernelSpec, problem: Problem, config: Config) -> Reply[Outcome]:
        """Run the config once on poisoned outputs, time it, and see that it kept to its tensors."""
        try:
            return Reply(self._measured(spec, problem, config))
        except BadSpec:
            raise
        except Exception as error:
            failure = self._failure(error)
            return Reply(failure.outcome, failure.lost)

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Reply[Verdict]:
        """Compare with the float64 reference on every draw of the inputs."""
        try:
            arguments = self.arguments(spec, problem)
            run = self.runtime.launcher(spec, problem, config, arguments.bind(config))
            return Reply(verify(spec, problem, config, arguments, run=run, draws=DRAWS))
        except Exception as error:
            failure = self._failure(error)
            outcome = failure.outcome
            return Reply(disagreement(f"the launch failed: {outcome.reason}", status=outcome.status), failure.lost)

    def arguments(self, spec: KernelSpec, problem: Problem) -> Arguments:
        """The problem's tensors, made once."""
        if self._held is None or self._held[0] != spec or self._held[1] != problem:
            self._held = None  # free the old ones first
            place, reference = self.runtime.place, self.runtime.reference_place
            self._held = (spec, problem, Arguments(spec, problem, device=place, reference_device=reference))
        return self._held[2]

    def _measured(self, spec: KernelSpec, problem: Problem, config: Config) -> Outcome:
        arguments = self.arguments(spec, problem)
        run = self.runtime.launcher(spec, problem, config, arguments.bind(config))
        arguments.restore()
        arguments.poison()
        kernels = run()
        self.runtime.synchronize()
        if self.runtime.place == self.runtime.reference_place:  # elsewhere the comparison costs more than the timing
            verdict = check_outputs(arguments)
            if not verdict.agreed:
                return Outcome(verdict.status, verdict.reason)
        timing = self._timing(run, self.runtime.kernel_names(spec, problem, config), arguments)
        self.runtime.synchronize()
        if (damage := arguments.damage()) is not None:
            return Outcome(Status.CORRECTNESS, damage)
        return Outcome(Status.CORRECT, timing=timing, facts=dict(self.runtime.kernel_facts(kernels)))

    def _timing(self, run: Run, kernels: Sequence[str], arguments: Arguments) -> Timing:
        before = arguments.reset if arguments.needs_reset else None
        samples: list[float] = []
        end = time.perf_counter() + self._seconds
        while not samples or time.perf_counter() < end:
            samples += self.runtime.timer.samples_us(run, kernels, BLOCK, before)
        return summarise(samples)

    def _failure(self, error: Exception) -> Failure:
        """What the error means, and whether the device still works after it."""
        failure = self.runtime.failure(error)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return Failure(failure.outcome, lost=True)  # what fills the disk goes with the process's folder
        if not failure.lost:
            try:
                self.runtime.synchronize()
            except Exception as second:
                return Failure(self.runtime.failure(second).outcome, lost=True)
        return failure
