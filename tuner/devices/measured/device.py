"""A device with measured times: configs are compiled ahead in worker processes, timed in another, and faults handled.

A config may crash, hang, or take memory until it is killed, and its fault may surface only after the next one has
begun. So a config that faults is tried once more in a fresh process. If it faults again, the fault is its own and the
config is finished. Otherwise the config timed before it in the same process is measured again. That config, and all
later ones, run in the fresh process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from tilewise import errors
from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.measured import bench_process
from tilewise.tuner.devices.measured.bench_process import Reply, Request
from tilewise.tuner.devices.measured.compilers import Compilers
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.draws import DRAWS
from tilewise.tuner.measure.outcome import FAULTS, LAST_LINES, Outcome, Timing, Verdict
from tilewise.tuner.measure.robust_stats import quantile
from tilewise.tuner.workers.artefacts import waiting_seconds
from tilewise.tuner.workers.device_lock import DeviceLock
from tilewise.tuner.workers.fair_lock import FairLock
from tilewise.tuner.workers.worker import Worker, WorkerDied, WorkerError, WorkerFailed, WorkerTimeout

__all__ = ["Limits", "MeasuredDevice"]

_STARTS = 3
"""Number of bench processes started before the device counts as gone."""

_ASSUMED_BYTES_PER_US = 1e5
"""Memory rate assumed for limits if the device's rate is unknown: a tenth of the slowest device's."""

_Job = tuple[str, Problem]
"""The spec's location and the problem, as a bench process receives them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits beyond which a process counts as hung, or as using too much.

    A run may take `run_seconds` plus `floors` times the problem's memory floor, not counting compilation and drawing
    the inputs. `growth_bytes` is host memory on top of the process's memory before the run and of 16 times the
    problem's buffers, which a reference on the host may take. `disk_bytes` is the limit of its temporary folder.
    """

    compile_seconds: float = 120.0
    compile_bytes: int = 8 << 30
    prepare_seconds: float = 600.0
    run_seconds: float = 15.0
    floors: float = 1e5
    growth_bytes: int = 4 << 30
    disk_bytes: int = 4 << 30


class MeasuredDevice(Device):
    """An accelerator held by this process alone until `close`. Several threads may use it, each run in its turn.

    `runtime` says how the bench process opens the accelerator: `"package.module:function"` and its arguments. `compile`
    names the function that compiles ahead; it is called with the spec's location, the problem, the config and
    `compile_arguments()`. `imports` lists the slow modules that both need; importing them must not open the
    accelerator. Compile processes start with `compile_imports` too, while the accelerator is opened. `key` identifies
    the chip on this machine. If another process holds the device, wait for it up to `wait` seconds (None:
    indefinitely). Raises `Unavailable`.
    """

    clock = Clock.MEASURED
    noisy = True
    settle_seconds = 1.0

    def __init__(
        self,
        id: str,  # noqa: A002 - the device's own word
        key: str,
        runtime: Sequence[Any],
        compile: str,  # noqa: A002
        *,
        imports: Sequence[str],
        compile_imports: Sequence[str] = (),
        compile_env: Mapping[str, str | None] | None = None,
        bench_env: Mapping[str, str | None] | None = None,
        jobs: int | None = None,
        limits: Limits | None = None,
        wait: float | None = None,
    ) -> None:
        settings = read_settings()
        self.id, self.limits = id, limits or Limits()
        self._runtime = tuple(runtime)
        self._compilers = Compilers(
            compile,
            jobs or settings.jobs,
            env=compile_env,
            imports=(*imports, *compile_imports),
            memory_bytes=self.limits.compile_bytes,
        )
        self._lock = DeviceLock(id, key, settings.cache_folder / "locks")
        self._lock.acquire(wait)
        self._bench = Worker(bench_process.ENTRY, env=bench_env, imports=imports, disk_bytes=self.limits.disk_bytes)
        self._turns = FairLock()
        self._prepared: _Job | None = None
        self._allowed_bytes = 0
        self._rates: list[float | None] = []
        try:
            self.warm_up()
            described = self._request("describe")
        except BaseException:
            self.close()
            raise
        self.target, self.toolchain, self.notes = described.target, described.toolchain, described.notes
        self.measures_energy = described.energy
        self._memory_bytes: int = described.memory_bytes

    # The contract -----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        """Yield each outcome one config late, since a config may turn out to have spoilt the next one."""
        spec = registry.located(spec)
        compiling = [self._compile(spec.origin, problem, config) for config in configs]
        last: tuple[Config, Outcome] | None = None
        try:
            for config, future in zip(configs, compiling, strict=True):
                outcome = self._outcome(spec, problem, config, future, to_beat_us())
                if last is not None:
                    again = FAULTS in outcome.facts and last[1].timing is not None
                    yield self._measure(spec, problem, last[0], last[1].facts) if again else last[1]
                last = (config, outcome)
            if last is not None:
                yield last[1]
        finally:
            for future in compiling:
                future.cancel()

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        spec = registry.located(spec)
        try:
            self._compile(spec.origin, problem, config).result()  # not in the bench process: compilers crash and hang
        except WorkerError as error:
            refused = self._not_compiled(error)
            return disagreement(refused.reason, status=refused.status)
        for _ in range(2):
            answer, faulted = self._attempt("verify", spec, problem, dict(config), runs=DRAWS)
            if not faulted:
                break
        if isinstance(answer, Verdict):
            return answer
        assert isinstance(answer, Outcome)
        return disagreement(f"verifying: {answer.reason}", status=answer.status)

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> list[Outcome]:
        """Time the configs in turns. If that fails, try them one by one, then time those that run in turns once more.

        Raises `Unavailable` if the second attempt fails too.
        """
        spec = registry.located(spec)
        outcomes = self._rounds(spec, problem, configs, rounds)
        if outcomes is not None:
            return outcomes
        alone = [self._measure(spec, problem, config, {}) for config in configs]
        sound = [config for config, outcome in zip(configs, alone, strict=True) if outcome.timing is not None]
        again = self._rounds(spec, problem, sound, rounds) if sound else []
        if again is None:
            raise Unavailable(f"{self.id} runs {len(sound)} configs one by one but fails when they take turns")
        timed = iter(again)
        return [outcome if outcome.timing is None else next(timed) for outcome in alone]

    def memory_bytes(self) -> int:
        return self._memory_bytes

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        """Return the floor at the rate that the bench process measures on the first call."""
        if not self._rates:
            self._rates.append(self._request("bytes_per_us"))
        rate = self._rates[0]
        return None if rate is None else spec.bytes(problem) / rate

    def warm_up(self) -> None:
        """Start the compile processes that do not run; their imports take a few seconds."""
        self._compilers.start()

    def close(self) -> None:
        self._compilers.close()
        self._bench.close()
        self._lock.release()

    # Hooks of each kind of device ----------------------------------------------------------------------------------

    def compile_arguments(self) -> tuple[Any, ...]:
        """Return the additional arguments of the compile function."""
        return ()

    def refusal(self, error: WorkerFailed) -> Outcome:
        """Return the outcome of a config whose compilation raised an exception."""
        return Outcome(Status.COMPILE, str(error))

    # Compiling ----------------------------------------------------------------------------------------------------

    def _compile(self, origin: str, problem: Problem, config: Config) -> Future[Any]:
        rest = self.compile_arguments()
        limit = self.limits.compile_seconds + waiting_seconds()
        return self._compilers.submit(origin, problem, dict(config), *rest, timeout=limit)

    def _outcome(
        self, spec: KernelSpec, problem: Problem, config: Config, compiling: Future[Any], to_beat_us: float | None
    ) -> Outcome:
        try:
            facts = {"compiled": "ahead", **compiling.result()}
        except WorkerError as error:
            return self._not_compiled(error)
        return self._measure(spec, problem, config, facts, to_beat_us)

    def _not_compiled(self, error: WorkerError) -> Outcome:
        facts = {LAST_LINES: list(error.last_lines)} if error.last_lines else {}
        match error:
            case WorkerTimeout():
                return Outcome(Status.TIMEOUT, f"compiling: {error}", facts=facts)
            case WorkerDied():
                return Outcome(Status.COMPILE, f"the compiler crashed: {error}", facts=facts)
            case WorkerFailed(kind=kind) if kind in errors.__all__:  # of the spec, or of what hosts share
                raise _converted(error)
            case WorkerFailed():
                return self.refusal(error)
        raise error

    # Running ------------------------------------------------------------------------------------------------------

    def _measure(
        self,
        spec: KernelSpec,
        problem: Problem,
        config: Config,
        facts: Mapping[str, Any],
        to_beat_us: float | None = None,
    ) -> Outcome:
        """Measure a compiled config; if it faults, measure it once more in a fresh process.

        Among the facts, `faults` counts the attempts that ended the process and `first_fault` describes the first.
        """
        first, faulted = self._attempt("measure", spec, problem, config, to_beat_us)
        assert isinstance(first, Outcome)
        if not faulted:
            return replace(first, facts={**facts, **first.facts})
        second, again = self._attempt("measure", spec, problem, config, to_beat_us)
        assert isinstance(second, Outcome)
        found = {**facts, **second.facts, FAULTS: 1 + again, "first_fault": first.reason}
        return replace(second, facts=found)

    def _attempt(
        self, request: Request, spec: KernelSpec, problem: Problem, *about: Any, runs: int = 1
    ) -> tuple[Outcome | Verdict | list[list[float]], bool]:
        """Return the answer to a request of that many runs, and whether it cost the process, which is then replaced."""
        with self._turns:
            self._prepare(spec, problem)
            job = (spec.origin, problem, *about)
            limit = runs * self._run_seconds(spec, problem)
            try:
                reply: Reply[Outcome | Verdict | list[list[float]]] = self._bench.call(
                    self._runtime, request, *job, timeout=limit, memory_bytes=self._allowed_bytes
                )
            except WorkerFailed as error:
                raise _converted(error) from error
            except WorkerError as error:
                status = Status.TIMEOUT if isinstance(error, WorkerTimeout) else Status.RUNTIME
                facts = {LAST_LINES: list(error.last_lines)} if error.last_lines else {}
                reply = Reply(Outcome(status, f"running: {error}", facts=facts), lost=True)
            if reply.lost:
                self._replace()
            return reply.answer, reply.lost

    def _rounds(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int
    ) -> list[Outcome] | None:
        """Time the configs in turns and return their outcomes; None if that failed, whichever of them was the cause."""
        plain = [dict(config) for config in configs]
        times, _ = self._attempt("race", spec, problem, plain, rounds, runs=len(plain))
        if not isinstance(times, list) or len(times) != len(configs):
            return None
        timings = [Timing(quantile(each, 0.5), samples=len(each), times_us=tuple(each)) for each in times]
        return [Outcome(Status.CORRECT, timing=timing) for timing in timings]

    def _run_seconds(self, spec: KernelSpec, problem: Problem) -> float:
        floor_us = self.floor_us(spec, problem) or spec.bytes(problem) / _ASSUMED_BYTES_PER_US
        return self.limits.run_seconds + self.limits.floors * floor_us / 1e6

    def _prepare(self, spec: KernelSpec, problem: Problem) -> None:
        """Make the bench process hold the problem's tensors."""
        if self._prepared != (spec.origin, problem):
            self._request("prepare", spec.origin, problem)
            self._prepared = (spec.origin, problem)
            held = sum(buffer.span_bytes for buffer in spec.buffers(problem).values())
            self._allowed_bytes = self._bench.memory_bytes() + self.limits.growth_bytes + 16 * held

    def _request(self, request: Request, *arguments: Any) -> Any:
        """Send the bench process a request that involves no config. If the process dies, ask a fresh one."""
        with self._turns:
            for left in reversed(range(_STARTS)):
                try:
                    return self._bench.call(self._runtime, request, *arguments, timeout=self.limits.prepare_seconds)
                except WorkerFailed as error:
                    raise _converted(error) from error
                except WorkerError as error:
                    last = error
                    if left:
                        self._replace()
        raise Unavailable(f"{self.id} does not come up: {last}") from last

    def _replace(self) -> None:
        """Continue in a fresh process, which has no tensors yet."""
        self._bench.restart()
        self._prepared = None


def _converted(error: WorkerFailed) -> Exception:
    """Convert an exception of the bench process to one of this process."""
    if error.kind in errors.__all__:
        known: Exception = getattr(errors, error.kind)(error.message)
        return known
    return Unavailable(f"the bench process failed: {error}")
