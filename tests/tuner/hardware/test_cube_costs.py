"""Figures of the cube core, taken together."""

import pytest

from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES, ODD_SHARE, TRUST, line_share


def test_from_its_share_on_the_doubt_about_far_rows_moves_the_time_by_a_fifth():
    far = CUBE_FIGURES["far_row_ns"]
    assert 1 - ODD_SHARE * (1 - far.low / far.value) == pytest.approx(0.8, abs=0.01)


def test_a_modelled_time_lies_within_its_interval_and_odd_rows_are_trusted_less_than_a_product():
    assert all(low < 1 < high for low, high in TRUST.values())
    (low, high), (wide_low, wide_high) = TRUST["small product"], TRUST["odd rows"]
    assert wide_low < low and high < wide_high


@pytest.mark.parametrize(
    ("aligned", "share"),
    [(2, 1), (16, 1), (32, 0.75), (96, 0.75), (128, 0.6), (384, 0.6), (256, 0.375), (768, 0.375), (512, 0), (1024, 0)],
)
def test_lines_cost_less_the_more_bytes_the_distance_of_rows_is_a_multiple_of(aligned, share):
    assert line_share(lambda name: CUBE_FIGURES[name].value, aligned) == share
