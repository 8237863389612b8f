"""Clocks that a loop carries are moved on when iterations are skipped."""

from dataclasses import replace

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import PIPES, Core
from tilewise.tuner.devices.ascend_model.clock.loops import _change, _until_crossing, iterations
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View


@pytest.mark.parametrize(("offset", "expected"), [(7, 7 + 1001 * 64), (UNKNOWN, UNKNOWN)])
def test_a_view_that_an_iteration_moves_by_a_tile_is_moved_on_by_all_skipped_tiles(offset, expected):
    core, ran = Core(0, 1), 0
    values = [View(0, offset, (16, 4), (8, 1), 16)]
    for _ in iterations(values, core, range(1001), [0]):
        ran += 1
        core.occupy(PIPES.index("V"), 10.0, 2.0)
        values[0] = replace(values[0], offset=UNKNOWN if offset is UNKNOWN else values[0].offset + 64)
    assert values == [View(0, expected, (16, 4), (8, 1), 16)]
    assert core.busy[PIPES.index("V")] == pytest.approx(10_010)
    assert ran < 100


@pytest.mark.parametrize(
    ("times", "rates", "expected"),
    [
        ([100.0, 0.0], [1.0, 3.0], 48),  # 100 cycles are made up by two per period, and one period of three is left out
        ([0.0, 100.0], [3.0, 1.0], 48),
        ([3.0, 0.0], [1.0, 3.0], 0),
        ([2.0, 0.0], [1.0, 3.0], 0),  # it has come near already
        ([100.0, 0.0, 60.0], [1.0, 3.0, 1.0], 28),  # the nearest one ahead counts
        ([100.0, 0.0, 50.0], [1.0, 2.0, 3.0], 23),
    ],
)
def test_no_clock_is_moved_past_a_slower_one(times, rates, expected):
    assert _until_crossing(times, rates) == expected


@pytest.mark.parametrize(
    ("times", "rates"),
    [([100.0, 0.0], [3.0, 3.0]), ([100.0, 0.0], [3.0, 1.0]), ([5.0, 5.0], [3.0, 1.0]), ([5.0, 5.0], [1.0, 3.0])],
)
def test_clocks_that_draw_apart_or_keep_their_distance_may_go_on(times, rates):
    assert _until_crossing(times, rates) > 10**12


@pytest.mark.parametrize("trips", range(12))
def test_a_loop_too_short_to_have_a_middle_runs_all_its_iterations(trips):
    core = Core(0, 1)
    ran = []
    for at in iterations([], core, range(3, 3 + trips), []):
        ran.append(at)
        core.occupy(PIPES.index("V"), 10.0, 2.0)
    assert core.busy[PIPES.index("V")] == pytest.approx(10.0 * trips)
    assert ran[:5] == [*range(3, 3 + trips)][:5]
    assert len(ran) == trips or ran[-1] == 2 + trips


def test_the_last_iterations_are_run():
    """At most two periods of two are left after the skipped ones and the one that shows that they were alike."""
    core, ran = Core(0, 1), []
    for at in iterations([], core, range(1000), []):
        ran.append(at)
        core.occupy(PIPES.index("V"), 10.0, 2.0)
    assert ran[:5] == [0, 1, 2, 3, 4]
    assert len([at for at in ran if at >= 994]) >= 2 and ran[-1] == 999
    assert len(ran) < 16


@pytest.mark.parametrize(("old", "new"), [(1, "a"), (UNKNOWN, 1), (1, UNKNOWN), (None, None)])
def test_what_has_no_difference_is_not_skipped(old, new):
    """Values alternate between two that no number of periods leads from one to the other, so all iterations run."""
    core, values, ran = Core(0, 1), [old], 0
    for at in iterations(values, core, range(100), [0]):
        ran += 1
        core.occupy(PIPES.index("V"), 10.0, 2.0)
        values[0] = new if at % 3 == 0 else old
    assert ran == 100


@pytest.mark.parametrize(("old", "new"), [(View(3, 0, (4,), (1,), 32), 5), (5, View(3, 0, (4,), (1,), 32))])
def test_a_view_has_no_difference_from_a_number(old, new):
    assert _change(old, new) is None


@pytest.mark.parametrize(
    ("changes", "change"), [({"offset": 7}, 7), ({"base": 4}, None), ({"sizes": (2,)}, None), ({"strides": (2,)}, None)]
)
def test_views_of_one_form_differ_by_their_offsets(changes, change):
    view = View(3, 0, (4,), (1,), 32)
    assert _change(view, replace(view, **changes)) == change
