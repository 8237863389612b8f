"""The Ascend prior's loops and transfers, in cycles worked out from the table of costs."""

import dataclasses

import pytest

from tilewise.kernels.spec import Axis, Problem, Target, Tiling
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.prior import ascend
from tilewise.tuner.prior.penalties import penalties

COSTS = costs()
TARGET = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)


@pytest.mark.parametrize(
    ("rows", "columns", "cycles"),
    [
        (1, 32, COSTS["row_bytes"] / 64.0),
        (2, 32, COSTS["transfer_row"] + 2 * COSTS["row_bytes"] / 64.0),
        (2, 1024, COSTS["transfer_row"] + 2 * COSTS["row_bytes"] / 64.0),
        (4, 4096, 0.0),  # whole rows are one run
    ],
)
def test_a_transfer_takes_a_step_per_further_row_and_some_bytes_beside_each(rows, columns, cycles):
    axis = Axis("N", 4096, 4096, columns)
    took = ascend._transfer(rows * columns, axis, item_bytes=4, align_bytes=32, core_rate=64.0)
    assert took == pytest.approx(COSTS["mte2_start"] + cycles)


@pytest.fixture
def penalties_of(bowl):
    """A function that returns the penalties of a kernel with these axes."""

    def make(*axes, **more):
        tiling = Tiling(axes, streamed_bytes=1024, resident_bytes=0, **more)
        spec = dataclasses.replace(bowl.SPEC, tiling=lambda config, problem: tiling)
        return penalties(spec, Problem("bowl", {"M": axes[-1].size}, "float32"), bowl.DEFAULT, TARGET)

    return make


@pytest.mark.parametrize("moved_back", [False, True])
def test_a_kernel_with_one_axis_has_edges_only_where_a_trip_crosses_one(penalties_of, moved_back):
    assert penalties_of(Axis("M", 40 * 1024, 1024, 256), moved_back=moved_back)["edges"] == 1.0
    assert (penalties_of(Axis("M", 900, 1024, 256), moved_back=moved_back)["edges"] > 1.0) == (not moved_back)


@pytest.mark.parametrize("size", [900, 40 * 1024, 41 * 1024, 100_000])
@pytest.mark.parametrize("moved_back", [False, True])
def test_an_outer_axis_of_one_changes_nothing(penalties_of, size, moved_back):
    axis, outer = Axis("M", size, 1024, 256), Axis("R", 1, 1, 1)
    alone, inside = (penalties_of(*axes, moved_back=moved_back, reductions=1) for axes in ([axis], [outer, axis]))
    assert inside.pop("row_tails", 1.0) == 1.0
    assert {name: alone[name] for name in inside} == pytest.approx(inside)
