"""Portfolios of trials drawn at random: their configs, rules, costs and forecasts."""

import math

import drawn_portfolios
import pytest


@pytest.fixture(scope="module")
def now():
    return drawn_portfolios.now()


@pytest.mark.parametrize("number", range(drawn_portfolios.CASES))
def test_portfolios_of_drawn_trials_are_those_of_the_table(now, number):
    assert_alike(now[number], drawn_portfolios.before()[number])


def assert_alike(now, before):
    """Check that both are the same but for the last digits of numbers."""
    assert type(now) is type(before)
    if isinstance(now, dict):
        assert now.keys() == before.keys()
        now, before = [*now.values()], [*before.values()]
    if isinstance(now, list):
        assert len(now) == len(before)
        for one, other in zip(now, before, strict=True):
            assert_alike(one, other)
    elif isinstance(now, float):
        assert math.isclose(now, before, rel_tol=1e-3, abs_tol=2e-3)
    else:
        assert now == before
