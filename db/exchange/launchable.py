"""A config as the arguments and options of one Triton launch, for files that other programs launch from."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.db.records import Config, Result, Value
from tilewise.errors import UsageError

__all__ = ["DEFAULTS", "OPTIONS", "launch_of", "refuse_choices"]

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""The arguments that `triton.Config` takes by name on every back end; all others are the kernel's keyword arguments."""

DEFAULTS: Config = {"num_warps": 4, "num_stages": 3}
"""Triton's values for a config that does not set these, for readers that have others."""

_CHOICE = "VARIANT"
"""The parameter by which our kernels choose between functions. No function takes it."""


def launch_of(config: Config) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the function's arguments and the compile options. An option of 0 is not given to the compiler."""
    arguments = {name: value for name, value in config.items() if name not in OPTIONS}
    return arguments, {name: config[name] for name in OPTIONS if config.get(name)}


def refuse_choices(results: Iterable[Result], kind: str) -> None:
    """Raise `UsageError` for a config that chooses between functions, since a reader launches a single one."""
    names = {result.scope.kernel for result in results if result.winner and _CHOICE in result.winner.config}
    if names:
        raise UsageError(
            f"configs of {', '.join(sorted(names))} choose between functions ({_CHOICE}), which {kind} cannot express; "
            "choose other kernels with --kernel, or export json or runtime"
        )
