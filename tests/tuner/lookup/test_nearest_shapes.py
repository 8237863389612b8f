"""The index of shapes."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tilewise.db.records import Problem, canonical_json
from tilewise.tuner.lookup.nearest_shapes import ShapeIndex, ShapesBySource, _parsed_rows
from tilewise.tuner.space.problem_checks import shape_distance


def test_the_distance_is_the_sum_of_log_ratios_either_way():
    assert shape_distance({"M": 8, "N": 4}, {"M": 4, "N": 8}) == pytest.approx(2 * math.log(2))
    assert shape_distance({"M": 8, "N": 4}, {"M": 8, "N": 4}) == 0


@pytest.mark.parametrize("count", [1, 40, 3000])  # the last: some sorted, some inserted, some unsorted
@pytest.mark.parametrize("same", [None, "M", "N"])
@pytest.mark.parametrize("bound", [0.001, math.log(2), math.inf])
def test_what_is_near_is_what_looking_at_every_shape_finds(count, same, bound):
    draw = random.Random(count)
    shapes = [{"M": draw.randint(1, 5000), "N": draw.randint(1, 900)} for _ in range(count)]
    if same:
        shapes = [shape | {same: 64} for shape in shapes]
    index = ShapeIndex(("M", "N"))
    asked = {"M": 700, "N": 64}
    for place, shape in enumerate(shapes):
        index.add(("N", "M"), np.array([[shape["N"], shape["M"]]]))
        if place in (1500, 2700):
            index.near(asked, 0.1)  # sorts the shapes added so far
    unique = {tuple(shape.values()): shape for shape in shapes}.values()
    wanted = sorted(d for shape in unique if 0 < (d := shape_distance(shape, asked)) <= bound)[:8]
    found = index.near(asked, bound)
    assert [distance for distance, _ in found] == pytest.approx(wanted)
    assert all(shape_distance(shape, asked) == pytest.approx(distance) for distance, shape in found)


def test_the_shape_itself_is_not_its_neighbour():
    index = ShapeIndex(("M",))
    index.add(("M",), np.array([[5]]))
    assert index.near({"M": 5}, 1.0) == []
    assert len(index) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        [{"M": 1, "N": 20}, {"M": 300, "N": 4}],
        [{"M": 1}, {"M": 2, "N": 2}, {"M": 3, "K": 5}, {"K": 5}],
        [{'2": {\\': 3, "Größe,": 7, "7": 2}, {'2": {\\': 1, "Größe,": 9, "7": 8}],
    ],
)
def test_shapes_read_from_text_are_those_that_parsing_gives(shapes):
    read, parsed = ShapesBySource(), ShapesBySource()
    read.read("a1", canonical_json(shapes))
    parsed.add(("a1", shape) for shape in shapes)
    for shape in shapes:
        asked = {name: size + 1 for name, size in shape.items()}
        found, expected = (index.near(Problem("k", asked, "float32"), "a1", math.inf) for index in (read, parsed))
        assert [dims for _, dims in found] == [dims for _, dims in expected]
        assert shape in [dims for _, dims in found]


def test_a_shape_without_dimensions_has_no_neighbours_and_does_not_hide_those_of_others():
    shapes = ShapesBySource()
    shapes.read("a1", "[{}]")
    shapes.read("a1", '[{},{"M":8},{"M":9}]')
    shapes.settle()
    assert [dims for _, dims in shapes.near(Problem("k", {"M": 8}, "float32"), "a1", 1.0)] == [{"M": 9}]
    assert shapes.near(Problem("k", {}, "float32"), "a1", 1.0) == []


def test_shapes_of_other_flags_are_no_neighbours():
    shapes = ShapesBySource()
    shapes.read("a1", '[{"M":8,"CAUSAL":true},{"CAUSAL":false,"M":9},{"M":10},{"M":11,"ACT":"gelu"}]')
    causal = Problem("k", {"M": 12}, "float32", {"CAUSAL": True})
    assert [dims for _, dims in shapes.near(causal, "a1", 1.0)] == [{"M": 8}]
    assert [dims for _, dims in shapes.near(Problem("k", {"M": 12}, "float32"), "a1", 1.0)] == [{"M": 10}]


def test_an_index_of_nothing_has_nothing_near():
    index = ShapeIndex(("M", "N"))
    assert index.near({"M": 7, "N": 8}, math.inf) == []
    assert len(index) == 0


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [
        ('[{"M":1,"N":20},{"M":3,"N":4}]', [[1, 20], [3, 4]]),
        ('[{"K":1,"M":2,"N":3}]', None),  # another name
        ('[{"M":1}]', None),
        ('[{"M":true,"N":2}]', None),
        ('[{"M":false,"N":2}]', None),
    ],
)
def test_shapes_are_read_without_parsing_if_they_are_sizes_by_these_names(shapes, rows):
    found = _parsed_rows(shapes, ["M", "N"])
    assert (None if found is None else found.tolist()) == rows


def rows(*pairs):
    return np.array(pairs, dtype=np.int64)


def test_a_few_new_shapes_wait_unsorted_beside_sorted_ones():
    index = ShapeIndex(("M", "N"))
    index.settle()
    assert len(index._sizes) == 0
    index.add(("M", "N"), rows(*((m, 8) for m in range(600, 0, -1))))
    index.settle()  # there are no sorted ones yet
    assert (index._sizes[:, 0].tolist(), index._waiting) == (list(range(1, 601)), [])
    index.add(("N", "M"), rows(*((16, m) for m in range(1, 513))))
    index.settle()
    assert (len(index._sizes), len(index)) == (600, 1112)
    index.add(("M", "N"), rows((9, 16)))
    index.settle()
    assert (len(index._sizes), index._waiting) == (1113, [])
    assert index._sizes[:, 0].tolist() == sorted(index._sizes[:, 0].tolist())
    assert index._logs == pytest.approx(np.log(index._sizes.T), rel=1e-6)


@pytest.mark.parametrize(("axis", "names"), [(0, ("M", "N")), (1, ("N", "M"))])
def test_shapes_are_sorted_along_the_dimension_with_the_most_values(axis, names):
    index = ShapeIndex(names)
    index.add(("M", "N"), rows(*((m, m % 3 + 1) for m in range(30, 0, -1))))
    index.settle()
    assert index._axis == axis
    assert index._sizes[:, axis].tolist() == list(range(1, 31))


def test_the_dimension_is_chosen_again_once_most_shapes_are_new():
    index = ShapeIndex(("M", "N"))
    index.add(("M", "N"), rows(*((m, 8) for m in range(1, 601))))
    index.settle()
    index.add(("M", "N"), rows(*((8, n) for n in range(1, 601))))
    index.settle()
    assert index._axis == 0  # just as many
    index.add(("M", "N"), rows(*((8, n) for n in range(601, 2001))))
    index.settle()
    assert index._axis == 1
    assert index._sizes[:, 1].tolist() == sorted(index._sizes[:, 1].tolist())


def test_so_many_neighbours_are_given_and_none_beyond_the_bound():
    index = ShapeIndex(("M",))
    index.add(("M",), rows(*((m,) for m in range(1, 65))))
    assert [dims["M"] for _, dims in index.near({"M": 32}, math.inf, 3)] == [33, 31, 34]
    assert len(index.near({"M": 32}, math.inf)) == 8
    bound = math.log(34 / 32)
    assert [dims["M"] for _, dims in index.near({"M": 32}, bound)] == [33, 31, 34]
    assert [dims["M"] for _, dims in index.near({"M": 32}, bound - 1e-9)] == [33, 31]
