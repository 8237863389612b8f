"""A change of a spec changes no space, default, launch or tiling but those that it was meant to change."""

import pytest
from tables import before, now

from tilewise.kernels import registry


@pytest.mark.in_part(5)
@pytest.mark.parametrize("name", registry.names())
def test_spaces_defaults_launches_and_tilings_are_those_of_the_table(name):
    for row, known in zip(now("spaces", name), before("spaces", name), strict=True):
        assert row == known
