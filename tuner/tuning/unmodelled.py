"""Trials that a model could not judge: how often for which reason, and when a search that meets no others stops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tilewise.db.records import Status, Trial

__all__ = ["HOPELESS", "Unmodelled", "general", "unmodelled_text"]

HOPELESS = 8
"""Trials that a model could not judge for one reason, after which a search without any time stops: two batches."""


class Unmodelled:
    """The trials that a model could not judge so far, by reason."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def count(self, trial: Trial) -> None:
        if trial.status is Status.UNMODELLED:
            self._reasons[general(trial.reason)] += 1

    @property
    def are_hopeless(self) -> bool:
        return max(self._reasons.values(), default=0) >= HOPELESS


def general(reason: str) -> str:
    """Return a reason without its numbers, which differ from config to config."""
    return re.sub(r"\d+", "N", reason)


def unmodelled_text(trials: Sequence[Trial]) -> str:
    """Return how many configs a model could not judge, with the commonest reason; empty if it judged all."""
    unmodelled = [trial for trial in trials if trial.status is Status.UNMODELLED]
    if not unmodelled:
        return ""
    ((kind, count),) = Counter(general(trial.reason) for trial in unmodelled).most_common(1)
    reason = next(trial.reason for trial in unmodelled if general(trial.reason) == kind)
    often = "" if count == len(unmodelled) else f"most often ({count}): "
    return f"the model could not judge {len(unmodelled)} of {len(trials)} configs: {often}{reason}"
