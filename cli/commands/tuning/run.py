"""`tilewise run`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import click

from tilewise.cli.formatting import show_ending
from tilewise.cli.options import program_arguments
from tilewise.errors import Unavailable

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
@click.option(
    "--interpret",
    is_flag=True,
    help="Launch on the CPU, by Triton's interpreter: slow, for a check without an NPU or GPU. Needs --for-device.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="On an error, show the traceback.")
@click.argument("program")
@program_arguments
def run(
    program: str, arguments: tuple[str, ...], on_miss: str, source: str | None, device: str | None, interpret: bool
) -> int:
    """Run the unmodified PROGRAM with ARGUMENTS; its kernels under triton.autotune launch stored configs.

    PROGRAM is path/to/file.py, or a module to run as `python -m` does. Options of tilewise go before it. Exits with the
    program's exit code. A kernel that was never tuned is named once on stderr and launches its first config.
    """
    from tilewise.tuner.capture.program import parse_program, run_program
    from tilewise.tuner.runtime.autotune import autotuning

    parsed = parse_program(program)
    logging.basicConfig(level=logging.WARNING, format="tilewise: %(message)s", stream=sys.stderr)
    with (
        _interpreting(device) if interpret else nullcontext(),
        autotuning(on_miss=on_miss, source=source, device=device),
    ):
        ending = run_program(parsed, arguments)
    if isinstance(ending.error, RuntimeError) and "0 active drivers" in str(ending.error):
        raise Unavailable(_NO_DEVICE)
    return show_ending(ending)


_NO_DEVICE = (
    "the program launches on an NPU or GPU, and this machine has none; "
    "tilewise run --interpret --for-device NAME PROGRAM launches on the CPU"
)


@contextmanager
def _interpreting(device: str | None) -> Iterator[None]:
    """Have Triton interpret kernels, and a stand-in answer for the accelerator, while the block runs."""
    if device is None:
        raise click.UsageError("--interpret needs --for-device, the device whose results to use, such as Ascend910B4")
    os.environ["TRITON_INTERPRET"] = "1"  # read by Triton when a kernel is defined
    from tilewise.tuner.capture.closures import closures_kept
    from tilewise.tuner.stand_in.accelerator import accelerator_stand_in

    try:
        with accelerator_stand_in(), closures_kept():
            yield
    finally:
        del os.environ["TRITON_INTERPRET"]
