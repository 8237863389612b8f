"""`tilewise run`."""

from __future__ import annotations

import logging
import sys

import click

from tilewise.cli.formatting import show_ending

__all__ = ["run"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--on-miss",
    type=click.Choice(["default", "tune", "record"]),
    default="default",
    show_default=True,
    help="For a shape without a result: the program's default or a near shape's config (record: and keep the launch "
    "for tilewise tune --recorded), or Triton's own autotuner.",
)
@click.option("--source", help="A file of tilewise export, a database or a server; default: the configured database.")
@click.option("--for-device", "device", help="Use this device's results instead of those of the tensors' device.")
@click.option("--debug", is_flag=True, expose_value=False, help="On an error, show the traceback.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(program: str, arguments: tuple[str, ...], on_miss: str, source: str | None, device: str | None) -> int:
    """Run the unmodified PROGRAM with ARGUMENTS; its kernels under triton.autotune launch stored configs.

    PROGRAM is path/to/file.py, or a module to run as `python -m` does. Options of tilewise go before it. Exits with the
    program's exit code. A kernel that was never tuned is named once on stderr and launches its first config.
    """
    from tilewise.tuner.capture.program import parse_program, run_program
    from tilewise.tuner.runtime.autotune import autotuning

    logging.basicConfig(level=logging.WARNING, format="tilewise: %(message)s", stream=sys.stderr)
    with autotuning(on_miss=on_miss, source=source, device=device):
        ending = run_program(parse_program(program), arguments)
    return show_ending(ending)
