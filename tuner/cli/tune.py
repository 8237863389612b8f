"""`tilewise tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tilewise.tuner.cli.options import common, database, print_json, problem_options

if TYPE_CHECKING:
    from tilewise.kernels.spec import Problem
    from tilewise.tuner.devices.base import Device

__all__ = ["tune"]


@click.command()
@click.argument("kernel")
@problem_options
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("--trials", type=click.IntRange(1), help="Trials a shape may have, stored ones included.  [default: 60]")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Time a shape may take.")
@click.option(
    "--search", type=click.Choice(["guided", "tpe", "random", "exhaustive"]), default="guided", show_default=True
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same course on a modelled device.")
@click.option("--fresh", is_flag=True, help="Do not count on stored trials: try again.")
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
    fresh: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Find the fastest config of KERNEL for each shape.

    KERNEL is a name that `tilewise kernels` lists, or path/to/file.py:SPEC for a kernel of your own. A second run
    resumes: stored trials are not run again.
    """
    from tilewise.db.sql_store import open_store
    from tilewise.errors import NothingFeasible
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.cli.progress import Progress, show_result
    from tilewise.tuner.devices.catalogue import choose, open_device
    from tilewise.tuner.problem import make_problem, parse_dims
    from tilewise.tuner.search import Budget, Tuning, default_trials

    spec = registry.load(kernel)
    problems = [make_problem(spec, parse_dims(shape), dtype) for shape in shapes]
    chosen = choose(device)
    budget = Budget(trials or default_trials(search), timeout)
    results: list[dict[str, Any]] = []
    failed = False
    with open_store(url or read_settings().database_url) as store, open_device(chosen) as opened:
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
            except KeyboardInterrupt:
                kept = len(store.trials(tuning.scope))
                command = "the same command without --fresh" if fresh else "the same command"
                click.echo(f"tilewise: interrupted; {kept} trials are kept, {command} resumes", err=True)
                raise click.exceptions.Exit(130) from None
            results.append(result.to_json())
            if not as_json:
                show_result(result, store.trials(tuning.scope), watcher)
    if as_json:
        print_json({"results": results})
    return 1 if failed else 0


def _nothing(problem: Problem, device: Device, why: str) -> dict[str, Any]:
    """A result without a config."""
    asked = {"kernel": problem.kernel, "dims": dict(problem.dims), "dtype": problem.dtype}
    return {**asked, "device": device.target.name, "clock": str(device.clock), "config": None, "why": why}
