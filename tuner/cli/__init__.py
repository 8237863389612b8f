"""The command line: one module a verb, imported when that verb is called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from tilewise.errors import NotFound, TilewiseError, UsageError
from tilewise.tuner.cli.interruption import exit_code, unwind_on_sigterm

__all__ = ["cli", "main"]

_VERBS = {
    "kernels": ("tilewise.tuner.cli.listings:kernels", "List the kernels that can be tuned."),
    "devices": ("tilewise.tuner.cli.listings:devices", "List the devices that can be tuned for."),
    "tune": ("tilewise.tuner.cli.tune:tune", "Find the fastest config of a kernel for one or more shapes."),
    "lookup": ("tilewise.tuner.cli.lookup:lookup", "Show the best known config and how it is known."),
    "explain": ("tilewise.tuner.cli.explain:explain", "Show why one config is as fast as it is."),
    "export": ("tilewise.tuner.cli.exports:export", "Write what is stored to a file that others can use offline."),
    "import": ("tilewise.tuner.cli.imports:import_", "Merge an exported file into the database."),
    "harvest": ("tilewise.tuner.cli.harvest:harvest", "Run a program and keep what triton.autotune finds in it."),
    "misses": ("tilewise.tuner.cli.misses:misses", "List shapes that programs launched without a tuned config."),
    "token": ("tilewise.tuner.cli.tokens:token", "Make, list and revoke the tokens of a service."),
    "serve": ("tilewise.api.command:serve", "Answer look-ups over HTTP."),
    "db": ("tilewise.tuner.cli.db:db", "Check, upgrade or back up the database."),
    "selftest": ("tilewise.tuner.cli.selftest:selftest", "Check on this machine every step that tuning relies on."),
    "calibrate": ("tilewise.tuner.cli.calibrate:calibrate", "Fit the modelled part to this machine's chip."),
    "bench": ("tilewise.tuner.cli.bench:bench", "Run the project's own benchmarks."),
}
"""Each verb's command and its line of help, so that `--help` imports none of them."""


class _Verbs(click.Group):
    """Commands named by text and imported on use: the ORM, Optuna and FastAPI cost start-up time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, _, attribute = _VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _VERBS and not name.startswith("-"):
            close = difflib.get_close_matches(name, _VERBS, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"unknown command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilewise", prog_name="tilewise")
def cli() -> None:
    """Find the fastest tile config of a Triton kernel, keep it with its evidence, and hand it out.

    Exit codes: 0 done, 1 failed, 2 bad usage, 4 nothing found, 130 interrupted, 143 terminated.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code; an error is one line on stderr, a traceback only with --debug."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    unwind_on_sigterm()
    # Numpy's own threads wait for each other spinning: with fewer idle cores than threads, a matrix of 400 rows took
    # 1.7 s to invert; one thread takes 10 ms. Said before numpy is imported, and to the processes that are started too.
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
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        code = 1
    except Exception as error:
        if debug:
            raise
        code = _fail(_unforeseen(error), 1)
    sys.exit(code)


def _misused(error: click.ClickException) -> str:
    """What is wrong with the words that were typed, and where it stands how they should be."""
    message = error.format_message().rstrip(".")
    if message.startswith("Got unexpected extra argument") and "=" in message:
        message += "; what follows -s or -c is one word, such as -s M=1000,N=8192"
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see {ctx.command_path} --help" if ctx else message


def _unforeseen(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:  # a file that the user named
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return f"internal error: {type(error).__name__}: {error}; run again with --debug and report it"


def _fail(message: str, code: int) -> int:
    click.echo(f"tilewise: {' '.join(message.split())}", err=True)
    return code
