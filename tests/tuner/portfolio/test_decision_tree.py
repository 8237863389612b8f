"""The tree that picks a choice by dimensions: where it splits, and what it is read from."""

from __future__ import annotations

import pytest

from tilewise.tuner.portfolio.decision_tree import Leaf, Split, grow, rule_from_json

NEAR, FAR = (0.0, 1.0), (1.0, 0.0)
"""Costs of two choices, in log time."""


def shapes(*sizes):
    return [{"M": size} for size in sizes]


def test_two_shapes_on_either_side_are_split_at_their_geometric_mean():
    rule = grow(shapes(10, 20, 90, 400), [NEAR, NEAR, FAR, FAR])
    assert rule == Split(("M",), 42, Leaf(0), Leaf(1))  # the root of 1800
    assert [rule.pick({"M": size}) for size in (1, 42, 43, 10**9)] == [0, 0, 1, 1]


def test_neighbours_are_split_at_the_smaller_one():
    assert grow(shapes(10, 10, 11, 11), [NEAR, NEAR, FAR, FAR]) == Split(("M",), 10, Leaf(0), Leaf(1))


@pytest.mark.parametrize(
    ("sizes", "costs"),
    [
        ((10, 20, 90), [NEAR, NEAR, FAR]),  # one alone would be overfitted
        ((10, 10, 10, 10), [NEAR, NEAR, FAR, FAR]),  # nothing tells them apart
        ((10, 20, 90, 400), [NEAR] * 4),
        ((10, 20, 90, 400), [(0.0, 0.01)] * 2 + [(0.0099, 0.0)] * 2),  # 1.98% of one shape's time
    ],
)
def test_where_no_split_saves_enough_there_is_one_choice(sizes, costs):
    assert grow(shapes(*sizes), costs) == Leaf(0)


def test_a_split_saves_more_than_two_percent_of_one_shapes_time():
    assert isinstance(grow(shapes(10, 20, 90, 400), [(0.0, 0.02)] * 2 + [(0.0101, 0.0)] * 2), Split)


def test_a_product_of_all_dimensions_decides_where_no_single_one_does():
    sizes = [(1, 64), (64, 1), (8, 8), (16, 64), (64, 16), (32, 32)]
    dims = [{"M": m, "N": n} for m, n in sizes]
    rule = grow(dims, [NEAR if m * n == 64 else FAR for m, n in sizes])
    assert rule == Split(("M", "N"), 256, Leaf(0), Leaf(1))


def test_a_tree_is_at_most_five_splits_deep():
    """Each pair of shapes needs a choice of its own."""
    sizes = [2**n for n in range(128)]
    costs = [[float(choice != n // 2) for choice in range(64)] for n in range(128)]

    def depth(rule):
        return 0 if isinstance(rule, Leaf) else 1 + max(depth(rule.below), depth(rule.above))

    assert depth(grow(shapes(*sizes), costs)) == 5
    assert grow(shapes(*sizes), costs, 0) == Leaf(0)


RULE = Split(("M", "N"), 64, Leaf(0), Split(("M",), -3, Leaf(2), Leaf(1)))


def test_a_rule_is_read_as_it_was_written():
    assert RULE.to_json() == {
        "product_of": ["M", "N"],
        "at_most": 64,
        "below": {"choice": 0},
        "above": {"product_of": ["M"], "at_most": -3, "below": {"choice": 2}, "above": {"choice": 1}},
    }
    assert rule_from_json(RULE.to_json(), 3, ("M", "N")) == RULE


def nested(levels):
    body = {"choice": 0}
    for _ in range(levels):
        body = {"product_of": ["M"], "at_most": 1, "below": {"choice": 0}, "above": body}
    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "a rule must be an object with a choice or two sides, at most a few levels deep"),
        (nested(11), "a rule must be an object with a choice or two sides, at most a few levels deep"),
        ({"choice": 3}, "a rule's choice is 3; expected 0 to 2"),
        ({"choice": -1}, "a rule's choice is -1; expected 0 to 2"),
        ({"choice": True}, "a rule's choice is True; expected 0 to 2"),
        ({"product_of": [], "at_most": 1}, r"a rule compares \[\]; expected some of M, N"),
        ({"product_of": ["K"], "at_most": 1}, r"a rule compares \['K'\]; expected some of M, N"),
        ({"product_of": "M", "at_most": 1}, "a rule compares 'M'; expected some of M, N"),
        ({"product_of": ["M"], "at_most": 1.5}, "a rule's limit is 1.5; expected a whole number"),
        ({"product_of": ["M"], "at_most": 1, "below": {"choice": 0}}, "a rule compares None"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(body, message):
    with pytest.raises(ValueError, match=message):
        rule_from_json(body, 3, ("M", "N"))


def test_ten_levels_are_read():
    assert rule_from_json(nested(10), 1, ("M",)).pick({"M": 2}) == 0
