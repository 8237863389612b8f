"""The heat map and the importance of parameters, against figures worked out by hand."""

from __future__ import annotations

import math

import pytest
from landscapes import landscape_of

from tilewise.api.pages.problem.charts import Cell, heat_map
from tilewise.api.pages.problem.importance import _share, importances
from tilewise.db.records import Status, Trial


def trial(time_us: float | None, **config) -> Trial:
    status = Status.COMPILE if time_us is None else Status.CORRECT
    return Trial(config=config, status=status, time_us=time_us, reason="" if time_us else "too large")


TRIALS = landscape_of(
    [trial(40.0, A=16, B="x"), trial(30.0, A=8, B="x"), trial(50.0, A=8, B="y"), trial(None, A=16, B="y"),
     trial(None, A=32, B="y"), trial(1.0, B="z")]
)  # fmt: skip


def test_the_heat_map_tells_slow_from_failed_from_never_tried():
    found = heat_map(TRIALS, "A", "B")
    assert found.columns == ("8", "16", "32")
    (x, on_x), (y, on_y), (z, on_z) = found.rows
    assert (x, y, z) == ("x", "y", "z")
    assert [cell.time_us for cell in on_x] == [30.0, 40.0, None]
    assert [(cell.time_us, cell.failed) for cell in on_y] == [(50.0, 0), (None, 1), (None, 1)]
    assert on_x[0].shade == 0
    assert on_x[2] == Cell()
    assert on_z == (Cell(), Cell(), Cell())  # the config has no A, as some of an imported landscape
    assert found.best == ("8", "x", 30.0)


def test_shades_go_by_rank():
    cells = heat_map(landscape_of([trial(float(10**n), A=n, B=0) for n in range(5)]), "A", "B").rows[0][1]
    assert [cell.shade for cell in cells] == [0, 2, 4, 6, 8]


def test_an_unknown_parameter_has_no_heat_map():
    with pytest.raises(KeyError):
        heat_map(TRIALS, "A", "C")


def product(ratio_a: float, ratio_b: float):
    """Return all pairs of four values: A and B double the time so often, C changes nothing."""
    return landscape_of(
        [
            trial(10 * ratio_a**a * ratio_b**b, A=a, B=f"b{b}", C=c)
            for a in range(4) for b in range(4) for c in (False, True)
        ]
    )  # fmt: skip


def test_shares_are_those_of_the_variance_of_the_logarithms():
    found = {each.name: each for each in importances(product(2.0, 4.0), 0)}
    assert list(found) == ["B", "A", "C"]  # log 4 is twice log 2, its square four times
    assert found["B"].share == pytest.approx(0.8, abs=0.03)
    assert found["A"].share == pytest.approx(0.2, abs=0.09)
    assert found["C"].share == 0.0


def test_the_effect_of_a_parameter_alone_is_that_of_trials_that_differ_in_it_only():
    found = {each.name: each for each in importances(product(2.0, 4.0), 0)}
    assert {name: (each.alone, each.groups) for name, each in found.items()} == {
        "A": (pytest.approx(8.0), 8),
        "B": (pytest.approx(64.0), 8),
        "C": (1.0, 16),
    }


def test_options_are_the_winner_with_one_value_changed():
    (a,) = [each for each in importances(TRIALS, 1) if each.name == "A"]
    assert a.value == "8"
    assert [(each.value, each.ratio, each.status) for each in a.options] == [("16", 40 / 30, "correct")]
    (b,) = [each for each in importances(TRIALS, 1) if each.name == "B"]
    assert [(each.value, each.ratio) for each in b.options] == [("y", 50 / 30)]
    assert all(each.options == [] and each.value is None for each in importances(TRIALS, None))


def test_a_failed_option_has_its_status_and_no_ratio():
    landscape = landscape_of([trial(5.0, A=1), trial(None, A=2)])
    (found,) = importances(landscape, 0)
    assert [(each.value, each.ratio, each.status) for each in found.options] == [("2", None, "compile")]
    assert (found.share, found.alone) == (0.0, None)


