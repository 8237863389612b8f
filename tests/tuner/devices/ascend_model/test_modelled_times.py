"""Compiled code has the modelled time that it had when `_MODEL_VERSION` last rose."""

import pytest
from modelled_times import known, timed

from tilewise.kernels import registry
from tilewise.tuner.hardware import calibrated_costs

KNOWN = known()


@pytest.mark.in_part(3)
@pytest.mark.parametrize("name", registry.vector_names())
def test_times_pipes_and_ranges_are_those_of_this_version_of_the_model(name):
    version = calibrated_costs._MODEL_VERSION
    assert version == KNOWN["version"]
    rows = KNOWN["kernels"][name]
    assert rows
    for row in rows:
        assert timed(row) == row["times"], row["config"]
