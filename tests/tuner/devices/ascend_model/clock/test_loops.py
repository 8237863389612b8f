"""What a loop carries is moved on with its clocks when iterations are skipped."""

from dataclasses import replace

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import PIPES, Core
from tilewise.tuner.devices.ascend_model.clock.loops import iterations
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
