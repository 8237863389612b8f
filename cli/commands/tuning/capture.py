"""`tilewise capture`."""

from __future__ import annotations

import contextlib
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import common, print_json, program_arguments

if TYPE_CHECKING:
    from tilewise.tuner.capture.calls import CapturedKernel
    from tilewise.tuner.capture.program import Program

__all__ = ["capture", "captured"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@common
@click.argument("program")
@program_arguments
def capture(program: str, arguments: tuple[str, ...], as_json: bool) -> int:
    """Run the unmodified PROGRAM with ARGUMENTS and show the Triton kernels that it launches.

    PROGRAM is path/to/file.py, or a module to run as `python -m` does (pytest -- test_file.py), and may end in
    :KERNEL. Without an NPU or GPU nothing is launched: tensors asked for on one are made on the CPU, and kernels that
    store integers are interpreted there. What others would have computed stays as it was allocated.
    """
    from tilewise.tuner.capture.program import parse_program

    parsed = parse_program(program)
    kernels = captured(parsed, arguments, quiet=as_json)
    if as_json:
        print_json({"program": program, "kernels": [kernel.to_json() for kernel in kernels]})
        return 0
    for kernel in kernels:
        _show(kernel, parsed, arguments)
    return 0


def captured(program: Program, arguments: Sequence[str], *, quiet: bool) -> list[CapturedKernel]:
    """Run a program and return its kernels, or the one that its name gives. `quiet`: its output goes to stderr.

    Raises `NotFound` if it launches none. An error of the program is told in one line if it launched something, since
    it may come from results that were not computed; else it is printed as Python prints it.
    """
    from tilewise.errors import NotFound
    from tilewise.kernels.validated_callback import raised
    from tilewise.tuner.capture.program import run_program
    from tilewise.tuner.capture.recorder import recording

    output = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    with recording() as recorder, output:
        ending = run_program(program, arguments)
    kernels = [kernel for kernel in recorder.kernels if program.kernel in ("", kernel.name, kernel.nesting)]
    if ending.error is not None and recorder.kernels:
        told = raised(ending.error, program.name)
        why = ", perhaps for lack of results, as nothing is launched here" if recorder.skips_launches else ""
        click.echo(f"tilewise: the program ended early{why} ({told}); launches before that are kept", err=True)
    elif ending.error is not None:
        traceback.print_exception(ending.error)
    if not kernels:
        names = ", ".join(kernel.name for kernel in recorder.kernels)
        wanted = f"no kernel {program.kernel}; it launches {names}" if names else "no Triton kernel"
        hint = _missed(recorder.kernels) if names else "; a test file runs as tilewise capture pytest -- FILE"
        if ending.error is not None and not names:
            told = raised(ending.error, program.name)
            raise NotFound(f"{program.name} ended before it launched a Triton kernel: {told}")
        raise NotFound(f"{program.name} launches {wanted}{hint}")
    return kernels


def _missed(kernels: Sequence[CapturedKernel]) -> str:
    """Return which kernels' results the program lacked, perhaps to launch others."""
    told = [f"{kernel.name} ({kernel.not_interpreted})" for kernel in kernels if kernel.not_interpreted]
    return f"; without results of {', '.join(told)}" if told else ""


def _show(kernel: CapturedKernel, program: Program, arguments: Sequence[str]) -> None:
    configs = kernel.configs
    names = ", ".join(dict.fromkeys(name for config in configs for name in config))
    space = f"{len(configs)} configs of {names}" if len(configs) > 1 else "one config"
    launches = f"{sum(kernel.counts)} launches" if sum(kernel.counts) != 1 else "1 launch"
    click.echo(f"{kernel.name} in {kernel.file.name}: {launches}, {len(kernel.calls)} different; {space}")
    for call in kernel.calls[:_SHOWN]:
        click.echo(f"  grid {'x'.join(map(str, call.grids[0]))}: {call}")
    if len(kernel.calls) > _SHOWN:
        click.echo(f"  and {len(kernel.calls) - _SHOWN} more (--json shows all)")
    for reason in (*kernel.obstacles, *kernel.left_out):
        click.echo(f"  {reason}")
    if kernel.not_interpreted:
        click.echo(f"  the program goes on without its results: {kernel.not_interpreted}")
    if kernel.calls and not kernel.obstacles:
        words = [f"{program.name}:{kernel.nesting}", "--program", *(["--", *arguments] if arguments else [])]
        click.echo(f"  next: tilewise tune {shlex.join(words)}")


_SHOWN = 3
"""Different launches of a kernel shown in text."""
