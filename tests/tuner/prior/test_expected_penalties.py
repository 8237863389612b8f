"""A change of the prior or of a tiling changes no penalty but those that it was meant to change."""

import pytest
from tables import before, now

from tilewise.kernels import registry


@pytest.mark.parametrize("name", registry.names())
def test_penalties_are_those_of_the_table(name):
    for row, known in zip(now("priors", name), before("priors", name), strict=True):
        assert row["problem"] == known["problem"]
        assert row["penalties"] == pytest.approx(known["penalties"], rel=1e-6)
