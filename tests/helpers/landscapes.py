"""Landscapes of the page, made of records."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tilewise.api.pages.problem.landscape import Landscape
from tilewise.db.records import Trial


def landscape_of(trials: Iterable[Trial]) -> Landscape:
    return Landscape(
        [
            (json.dumps(dict(one.config)), str(one.status), one.reason, one.time_us, one.verified, one.ordinal)
            for one in trials
        ]
    )
