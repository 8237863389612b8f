"""`tilewise tune`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tilewise.tuner.cli.interruption import exit_code
from tilewise.tuner.cli.options import common, database, print_json, problem_options

if TYPE_CHECKING:
    from tilewise.db.records import Trial
    from tilewise.db.store import Store
    from tilewise.kernels.spec import KernelSpec, Problem
    from tilewise.tuner.devices.base import Device
    from tilewise.tuner.search import Tuning

    _Job = tuple[KernelSpec, Sequence[Problem], Callable[[], Device]]

__all__ = ["tune"]


@click.command()
@click.argument("kernel")
@problem_options(required=False)
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda, model:PART or replay:FILE.")
@click.option(
    "--trials",
    type=click.IntRange(1),
    help="Trials a shape may have, stored ones included; the spec's default is one more.  [default: 60]",
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Time a shape may take.")
@click.option(
    "--search",
    type=click.Choice(["guided", "tpe", "random", "exhaustive"]),
    default="guided",
    show_default=True,
    help="How it is chosen what to try next.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same course on a modelled device.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long to wait for a device that another process tunes; 0 does not wait.  [default: as long as it takes]",
)
@click.option(
    "--l2", type=click.Choice(["cold", "warm"]), default="cold", show_default=True, help="The cache before each run."
)
@click.option("--noise", is_flag=True, help="Replay: time anew by drawing from the recorded repetitions.")
@click.option("--fresh", is_flag=True, help="Do not count on stored trials: try again.")
@click.option("--misses", is_flag=True, help="Tune the shapes that programs launched untuned on this device.")
@click.option("--cross", is_flag=True, help="Then time each shape's winner on the others: what makes a portfolio good.")
@database
@common
def tune(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    trials: int | None,
    timeout: float | None,
    search: str,
    seed: int,
    wait: float | None,
    l2: str,
    noise: bool,
    fresh: bool,
    misses: bool,
    cross: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Find the fastest config of KERNEL for each shape.

    KERNEL is a name that `tilewise kernels` lists, or path/to/file.py:SPEC for a kernel of your own. A second run
    resumes: stored trials are not run again. `tilewise tune replay:FILE` searches a recorded landscape (a T4 file or a
    Kernel Tuner cache), which says itself what kernel and shape it is of.
    """
    from tilewise.db.sql_store import open_store
    from tilewise.errors import NothingFeasible
    from tilewise.settings import read_settings
    from tilewise.tuner.cli.misses import kept_misses
    from tilewise.tuner.cli.progress import Progress, show_result
    from tilewise.tuner.problem import question
    from tilewise.tuner.search import Budget, Tuning, default_trials

    budget = Budget(trials or default_trials(search), timeout)
    if kernel.startswith("replay:") or device.startswith("replay:"):
        spec, problems, opener = _recorded(kernel, device, shapes, noise, seed)
    elif shapes or misses:
        spec, problems, opener = _named(kernel, device, shapes, dtype, noise, wait, l2)
    else:
        raise click.MissingParameter(param_hint="'-s' / '--shape'", param_type="option")
    results: list[dict[str, Any]] = []
    failed = False
    with open_store(url or read_settings().database_url) as store, opener() as opened:
        problems = [*problems, *(_missed(spec, opened) if misses else ())]
        for problem in problems:
            watcher = Progress()
            try:
                tuning = Tuning(
                    spec, problem, opened, store, budget=budget, search=search, seed=seed, fresh=fresh, watcher=watcher
                )
                result = tuning.run()
            except NothingFeasible as error:
                failed = True
                click.echo(f"tilewise: {error}", err=True)
                results.append(_nothing(problem, opened, str(error)))
                continue
            except KeyboardInterrupt as error:
                kept = len(store.trials(tuning.scope))
                command = "the same command without --fresh" if fresh else "the same command"
                click.echo(f"tilewise: interrupted; {kept} trials are kept, {command} resumes", err=True)
                raise click.exceptions.Exit(exit_code(error)) from None
            if misses:
                kept_misses().forget(question(problem, opened.target.name))
            results.append(result.to_json() | _foreseen(store.trials(tuning.scope)) | _outlook(tuning))
            if not as_json:
                show_result(result, store.trials(tuning.scope), watcher)
                _show_outlook(tuning)
        if cross:
            _cross(spec, problems, opened, store)
    if as_json:
        print_json({"results": results})
    return 1 if failed else 0


