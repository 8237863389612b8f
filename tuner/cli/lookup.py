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
@click.option("--match", type=click.Choice(["exact"]), default="exact", show_default=True, help="How far to relax.")
@database
@common
def lookup(
    kernel: str, shapes: tuple[str, ...], dtype: str, device: str, match: str, url: str | None, as_json: bool
) -> int:
    """Show the best known config of KERNEL for each shape. Exits with 4 where a shape has none."""
    from tilewise.errors import NotFound, UnknownDevice, UnknownKernel
    from tilewise.kernels import registry
    from tilewise.kernels.source import source_hash
    from tilewise.tuner.cli.text import result_lines
    from tilewise.tuner.devices.catalogue import is_device_name
    from tilewise.tuner.lookup import NotTuned, answer, miss
    from tilewise.tuner.problem import make_problem, parse_dims, question

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
        for problem in problems:
            try:
                result = answer(store, question(problem, device), source_hash=source_hash(spec))
            except NotTuned as error:
                missing += 1
                click.echo(f"tilewise: {error}", err=True)
                answers.append(miss(question(problem, device), str(error)))
                continue
            answers.append(result.to_json())
            if not as_json:
                click.echo("\n".join(result_lines(result)))
    if as_json:
        print_json({"results": answers})
    return 4 if missing else 0
