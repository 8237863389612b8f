"""The stored results that an export is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilewise.db.records import Clock, Result, Scope, Status, Trial
from tilewise.db.store import Store
from tilewise.errors import NotFound, UsageError

__all__ = ["Selection", "best_results"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Scopes of one state of a store.

    With `unverified` the fastest config stands in where nobody verified any. `rung` and `sizes` are for tables of
    configs: the dimension that a table goes by, and the sizes that each table must have (none: the format's own).
    """

    store: Store
    scopes: Sequence[Scope]
    unverified: bool = False
    rung: str = "M"
    sizes: Sequence[int] = ()

    def best_results(self) -> list[Result]:
        """One result per problem and device name. Raises `NotFound` where there is none."""
        if results := best_results(self.store, self.scopes, unverified=self.unverified):
            return results
        raise NotFound(
            "no verified result matches; run `tilewise tune`, or add --unverified to take the fastest as it is"
        )

    def single_scope(self, kind: str) -> Scope:
        """The scope of the only problem: of its toolchains and sources the one a look-up answers from, or the last.

        Raises `UsageError` where there are several problems; `kind` names the format that holds one.
        """
        questions = {scope.question.key: scope.question for scope in self.scopes}
        if len(questions) > 1:
            found = list(questions.values())
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            raise UsageError(
                f"a {kind} file holds one problem, and {len(found)} fit: {'; '.join(map(str, found[:4]))}{more}; "
                "choose with --kernel, --device, -s"
            )
        answer = self.store.lookup(self.scopes[0].question)
        return answer.scope if answer else self.scopes[-1]


def best_results(store: Store, scopes: Iterable[Scope], *, unverified: bool = False) -> list[Result]:
    """One result for each problem and device name that has any, in the order they were first seen.

    As a look-up answers: measured before modelled, then the winner found last. With `unverified`, the fastest time
    stands in where nobody verified any.
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