def _missed(spec: KernelSpec, device: Device) -> list[Problem]:
    """The shapes of the kernel that programs launched untuned on this device, those of most processes first."""
    from tilewise.errors import NotFound
    from tilewise.tuner.cli.misses import kept_misses
    from tilewise.tuner.problem import make_problem

    asked = (miss.question for miss in kept_misses().all())
    found = [q for q in asked if (q.kernel, q.device) == (spec.name, device.target.name)]
    if not found:
        raise NotFound(f"no shape of {spec.name} was launched untuned on {device.target.name}")
    return [make_problem(spec, question.dims, question.dtype) for question in found]


def _cross(spec: KernelSpec, problems: Sequence[Problem], device: Device, store: Store) -> None:
    from tilewise.tuner.cli.progress import working
    from tilewise.tuner.crossing import cross

    with working("crossing") as progress:
        count = cross(spec, problems, device, store, progress=progress)
    click.echo(f"tilewise: {count} more trials of winners on each other's shapes", err=True)


def _outlook(tuning: Tuning) -> dict[str, Any]:
    """What the guided search expects of going on: the chance of a better config, and the share of the time it saves."""
    if tuning.outlook is None:
        return {}
    return {"outlook": {"chance": round(tuning.outlook.chance, 4), "gain": round(tuning.outlook.gain, 4)}}


def _show_outlook(tuning: Tuning) -> None:
    if tuning.outlook is None:
        return
    chance, gain = tuning.outlook.chance, tuning.outlook.gain
    found = f"{chance:.0%} chance of a better config" + (f", {gain:.1%} faster" if chance else "")
    click.echo(f"Expected of further search: {found}.")


def _named(
    kernel: str, device: str, shapes: Sequence[str], dtype: str, noise: bool, wait: float | None, l2: str
) -> _Job:
    """The job of a kernel that runs; everything typed is checked before a device is opened."""
    from tilewise.errors import UsageError
    from tilewise.kernels import registry
    from tilewise.tuner.devices.catalogue import choose, open_device
    from tilewise.tuner.problem import make_problem, parse_dims

    if noise:
        raise UsageError("--noise is for recorded landscapes (replay:FILE); other devices have noise of their own")
    spec = registry.load(kernel)
    problems = [make_problem(spec, parse_dims(shape), dtype) for shape in shapes]
    chosen = choose(device)
    return spec, problems, lambda: open_device(chosen, wait=wait, warm=l2 == "warm")


def _recorded(kernel: str, device: str, shapes: Sequence[str], noise: bool, seed: int) -> _Job:
    """The job of a recorded landscape: KERNEL is `replay:FILE`, or the name of what `--device replay:FILE` records."""
    from tilewise.errors import UsageError
    from tilewise.tuner.devices.replay import ReplayDevice
    from tilewise.tuner.problem import parse_dims

    text = kernel if kernel.startswith("replay:") else device
    opened = ReplayDevice(text.removeprefix("replay:"), noise=noise, seed=seed)
    if device not in ("auto", text):
        raise UsageError(f"{text} is a device itself; leave --device away")
    name = opened.spec.name if kernel == text else kernel
    for dims in [parse_dims(shape) for shape in shapes] or [{}]:
        spec, problem = opened.asked(name, dims)
    return spec, [problem], lambda: opened


def _foreseen(trials: Sequence[Trial]) -> dict[str, Any]:
    """How right a model of the device was, where there is one."""
    from tilewise.tuner.foreseen import agreement

    found = agreement(trials)
    return {"model_agreement": found.to_json()} if found else {}


def _nothing(problem: Problem, device: Device, why: str) -> dict[str, Any]:
    """A result without a config."""
    asked = {"kernel": problem.kernel, "dims": dict(problem.dims), "dtype": problem.dtype}
    return {**asked, "device": device.target.name, "clock": str(device.clock), "config": None, "why": why}
