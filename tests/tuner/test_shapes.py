"""The index of shapes."""

from __future__ import annotations

import math
import random

import pytest

from tilewise.tuner.shapes import ShapeIndex, shape_distance


def test_the_distance_is_the_sum_of_log_ratios_either_way():
    assert shape_distance({"M": 8, "N": 4}, {"M": 4, "N": 8}) == pytest.approx(2 * math.log(2))
    assert shape_distance({"M": 8, "N": 4}, {"M": 8, "N": 4}) == 0


@pytest.mark.parametrize("count", [1, 40, 3000])  # looked at one by one; sorted; sorted, and some one by one
@pytest.mark.parametrize("same", [None, "M", "N"])
def test_what_is_near_is_what_looking_at_every_shape_finds(count, same):
    draw = random.Random(count)
    shapes = [{"M": draw.randint(1, 5000), "N": draw.randint(1, 900)} for _ in range(count)]
    if same:
        shapes = [shape | {same: 64} for shape in shapes]
    index = ShapeIndex(("M", "N"))
    asked = {"M": 700, "N": 64}
    for place, shape in enumerate(shapes):
        index.add(shape)
        if place == 2000:
            index.near(asked, 0.1)  # sorts what is there so far
    unique = {tuple(shape.values()): shape for shape in shapes}.values()
    wanted = sorted(d for shape in unique if 0 < (d := shape_distance(shape, asked)) <= math.log(2))[:8]
    found = index.near(asked, math.log(2))
    assert [distance for distance, _ in found] == pytest.approx(wanted)
    assert all(shape_distance(shape, asked) == pytest.approx(distance) for distance, shape in found)


def test_the_shape_itself_is_not_its_neighbour():
    index = ShapeIndex(("M",))
    index.add({"M": 5})
    assert index.near({"M": 5}, 1.0) == []
    assert len(index) == 1
