"""The command line: one module per verb, imported when the verb is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from tilewise.cli.signals import exit_code, unwind_on_sigterm
from tilewise.cli.verbs import VerbGroup
from tilewise.errors import NotFound, TilewiseError, UsageError

__all__ = ["cli", "main"]

_VERBS = {
    "kernels": ("results.kernels:kernels", "List the kernels that can be tuned, or sign one of yours."),
    "devices": ("results.listings:devices", "List the devices that can be tuned for."),
    "tune": ("tuning.tune:tune", "Find the fastest config of a kernel for one or more shapes."),
    "retune": ("tuning.retune:retune", "Time the best configs of older toolchains and sources again."),
    "capture": ("tuning.capture:capture", "Run a program and show the Triton kernels that it launches."),
    "spec": ("tuning.spec:spec", "Run a program and write the spec of one of its kernels."),
    "run": ("tuning.run:run", "Run a program whose triton.autotune launches stored configs."),
    "lookup": ("results.lookup:lookup", "Show the best known config and how it is known."),
    "trials": ("results.trials:trials", "Show the configs that were tried, with times and reasons."),
    "explain": ("tuning.explain:explain", "Show why one config is as fast as it is."),
    "lint": ("tuning.lint:lint", "Report what a kernel's compiled code does that costs time on Ascend."),
    "export": (
        "results.export:export",
        "Export stored results to a file for offline use.",
    ),
    "import": ("results.import_:import_", "Merge an exported file into the database."),
    "harvest": (
        "tuning.harvest:harvest",
        "Run a program and store what triton.autotune finds in it.",
    ),
    "helion": ("results.helion:helion", "List, export and remove the records of Helion's autotuner."),
    "misses": (
        "tuning.misses:misses",
        "List shapes that programs launched without a tuned config.",
    ),
    "token": ("service.token:token", "Create, list and revoke the tokens of a service."),
    "serve": ("service.serve:serve", "Answer look-ups over HTTP."),
    "worker": ("service.worker:worker", "Run a database's jobs on this host's devices."),
    "fleet": ("service.fleet:fleet", "Run a database's jobs on all devices of a Ray cluster."),
    "db": ("admin.db:db", "Check, upgrade or back up the database."),
    "doctor": ("admin.doctor:doctor", "Show what is installed, what works, and what to do about the rest."),
    "selftest": (
        "tuning.selftest:selftest",
        "Check on this machine every step that tuning relies on.",
    ),
    "calibrate": ("tuning.calibrate:calibrate", "Fit the modelled part to this machine's chip."),
    "bench": ("bench:bench", "Run the project's own benchmarks."),
}
"""Each verb's command and its line of help, so that `--help` needs no import."""


@click.group(
    cls=VerbGroup,
    package="tilewise.cli.commands",
    verbs=_VERBS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="tilewise", prog_name="tilewise")
def cli() -> None:
    """Find the fastest tile config of a Triton kernel, keep it with its evidence, and hand it out.

    Exit codes: 0 done, 1 failed, 2 bad usage, 4 nothing found, 130 interrupted, 143 terminated.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code. An error is one line on stderr, or a traceback with --debug."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    unwind_on_sigterm()
    # Numpy's threads spin while they wait for each other: with fewer idle cores than threads, inverting a matrix of 400
    # rows took 1.7 s; one thread takes 10 ms. Set before numpy is imported; child processes inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        result = cli.main(words, prog_name="tilewise", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        code = 2
    except click.ClickException as error:
        code = _fail(_misused(error), 2)
    except (KeyboardInterrupt, click.Abort) as error:
        code = exit_code(error)
    except TilewiseError as error:
        if debug:
            raise
        code = _fail(str(error), 2 if isinstance(error, UsageError) else 4 if isinstance(error, NotFound) else 1)
    except BrokenPipeError:  # the reader of the pipe has closed it
        sys.stderr.close()
        code = 1
    except Exception as error:
        if debug:
            raise
        code = _fail(_unexpected(error), 1)
    sys.exit(code)


def _misused(error: click.ClickException) -> str:
    """Return what is wrong with the command line, and which --help explains it."""
    message = error.format_message().rstrip(".")
    if message.startswith("Got unexpected extra argument") and "=" in message:
        message += "; write the value of -s or -c as one word, such as -s M=1000,N=8192"
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see {ctx.command_path} --help" if ctx else message


def _unexpected(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:  # a file that the user named
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return f"internal error: {type(error).__name__}: {error}; run again with --debug and report it"


def _fail(message: str, code: int) -> int:
    click.echo(f"tilewise: {' '.join(message.split())}", err=True)
    return code
