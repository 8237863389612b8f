"""`tilewise lookup`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.options import common, database, open_existing, print_json, problem_options
from tilewise.errors import UsageError

if TYPE_CHECKING:
    from tilewise.client import Match as HowFar

__all__ = ["lookup"]

_Answer = tuple[dict[str, Any], Sequence[str]]
"""An answer as JSON (its config is None for a miss) and as lines of text."""


@click.command()
@click.argument("kernel")
@problem_options()
@click.option(
    "--device", required=True, help='Name of the device that will run it, such as Ascend910B4 or "NVIDIA H200".'
)
@click.option(
    "--match",
    type=click.Choice(["exact", "older", "nearest", "portfolio", "predicted"]),
    default="exact",
    show_default=True,
    help="How far the answer may relax; each value allows those before it.",
)
@click.option("--toolchain", help="Toolchain of an exact answer; results of others count as older.")
@click.option("--server", metavar="URL", help="Ask this server instead of a database.")
@database
@common
def lookup(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    match: HowFar,
    toolchain: str | None,
    server: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Show the best known config of KERNEL for each shape. Exits with 4 if a shape has none.

    Answers relax in this order: exact; older (found with another toolchain); nearest (won for another shape, whose
    dimension ratios multiply to at most 1.25); portfolio (predicted to be best by the trials of all tuned shapes);
    predicted (ranked first by the prior). Each answer names its match.
    """
    from tilewise.tuner.lookup.resolve import device_name

    if server and url:
        raise UsageError("--server and --db exclude each other: a server has its own database; leave one out")
    device = device_name(device)
    query = (kernel, shapes, dtype, device, match, toolchain)
    answers: list[dict[str, Any]] = []
    for answer, lines in _ask_server(server, *query) if server else _ask_database(url, *query):
        answers.append(answer)
        if answer["config"] is None:
            click.echo(f"tilewise: {answer['why']}", err=True)
        elif not as_json:
            click.echo("\n".join(lines))
    if as_json:
        print_json({"results": answers})
    return 4 if any(answer["config"] is None for answer in answers) else 0


def _ask_database(
    url: str | None,
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    match: HowFar,
    toolchain: str | None,
) -> Iterator[_Answer]:
    """Look up in a database."""
    from tilewise.cli.formatting import result_lines
    from tilewise.db.records import Question
    from tilewise.errors import NotFound, UnknownDevice, UnknownKernel
    from tilewise.kernels import registry
    from tilewise.kernels.source import source_hash
    from tilewise.tuner.devices.registry import is_device_name
    from tilewise.tuner.lookup.resolve import Match, NotTuned, miss, resolve_or_raise
    from tilewise.tuner.lookup.store_source import StoreSource
    from tilewise.tuner.space.problem_checks import make_problem, parse_dims

    try:
        spec = registry.load(kernel)
    except UnknownKernel as error:
        with open_existing(url) as store:
            if not any(store.scopes(kernel)):
                raise
        stored = f"results of {kernel!r} are stored, but its spec is in a file of your own"
        raise UnknownKernel(f"{stored}; name it as path/to/file.py:SPEC") from error
    problems = [make_problem(spec, parse_dims(shape), dtype) for shape in shapes]
    try:
        opened = open_existing(url)
    except NotFound as error:
        if not is_device_name(device):
            raise UnknownDevice(f"unknown device {device!r}; {error}") from error
        yield from ((miss(Question(problem, device), match, str(error)), []) for problem in problems)
        return
    with opened as store:
        if not is_device_name(device) and device not in store.devices():
            known = ", ".join(store.devices()) or "none"
            raise UnknownDevice(f"unknown device {device!r}; results are stored for: {known}")
        source, known = StoreSource(store), source_hash(spec)
        for problem in problems:
            try:
                question = Question(problem, device)
                result = resolve_or_raise(
                    source, question, spec, source_hash=known, match=Match(match), toolchain=toolchain
                )
            except NotTuned as error:
                yield miss(question, match, str(error)), []
            else:
                yield result.to_json(), result_lines(result)


def _ask_server(
    server: str,
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    match: HowFar,
    toolchain: str | None,
) -> Iterator[_Answer]:
    """Look up on a server, which itself checks the kernel, dimensions and device."""
    from tilewise.client import Client
    from tilewise.errors import NotFound
    from tilewise.settings import read_settings
    from tilewise.tuner.space.problem_checks import parse_dims

    with Client(server, token=read_settings().token) as client:
        for dims in map(parse_dims, shapes):
            try:
                found = client.lookup(kernel, dims, device, dtype=dtype, match=match, toolchain=toolchain)
            except NotFound as error:
                body = {"kernel": kernel, "dims": dims, "dtype": dtype, "device": device}
                yield {**body, "match": match, "config": None, "why": str(error)}, []
            else:
                yield dict(found), _lines(dict(found))


def _lines(found: dict[str, Any]) -> list[str]:
    """Format a server's answer."""
    from tilewise.cli.formatting import PROOFS, time_text
    from tilewise.db.records import Clock, shape_text
    from tilewise.tuner.space.problem_checks import config_text

    time = time_text(found["time_us"], Clock(found["clock"])) if "time_us" in found else "not timed"
    proof = found.get("verified_by", "reference")  # an older server tells references only
    return [
        f"{found['kernel']} {shape_text(found['dims'])} {found['dtype']} on {found['device']}: {time}",
        f"  config     {config_text(found['config'])}",
        f"  why        {found['why']}",
        f"  verified   {f'output agreed with {PROOFS[proof]}' if found['verified'] else 'no'}",
        f"  toolchain  {found['toolchain']}",
        f"  match      {found['match']}",
    ]
