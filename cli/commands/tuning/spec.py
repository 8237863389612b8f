"""`tilewise spec`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewise.cli.commands.tuning.capture import captured
from tilewise.cli.options import common, inference_options, print_json, program_arguments
from tilewise.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewise.tuner.capture.calls import CapturedKernel
    from tilewise.tuner.capture.program import Program
    from tilewise.tuner.inference.infer import Inferred

__all__ = ["inferred_spec", "spec"]


@click.command(context_settings={"ignore_unknown_options": True})
@inference_options
@click.option("-o", "--output", metavar="FILE", help="Write the spec to FILE instead of printing it.")
@common
@click.argument("program")
@program_arguments
def spec(
    program: str,
    arguments: tuple[str, ...],
    widen: bool,
    reference: str,
    recorded: bool,
    output: str | None,
    as_json: bool,
) -> int:
    """Run the unmodified PROGRAM with ARGUMENTS and write the spec of one of its kernels, to keep and to edit.

    PROGRAM is path/to/file.py:KERNEL, or package.module:KERNEL to run as `python -m` does. ARGUMENTS follow `--`.
    """
    inferred, name = inferred_spec(program, arguments, widen=widen, reference=reference, recorded=recorded, quiet=True)
    if output:
        try:
            Path(output).write_text(inferred.text)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}") from error
    if as_json:
        shapes = [dict(problem.shape) for problem in inferred.problems]
        print_json({"kernel": name, "text": inferred.text, "shapes": shapes, "notes": list(inferred.notes)})
    elif output:
        click.echo(f"{output}: the spec of {name}; tune it with tilewise tune {output}:SPEC")
    else:
        click.echo(inferred.text, nl=False)
    return 0


def inferred_spec(
    text: str, arguments: Sequence[str], *, widen: bool, reference: str, recorded: bool, quiet: bool
) -> tuple[Inferred, str]:
    """Run a program, and return the inferred spec of its kernel and the kernel's name; tell what was not inferred.

    With `recorded`, the launches are those that were kept instead. Raises `UsageError` if the program launches several
    kernels and `text` names none.
    """
    from tilewise.settings import read_settings
    from tilewise.tuner.capture.program import parse_program
    from tilewise.tuner.inference.infer import infer

    program = parse_program(text)
    kernels = [_recorded(program)] if recorded else captured(program, arguments, quiet=quiet)
    if len(kernels) > 1:
        names = ", ".join(dict.fromkeys(kernel.nesting for kernel in kernels))
        raise UsageError(f"{program.name} launches several kernels; name one, as in {program.name}:NAME: {names}")
    inferred = infer(kernels[0], cache_folder=read_settings().cache_folder, widen=widen, reference=reference)
    for note in inferred.notes:
        click.echo(f"tilewise: {note}", err=True)
    return inferred, kernels[0].name


def _recorded(program: Program) -> CapturedKernel:
    """Return the kernel with the launches that were kept. Raises `NotFound` if there are none."""
    from tilewise.settings import read_settings
    from tilewise.tuner.capture.kept_launches import kept_launches

    if not program.kernel or not program.is_file:
        raise UsageError(f"{program} names no kernel of a file; expected path/to/file.py:KERNEL with --recorded")
    found = kept_launches(Path(program.name).resolve(), program.kernel, read_settings().data_folder)
    if found is None:
        raise NotFound(
            f"no launch of {program.kernel} in {program.name} was recorded; run tilewise run --on-miss record PROGRAM"
        )
    return found
