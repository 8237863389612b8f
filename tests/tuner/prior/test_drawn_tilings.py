"""The prior's penalties of tilings drawn at random, beyond those that kernels have."""

import drawn_tilings
import pytest


@pytest.mark.parametrize("kind", drawn_tilings.CASES)
def test_penalties_of_drawn_tilings_are_those_of_the_table(kind):
    for number, (now, before) in enumerate(
        zip(drawn_tilings.now(kind), drawn_tilings.before(kind), strict=True), start=1
    ):
        assert now == pytest.approx(before, rel=1e-6), f"the {number}th: {[*drawn_tilings.drawn(kind)][number - 1][2:]}"
