"""The export formats that contain portfolios."""

from __future__ import annotations

from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.native.runtime_file import encode_winners
from tilewise.db.exchange.selection import Selection
from tilewise.errors import NotFound
from tilewise.kernels import registry
from tilewise.tuner.portfolio.build import portfolios
from tilewise.tuner.portfolio.portfolio import Portfolio
from tilewise.tuner.portfolio.rule_module import rule_module

__all__ = ["FORMATS"]


def _portfolios(selection: Selection) -> list[Portfolio]:
    """Build the portfolios, one kernel at a time, with its spec if it is registered.

    Raises `NotFound` if no verified result is selected.
    """
    made: list[Portfolio] = []
    for kernel in sorted({scope.kernel for scope in selection.scopes}):
        spec = registry.load(kernel) if kernel in registry.names() else None
        scopes = [scope for scope in selection.scopes if scope.kernel == kernel]
        made += portfolios(((scope, selection.store.trials(scope)) for scope in scopes), spec)
    if not made:
        raise NotFound("no verified result matches; run `tilewise tune`")
    return made


def _write_runtime(selection: Selection) -> Written:
    made = _portfolios(selection)
    results = [result for scope in selection.scopes if (result := selection.store.result(scope)).winner is not None]
    bodies = [portfolio.to_json() for portfolio in made]
    return Written.single(encode_winners((result.to_json() for result in results), bodies), len(results))


def _write_python(selection: Selection) -> Written:
    made = _portfolios(selection)
    return Written.single(rule_module(made).encode(), len(made))


FORMATS = {
    one.name: one
    for one in (
        Format("runtime", "winners only and portfolios, for programs that only launch", write=_write_runtime),
        Format("python", "the portfolios' rules as Python functions without dependencies", write=_write_python),
    )
}
