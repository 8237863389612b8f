"""A change of a spec changes no argument, space, default, rule, launch or tiling that it was not meant to change."""

import pytest
from tables import before, now

from tilewise.kernels import registry


@pytest.mark.parametrize("name", registry.names())
def test_arguments_spaces_defaults_rules_launches_and_tilings_are_those_of_the_table(name):
    for row, known in zip(now("spaces", name), before("spaces", name), strict=True):
        assert row == known


@pytest.mark.parametrize("name", registry.names())
def test_rules_of_configs_that_differ_in_one_value_are_those_of_the_table(name):
    for row, known in zip(now("neighbours", name), before("neighbours", name), strict=True):
        assert row == known


@pytest.mark.parametrize("name", registry.names())
def test_values_and_defaults_change_with_each_size_where_the_table_says(name):
    found, known = now("sweeps", name), before("sweeps", name)
    assert [row["problem"] for row in found] == [row["problem"] for row in known]
    assert found == known
