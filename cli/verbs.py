"""Groups of verbs whose modules are imported when a verb is called: the ORM, Optuna and FastAPI slow each start."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click

__all__ = ["Verb", "VerbGroup"]

Verb = tuple[str, str]
"""`module:function` below the group's package, and the line of help, which is shown without importing the module."""


class VerbGroup(click.Group):
    """A group whose `verbs` are in modules of `package`; `verbs` may be a function, which is called when needed."""

    def __init__(
        self, *args: Any, package: str, verbs: Mapping[str, Verb] | Callable[[], Mapping[str, Verb]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._package, self._given = package, verbs

    @property
    def _verbs(self) -> Mapping[str, Verb]:
        return self._given() if callable(self._given) else self._given

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return None
        module, _, attribute = self._verbs[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"{self._package}.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._verbs and not name.startswith("-"):
            close = difflib.get_close_matches(name, self._verbs, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"unknown command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._verbs.items()])