def test_random_times_give_no_parameter_a_share():
    times = [10 + math.sin(n * n) for n in range(200)]
    found = importances(landscape_of([trial(each, A=n % 50, B=n // 50) for n, each in enumerate(times)]), None)
    assert all(each.share < 0.1 for each in found)


def test_a_share_is_epsilon_squared():
    """Logarithms 0 and 1 under one value, 2, 3 and 4 under the other. The squares about the mean of 2 add up to 10, of
    which the groups' means account for 7.5: 7.5 less one times 2.5 / 3, of 10."""
    times = [trial(math.exp(log), A=log > 1, B=log) for log in range(5)]
    by_name = {each.name: each for each in importances(landscape_of(times), None)}
    assert by_name["A"].share == pytest.approx(2 / 3)
    assert by_name["B"].share == 0.0  # as many values as trials


def test_a_share_needs_one_trial_more_than_values():
    """Logarithms 0 and 1, and 5: 13.5 of 14 are between the groups, and 0.5 is left for one degree of freedom."""
    found = importances(landscape_of([trial(math.exp(log), A=log > 1) for log in (0, 1, 5)]), None)
    assert found[0].share == pytest.approx(13 / 14)
    assert importances(landscape_of([trial(math.exp(log), A=log > 1) for log in (0, 5)]), None)[0].share == 0.0


def test_the_effect_alone_is_the_median_over_groups_of_two_or_more():
    """A changes the time by 2, by 3 and by 10 where B is 0, 1 and 2; where B is 3, nothing else ran."""
    rows = [trial(5.0 * factor, A=a, B=b) for b, most in enumerate((2, 3, 10)) for a, factor in enumerate((1, most))]
    rows += [trial(99.0, A=0, B=3), trial(None, A=1, B=3)]
    found = {each.name: each for each in importances(landscape_of(rows), 0)}
    assert (found["A"].alone, found["A"].groups) == (pytest.approx(3.0), 3)
    assert (found["B"].alone, found["B"].groups) == (pytest.approx((99 / 5 * 5) ** 0.5), 2)


def test_options_come_in_the_order_of_values_an_absent_one_first():
    rows = [trial(4.0, A=2, B=1), trial(8.0, A=3, B=1), trial(6.0, A=1, B=1), trial(2.0, B=1), trial(1.0, A=1, B=2)]
    found = {each.name: each for each in importances(landscape_of(rows), 0)}
    shown = [(each.value, each.trial, each.ratio) for each in found["A"].options]
    assert shown == [("-", 3, 0.5), ("1", 2, 1.5), ("3", 1, 2.0)]
    assert (found["A"].value, [*found["B"].options]) == ("2", [])
    assert {each.name: each.value for each in importances(landscape_of(rows), 3)} == {"A": "-", "B": "1"}


def test_the_heat_map_counts_all_failures_and_keeps_the_best_time():
    rows = [trial(None, A=1, B=1), trial(None, A=1, B=1), trial(5.0, A=1, B=1, C=1), trial(4.0, A=1, B=1, C=2)]
    ((_, (cell,)),) = heat_map(landscape_of(rows), "A", "B").rows
    assert (cell.time_us, cell.failed) == (4.0, 2)
    assert heat_map(landscape_of(rows[:2]), "A", "B").best is None


def test_the_rival_is_the_fastest_trial_with_another_value():
    rows = [
        trial(4.0, A=1, B=1),
        trial(7.0, A=2, B=1),
        trial(6.0, A=2, B=2),
        trial(5.0, A=1, B=3),
        trial(None, A=3, B=1),
    ]
    found = {each.name: each.rival for each in importances(landscape_of(rows), 0)}
    assert (found["A"].value, found["A"].trial, found["A"].ratio) == ("2", 2, 1.5)
    assert (found["B"].value, found["B"].trial, found["B"].ratio) == ("3", 3, 1.25)
    assert all(each.rival is None for each in importances(landscape_of(rows), None))


@pytest.mark.parametrize(
    ("codes", "logs", "share"),
    [
        ([], [], 0),
        ([0], [1.0], 0),
        ([0, 1], [1.0, 2.0], 0),
        ([0, 0, 1], [1.0, 1.0, 2.0], 1),
        ([0, 0, 1, 1], [1.0, 1.0, 1.0, 1.0], 0),
        ([0, 0, 1, 1], [1.0, 2.0, 1.0, 2.0], 0),
        ([0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0], 0.7),
        ([0, 0, 1, 2], [1.0, 2.0, 3.0, 7.0], 77 / 83),
        ([0, 0], [1.0, 3.0], 0),
        ([0, 0, 1], [1e-7, 1e-7, 0.0], 0),
        ([0, 0, 1], [1e-5, 1e-5, 0.0], 1),
    ],
)
def test_the_share_of_a_parameter_is_the_variance_that_it_explains(codes, logs, share):
    assert _share(codes, logs) == pytest.approx(share)
