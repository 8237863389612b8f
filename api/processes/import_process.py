"""Runs in the process of imports: reads a file entry by entry, first as a whole and then to merge it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tilewise.db.exchange.import_file import Offer, Refusal
from tilewise.db.exchange.native.export_file import stream_native_offers
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import TilewiseError
from tilewise.kernels import registry
from tilewise.tuner.ingest.import_checks import checked_offers

__all__ = ["TASKS", "serve"]

TASKS = ("check", "merge")

_MAX_REFUSALS = 100
_NICENESS = 10


def serve(url: str, own: tuple[str, ...], task: str, path: str) -> dict[str, Any] | TilewiseError | None:
    """Check the export file at `path` as a whole, or merge it into the store; return the JSON of the outcome, or the
    error. `own` holds the places of the users' kernels that the server knows."""
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    try:
        if task == "merge":
            for place in own:
                registry.register(place)
            return _merge(url, path)
        for _ in _offers(path):
            pass
        return None
    except TilewiseError as error:
        return error


def _merge(url: str, path: str) -> dict[str, Any]:
    refusals = list[Refusal]()

    def refuse(refusal: Refusal) -> None:
        if len(refusals) < _MAX_REFUSALS:
            refusals.append(refusal)

    with open_store(url, create=False) as store:
        kept = ((offer.scope, offer.trials) for offer in checked_offers(_offers(path), refuse))
        report = store.merge(kept, most_changes=0)
    counts = {"added": report.added, "updated": report.updated, "unchanged": report.unchanged}
    refused = [{"place": refusal.place, "reason": refusal.reason} for refusal in refusals]
    return {**counts, "bests_changed": report.changed, "refused": refused}


def _offers(path: str) -> Iterator[Offer | Refusal]:
    with open(path, "rb") as file:
        yield from stream_native_offers(file)
