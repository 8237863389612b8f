"""The first kept run on untuned shapes, as the claim about near shapes reads it."""

from __future__ import annotations

import json
import math
from collections import Counter

from places import RESULTS

from tilewise.benchmarks.claims.neighbours import first_run_distances

RAW = {"shapes-h200-earlier": json.loads((RESULTS / "shapes-h200-earlier.json").read_text())}


def test_the_first_run_launched_a_neighbours_config_exactly_where_one_was_within_2():
    found = list(first_run_distances(RAW))
    assert Counter(match for match, _ in found) == {"nearest": 13, "portfolio": 32}
    assert all((match == "nearest") == (away <= math.log(2)) for match, away in found)
