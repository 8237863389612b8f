"""`tilewise tune`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.options import common, database, inference_options, print_json, problem_options, wait_option
from tilewise.cli.signals import exit_code

if TYPE_CHECKING:
    from tilewise.cli.progress import Progress
    from tilewise.db.records import Result, Shape
    from tilewise.db.store import Store
    from tilewise.kernels.spec import KernelSpec, Problem
    from tilewise.tuner.devices.base import Device
    from tilewise.tuner.space.rungs import Rungs
    from tilewise.tuner.tuning.shared_time import SharedTime

    _Job = tuple[KernelSpec, Sequence[Problem], Callable[[bool], Sequence[Device]]]
    """The spec, its problems, and a function that opens a device for them or, if there are several, all that serve."""

__all__ = ["tune"]

_QUICK_TRIALS = 30
"""Trials of a quick tuning: the prior's first picks are among them, or the opening of a search without a prior."""


@click.command()
@click.argument("kernel")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--program", is_flag=True, help="KERNEL is PROGRAM.py:KERNEL: run the program to see its launches.")
@inference_options
@problem_options(required=False)
@click.option(
    "--rungs",
    "table",
    metavar="TABLE",
    help="Tune each shape for all sizes of a table, which the shape leaves out: vllm, sglang, N=vllm or M=1,2,4,8.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="auto, npu, cuda, model:PART or replay:FILE. npu and cuda are any free chip, and with several shapes all free "
    "ones at once; cuda:1 is the second chip.",
)
@click.option(
    "--devices",
    metavar="LIST",
    help="Chips to use at once, such as cuda:0,cuda:1: for a shape each, or for the configs of a single shape.",
)
@click.option(
    "--fleet",
    metavar="HOST:PORT",
    help="Use at once all chips of a Ray cluster that have the name in --device, such as 'NVIDIA H200', and no job.",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    help="Limit on the trials per shape, stored ones included, besides the spec's default.  [default: 200]",
)
@click.option(
    "--effort",
    type=click.Choice(["quick", "normal", "full"]),
    default="normal",
    show_default=True,
    help="quick: at most 30 trials per shape; full: every config.",
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Time limit per shape.")
@click.option(
    "--total-timeout",
    "total",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Time limit for all shapes: each gets an equal share of what is left.",
)
@click.option(
    "--search",
    type=click.Choice(["guided", "tpe", "random", "exhaustive"]),
    default="guided",
    show_default=True,
    help="Search strategy: how the next config is chosen.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed; it makes a search on a modelled device repeatable.",
)
@wait_option
@click.option(
    "--l2",
    type=click.Choice(["cold", "warm", "dirty"]),
    help="L2 cache before each run.  [default: cold on a chip, warm on a model]",
)
@click.option("--noise", is_flag=True, help="Replay only: draw each time from the recorded repetitions.")
@click.option("--fresh", is_flag=True, help="Ignore stored trials and try again.")
@click.option("--strict", is_flag=True, help="Refuse configs with warnings, such as masked reads outside a tensor.")
@click.option("--misses", is_flag=True, help="Tune the shapes that programs launched untuned on this device.")
@click.option("--cross", is_flag=True, help="Then time each shape's winner on the other shapes: better portfolios.")
@database
@common
def tune(
    kernel: str,
    arguments: tuple[str, ...],
    program: bool,
    widen: bool,
    reference: str,
    recorded: bool,
    shapes: tuple[str, ...],
    dtype: str,
    table: str | None,
    device: str,
    devices: str | None,
    fleet: str | None,
    trials: int | None,
    effort: str,
    timeout: float | None,
    total: float | None,
    search: str,
    seed: int,
    wait: float | None,
    l2: str | None,
    noise: bool,
    fresh: bool,
    strict: bool,
    misses: bool,
    cross: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Find the fastest config of KERNEL for each shape.

    KERNEL is a name that `tilewise kernels` lists, or path/to/file.py:SPEC for a kernel of your own. A second run
    resumes: stored trials are not run again. `tilewise tune replay:FILE` searches a recorded landscape (a T4 file or a
    Kernel Tuner cache), which names its kernel and shape.

    With --program, KERNEL is path/to/file.py:KERNEL, a Triton kernel that this program launches: the unmodified program
    is run with the ARGUMENTS after --, and the kernel is tuned for each shape that it is launched with, or for -s.
    """
    from tilewise.cli.progress import show_rungs
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.tuning.loop import Budget, default_trials
    from tilewise.tuner.tuning.shared_time import SharedTime

    search, trials = _effort(effort, search, trials)
    Budget(trials or default_trials(search), timeout)  # refuses an invalid budget before a device is opened
    _check_words(arguments, program=program, widen=widen, reference=reference, recorded=recorded)
    rungs, wanted = _shapes(shapes, table, misses=misses)
    chosen = _chosen(kernel, device, devices, fleet, l2)
    if program:
        how_inferred = {"widen": widen, "reference": reference, "recorded": recorded, "quiet": as_json}
        inferred = _inferred(kernel, arguments, how_inferred)
        spec, problems, opener = _named(inferred[0], chosen, wanted, rungs, dtype, noise, wait, l2)
        problems = problems or inferred[1]
    elif kernel.startswith("replay:") or device.startswith("replay:"):
        spec, problems, opener = _recorded(kernel, device, wanted, rungs, noise, seed)
    elif wanted or misses:
        spec, problems, opener = _named(kernel, chosen, wanted, rungs, dtype, noise, wait, l2)
    else:
        registry.load(kernel)  # a file without a spec has more to say
        raise click.MissingParameter(param_hint="'-s' / '--shape'", param_type="option")
    with open_store(url or read_settings().database_url) as store, ExitStack() as held:
        found = _borrowed(held, fleet, device) if fleet else opener(misses or len(problems) > 1)
        opened: Sequence[Device] = [held.enter_context(one) for one in found]
        problems = [*problems, *(_untuned(spec, opened[0]) if misses else ())]
        opened = _spread(opened) if (devices or fleet) and len(problems) == 1 else opened
        for problem in problems:
            opened[0].check_memory(spec, problem)
        how: dict[str, Any] = {"trials": trials, "search": search, "seed": seed, "fresh": fresh, "strict": strict}
        shared = SharedTime(total, len(problems), at_once=len(opened))
        shown: dict[str, Any] = {"rungs": rungs is not None, "quiet": as_json or rungs is not None, "misses": misses}
        results = _Several(spec, problems, opened, store, how, shared, timeout=timeout, **shown).run()
        if cross:
            _cross_evaluate(spec, problems, opened[0], store)
    if as_json:
        print_json({"results": results})
    elif rungs:
        show_rungs(rungs.dim, results)
    return 1 if any(result["config"] is None for result in results) else 0


def _effort(effort: str, search: str, trials: int | None) -> tuple[str, int | None]:
    """Return the search and the limit on trials of an effort."""
    if effort == "normal":
        return search, trials
    if trials is not None or search != "guided":
        raise click.UsageError("--effort sets the search and its trials; leave out --trials and --search")
    return ("exhaustive", None) if effort == "full" else (search, _QUICK_TRIALS)


def _check_words(arguments: Sequence[str], *, program: bool, widen: bool, reference: str, recorded: bool) -> None:
    """Refuse words that mean nothing without --program."""
    if program:
        return
    if arguments:
        raise click.UsageError(
            f"Got unexpected extra argument ({' '.join(arguments)})", ctx=click.get_current_context(silent=True)
        )
    given = {"--widen": widen, "--reference": reference, "--recorded": recorded}
    if any(given.values()):
        raise click.UsageError(f"{next(name for name, value in given.items() if value)} needs --program")


def _inferred(text: str, arguments: Sequence[str], how: dict[str, Any]) -> tuple[str, Sequence[Problem]]:
    """Run a program, keep the spec of its kernel, and return where it is, with the shapes of its launches."""
    from tilewise.cli.commands.tuning.spec import inferred_spec
    from tilewise.settings import read_settings
    from tilewise.tuner.inference.kept_specs import keep_spec

    inferred, name = inferred_spec(text, arguments, **how)
    file = keep_spec(inferred.text, name, read_settings().data_folder)
    click.echo(f"tilewise: the spec of {name} is {file}", err=True)
    return f"{file}:SPEC", inferred.problems


def _shapes(shapes: Sequence[str], table: str | None, *, misses: bool) -> tuple[Rungs | None, list[Shape]]:
    """Return the rungs, if a table is tuned, and the requested shapes: with rungs, each at all of their sizes."""
    from tilewise.errors import UsageError
    from tilewise.tuner.space.problem_checks import parse_dims
    from tilewise.tuner.space.rungs import parse_rungs

    given: list[Shape] = [parse_dims(shape) for shape in shapes]
    if table is None:
        return None, given
    if misses:
        raise UsageError("--misses and --rungs both choose shapes; give one of them")
    rungs = parse_rungs(table)
    return rungs, [sized for shape in given or [{}] for sized in rungs.shapes(shape)]


class _Several:
    """The problems of one command, tuned one after the other or, on several devices, side by side."""

    def __init__(
        self,
        spec: KernelSpec,
        problems: Sequence[Problem],
        devices: Sequence[Device],
        store: Store,
        how: dict[str, Any],
        shared: SharedTime,
        *,
        timeout: float | None,
        rungs: bool,
        quiet: bool,
        misses: bool,
    ) -> None:
        self._spec, self._problems, self._devices, self._store = spec, problems, devices, store
        self._how, self._shared, self._timeout = how, shared, timeout
        self._of, self._quiet, self._misses = "rung" if rungs else "shape", quiet, misses
        self._stopping, self._showing = threading.Event(), threading.Lock()

    def run(self) -> list[dict[str, Any]]:
        """Tune the problems, and return the results as JSON, in order."""
        from tilewise.tuner.tuning.side_by_side import SideBySide

        try:
            if len(self._devices) > 1:
                lanes = SideBySide(self._tuned, stopping=self._stopping, lost=_tell_of_lost)
                return lanes.run(self._problems, self._devices)
            return [self._tuned(number, problem, self._devices[0]) for number, problem in enumerate(self._problems)]
        except KeyboardInterrupt as error:
            scopes = [self._devices[0].scope(self._spec, problem) for problem in self._problems]
            stored = sum(len(self._store.trials(scope)) for scope in {scope.key: scope for scope in scopes}.values())
            command = "the same command without --fresh" if self._how["fresh"] else "the same command"
            click.echo(f"tilewise: interrupted; {stored} trials are stored; {command} resumes", err=True)
            raise click.exceptions.Exit(exit_code(error)) from None

    def _tuned(self, number: int, problem: Problem, device: Device) -> dict[str, Any]:
        """Tune one problem, show the result unless quiet, and return it as JSON."""
        from tilewise.cli.commands.tuning.misses import kept_misses
        from tilewise.db.records import Question
        from tilewise.errors import NothingFeasible
        from tilewise.tuner.tuning.tune import tune as run

        watcher = self._watcher(number)
        try:
            with self._shared.share(self._timeout) as seconds:
                how = {**self._how, "device": device, "db": self._store, "timeout": seconds, "watcher": watcher}
                result = run(self._spec, problem.shape, problem.dtype, **how)
        except NothingFeasible as error:
            click.echo(f"tilewise: {error}", err=True)
            body = {**problem.to_json(), "device": device.target.name, "clock": str(device.clock)}
            return {**body, "config": None, "why": str(error)}
        with self._showing:
            body = self._shown(problem, device, result, watcher)
            if self._misses:
                kept_misses().forget(Question(problem, device.target.name))
            return body

    def _watcher(self, number: int) -> Progress:
        from tilewise.cli.progress import LaneProgress, Progress

        place = f"{self._of} {number + 1} of {len(self._problems)}" if len(self._problems) > 1 else ""
        return LaneProgress(place, self._stopping) if len(self._devices) > 1 else Progress(place)

    def _shown(self, problem: Problem, device: Device, result: Result, watcher: Progress) -> dict[str, Any]:
        from tilewise.cli.progress import show_result
        from tilewise.tuner.samplers.model_ranking import agreement

        trials = self._store.trials(device.scope(self._spec, problem))
        assert result.winner is not None and result.winner.time_us is not None, "a tuning without a winner raises"
        if self._quiet:
            watcher.ended(result)
        else:
            show_result(result, trials, watcher)
        body = result.to_json()
        if found := agreement(trials):
            body["model_agreement"] = found.to_json()
        return body


def _tell_of_lost(device: Device, error: Exception) -> None:
    click.echo(f"tilewise: {device.id} is lost: {error}; its shape waits for another device", err=True)


def _untuned(spec: KernelSpec, device: Device) -> list[Problem]:
    """Return the kernel's shapes that programs launched untuned on this device, those of most processes first."""
    from tilewise.cli.commands.tuning.misses import kept_misses
    from tilewise.errors import NotFound
    from tilewise.tuner.space.problem_checks import make_problem

    questions = (miss.question for miss in kept_misses().all())
    found = [q for q in questions if (q.kernel, q.device) == (spec.name, device.target.name)]
    if not found:
        raise NotFound(f"no shape of {spec.name} was launched untuned on {device.target.name}")
    return [make_problem(spec, question.shape, question.dtype) for question in found]


def _cross_evaluate(spec: KernelSpec, problems: Sequence[Problem], device: Device, store: Store) -> None:
    from tilewise.cli.progress import working
    from tilewise.tuner.portfolio.cross_evaluation import cross_evaluate

    with working("cross-evaluating") as progress:
        count = cross_evaluate(spec, problems, device, store, progress=progress)
    click.echo(f"tilewise: added {count} trials of winners on each other's shapes", err=True)


def _borrowed(held: ExitStack, fleet: str, name: str) -> Sequence[Device]:
    """Borrow the chips of a cluster that have this name, and keep the connection to it open."""
    from tilewise.tuner.cluster.borrowed_chip import borrow
    from tilewise.tuner.cluster.ray_engine import connected

    return borrow(held.enter_context(connected(fleet)), name)


def _chosen(kernel: str, device: str, devices: str | None, fleet: str | None, l2: str | None) -> str | Sequence[str]:
    """Return the device, or the devices that --devices lists; none of this host with --fleet."""
    from tilewise.errors import UsageError

    if fleet is not None:
        if devices is not None or device == "auto" or ":" in device:
            raise UsageError("--fleet takes the name of its chips in --device, such as 'NVIDIA H200', and no --devices")
        if l2 is not None:
            raise UsageError("--l2 is for devices of this host; those of a fleet start as they always do")
        return []
    if devices is None:
        return device
    if kernel.startswith("replay:"):
        raise UsageError(f"{kernel} is already a device; leave out --devices")
    if device != "auto":
        raise UsageError("--device and --devices both choose devices; give one of them")
    return [one.strip() for one in devices.split(",")]


def _spread(devices: Sequence[Device]) -> Sequence[Device]:
    """Return several devices as one, over which a problem's configs are spread."""
    from tilewise.tuner.devices.spread import SpreadDevice

    return [SpreadDevice(devices)] if len(devices) > 1 else devices


def _named(
    kernel: str,
    device: str | Sequence[str],
    shapes: Sequence[Shape],
    rungs: Rungs | None,
    dtype: str,
    noise: bool,
    wait: float | None,
    l2: str | None,
) -> _Job:
    """Prepare a tuning of a kernel that is run. The arguments are checked before a device is opened."""
    from tilewise.db.records import L2State
    from tilewise.errors import UsageError
    from tilewise.kernels import registry
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.devices.several import open_all, open_free
    from tilewise.tuner.space.problem_checks import make_problem

    if noise:
        raise UsageError("--noise is only for recorded landscapes (replay:FILE); other devices have real noise")
    spec = registry.load(kernel)
    if rungs:
        rungs.check(spec)
    problems = [make_problem(spec, shape, dtype) for shape in shapes]
    how: dict[str, Any] = {"wait": wait, "l2": L2State(l2) if l2 else None}
    if not isinstance(device, str):
        listed = list(map(choose, device))
        return spec, problems, lambda several: open_all(listed, **how)
    chosen = choose(device)
    return spec, problems, lambda several: open_free(chosen, **how) if several else [open_device(chosen, **how)]


def _recorded(kernel: str, device: str, shapes: Sequence[Shape], rungs: Rungs | None, noise: bool, seed: int) -> _Job:
    """Prepare a tuning on a recorded landscape: KERNEL is `replay:FILE`, or the kernel in `--device replay:FILE`."""
    from tilewise.errors import UsageError
    from tilewise.tuner.devices.replay import ReplayDevice

    text = kernel if kernel.startswith("replay:") else device
    if rungs:
        raise UsageError(f"{text} records one shape, and --rungs tunes several; tune them on another device")
    opened = ReplayDevice(text.removeprefix("replay:"), noise=noise, seed=seed)
    if device not in ("auto", text):
        raise UsageError(f"{text} is already a device; leave out --device")
    name = opened.spec.name if kernel == text else kernel
    for shape in shapes or [{}]:
        spec, problem = opened.asked(name, shape)
    return spec, [problem], lambda several: [opened]
