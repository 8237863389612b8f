"""Options shared by verbs, and the output of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tilewise.db.store import Store
from tilewise.errors import NotFound

__all__ = [
    "Group",
    "common",
    "database",
    "existing_url",
    "give",
    "inference_options",
    "log_level_option",
    "open_existing",
    "print_json",
    "problem_options",
    "program_arguments",
    "wait_option",
    "write_result",
]

F = TypeVar("F", bound=Callable[..., Any])


class Group(click.Group):
    """The commands of a verb, each listed with the whole first sentence of its help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            rows = [(name, command.get_short_help_str(limit=1000)) for name, command in sorted(self.commands.items())]
            formatter.write_dl(rows)


def common(function: F) -> F:
    """Add `--json` and `--debug`."""
    function = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else."
    )(function)
    return click.option("--debug", is_flag=True, expose_value=False, help="On an error, show the traceback.")(function)


def database(function: F) -> F:
    return click.option(
        "--db",
        "url",
        metavar="URL",
        help="Database, such as sqlite:///tiles.db (default: $TILEWISE_DB or the user's own).",
    )(function)


def log_level_option(help_text: str) -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help=help_text,
    )


def wait_option(function: F) -> F:
    return click.option(
        "--wait",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Time to wait for a device that another process uses; 0 does not wait.  [default: no limit]",
    )(function)


def inference_options(function: F) -> F:
    """Add `--widen`, `--reference` and `--recorded`."""
    function = click.option(
        "--recorded",
        is_flag=True,
        help="Do not run the program: use the launches that tilewise run --on-miss record kept.",
    )(function)
    function = click.option(
        "--reference",
        default="",
        metavar="EXPRESSION",
        help="Verify against this, in the names of the inputs: torch.add, or torch.softmax(in_ptr, 1); several outputs "
        "as a tuple. Without it, configs are verified against the program's own.",
    )(function)
    return click.option("--widen", is_flag=True, help="Try powers of two around and between the program's values too.")(
        function
    )


def program_arguments(function: F) -> F:
    """Add `ARGUMENTS` of a program, with or without `--` before them, which is tilewise's."""

    def own(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        return words[1:] if words[:1] == ("--",) else words

    return click.argument("arguments", nargs=-1, type=click.UNPROCESSED, callback=own)(function)


def problem_options(*, required: bool = True) -> Callable[[F], F]:
    """Add `-s M=1000,N=8192` (repeatable) and `--dtype`."""
    shape = click.option(
        "-s",
        "--shape",
        "shapes",
        multiple=True,
        required=required,
        metavar="M=1000,N=8192",
        help="Dimension sizes; repeatable.",
    )
    dtype = click.option("--dtype", default="float32", show_default=True, help="Type of the kernel's inputs.")
    return lambda function: shape(dtype(function))


def _file(url: str) -> Path:
    """Return the file of an SQLite URL, which may end in options: `sqlite:///tiles.db?timeout=5`."""
    return Path(url.removeprefix("sqlite:///").partition("?")[0])


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def existing_url(url: str | None) -> str:
    """Return the URL of a database that must exist. Raises `NotFound` if the default one was never created."""
    from tilewise.settings import read_settings

    chosen = url or read_settings().database_url
    if not url and chosen.startswith("sqlite:///") and not _file(chosen).exists():
        raise NotFound(f"nothing is stored yet: no database at {chosen}; run tilewise tune or import first")
    return chosen


def open_existing(url: str | None) -> Store:
    """Open the store at `existing_url`."""
    from tilewise.db.sql.sql_store import open_store

    return open_store(existing_url(url), create=False)


def give(body: dict[str, Any], as_json: bool, file: str | None, show: Callable[[dict[str, Any]], None]) -> None:
    """Print a result as JSON or with `show`, and write it to `file` if one is named."""
    if as_json:
        print_json(body)
    else:
        show(body)
    write_result(body, file)


def write_result(body: dict[str, Any], file: str | None) -> None:
    """Write a result to `file` if one is named."""
    from tilewise.db.exchange.files import write_file

    if file:
        write_file(Path(file), (json.dumps(body, indent=1) + "\n").encode())
