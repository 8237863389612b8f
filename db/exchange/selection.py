"""The stored results that go into an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewise.db.records import Clock, Flags, Result, Scope, Status, Trial
from tilewise.db.store import Store
from tilewise.errors import NotFound, UsageError

__all__ = ["Selection", "best_results"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Scopes in one state of a store.

    With `unverified`, a problem without a verified config is exported with its fastest. `rung` and `sizes` are for
    tables of configs: the dimension that a table is indexed by, and the sizes that each table must have (empty: the
    format's own). `name` is the template of the files' names, or of an operation's (empty: the format's own). `key`
    names the values by which the reader finds a config. `defaults` are the kernels' flags with their default values, by
    kernel: a stored problem leaves those out.
    """

    store: Store
    scopes: Sequence[Scope]
    unverified: bool = False
    rung: str = "M"
    sizes: Sequence[int] = ()
    name: str = ""
    key: Sequence[str] = ()
    defaults: Mapping[str, Flags] = field(default_factory=dict)

    def best_results(self) -> list[Result]:
        """Return one result per problem and device name. Raises `NotFound` if there are none."""
        if results := best_results(self.store, self.scopes, unverified=self.unverified):
            return results
        raise NotFound(
            "no verified result matches; run `tilewise tune`, or add --unverified to take the fastest as it is"
        )

    def single_scope(self, kind: str) -> Scope:
        """Return the scope of the only problem: the one that a look-up answers from, else the last.

        Raises `UsageError` if there are several problems; `kind` names the format, which holds one.
        """
        questions = {scope.question.key: scope.question for scope in self.scopes}
        if len(questions) > 1:
            found = list(questions.values())
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            raise UsageError(
                f"a {kind} file holds one problem, but {len(found)} match: {'; '.join(map(str, found[:4]))}{more}; "
                "choose one with --kernel, --device, -s"
            )
        answer = self.store.lookup(self.scopes[0].question)
        return answer.scope if answer else self.scopes[-1]


def best_results(store: Store, scopes: Iterable[Scope], *, unverified: bool = False) -> list[Result]:
    """Return one result for each problem and device name that has any, in the order they were first seen.

    As in a look-up, measured goes before modelled, then the latest winner. With `unverified`, a problem without a
    verified config gets its fastest.
    """
    found: dict[str, Result] = {}
    for scope in scopes:
        result = store.result(scope)
        if result.winner is None and unverified:
            result = replace(result, winner=_fastest(store.trials(scope)))
        if result.winner is None:
            continue
        rival = found.get(scope.question.key)
        if rival is None or _weight(result) > _weight(rival):
            found[scope.question.key] = result
    return list(found.values())


def _fastest(trials: Iterable[Trial]) -> Trial | None:
    correct = [trial for trial in trials if trial.status is Status.CORRECT]
    return min(correct, key=lambda trial: trial.time_us or 0, default=None)


def _weight(result: Result) -> tuple[bool, bool, float]:
    assert result.winner is not None, "only results with a winner are compared"
    return result.winner.verified, result.scope.clock is Clock.MEASURED, result.winner.created.timestamp()
