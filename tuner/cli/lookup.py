"""`tilewise lookup`."""

from __future__ import annotations

import click

from tilewise.tuner.cli.options import common, database, open_existing, print_json, problem_options

__all__ = ["lookup"]


@click.command()
@click.argument("kernel")
@problem_options()
@click.option(
    "--device", required=True, help='Name of the device that is to run it, such as Ascend910B4 or "NVIDIA H200".'
)
@click.option(
    "--match",
    type=click.Choice(["exact", "older", "nearest", "portfolio", "predicted"]),
    default="exact",
    show_default=True,
    help="How far the answer may relax; each allows those before it.",
)
@click.option("--toolchain", help="What exactly the time must have been found with; older: anything else will do too.")
@database
@common
def lookup(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    match: str,
    toolchain: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Show the best known config of KERNEL for each shape. Exits with 4 where a shape has none.

    Answers relax in this order: exact; older (found with another toolchain); nearest (won for another shape, whose
    dimensions' ratios multiply to 2 at the most); portfolio (picked by rule among the configs that serve all tuned
    shapes); predicted (what the prior likes best). Each says which it is.
    """
    from tilewise.errors import NotFound, UnknownDevice, UnknownKernel
    from tilewise.kernels import registry
    from tilewise.tuner.cli.text import result_lines
    from tilewise.tuner.devices.catalogue import is_device_name
    from tilewise.tuner.lookup import Match, NotTuned, miss
    from tilewise.tuner.problem import make_problem, parse_dims, question
    from tilewise.tuner.stored import StoredSource, answer_from

    try:
        spec = registry.load(kernel)
    except UnknownKernel as error:
        with open_existing(url) as store:
            if not any(store.scopes(kernel)):
                raise
        own = f"results of {kernel!r} are stored from a file of your own"
        raise UnknownKernel(f"{own}; name it, as path/to/file.py:SPEC") from error
    problems = [make_problem(spec, parse_dims(shape), dtype) for shape in shapes]
    device = device.removeprefix("model:")
    missing = 0
    answers = []
    try:
        opened = open_existing(url)
    except NotFound as error:
        if not is_device_name(device):
            raise UnknownDevice(f"unknown device {device!r}; and {error}") from error
        raise
    with opened as store:
        if not is_device_name(device) and device not in store.devices():
            known = ", ".join(store.devices()) or "none"
            raise UnknownDevice(f"unknown device {device!r}; results are stored for: {known}")
        source = StoredSource(store)
        for problem in problems:
            try:
                asked = question(problem, device)
                result = answer_from(source, asked, spec, match=Match(match), toolchain=toolchain)
            except NotTuned as error:
                missing += 1
                click.echo(f"tilewise: {error}", err=True)
                answers.append(miss(asked, str(error)))
                continue
            answers.append(result.to_json())
            if not as_json:
                click.echo("\n".join(result_lines(result)))
    if as_json:
        print_json({"results": answers})
    return 4 if missing else 0
