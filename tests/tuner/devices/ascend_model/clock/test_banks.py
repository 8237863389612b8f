"""Bank conflicts by address, as the vendor's example measured them."""

import pytest

from tilewise.tuner.devices.ascend_model.clock.banks import least_cycles
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import costs

COSTS = costs()
START = COSTS["vector_dispatch"] + COSTS["vector_start"]


def at(address, *, elements=4096):
    return View(-1, address // 4, (elements,), (1,), 32)


@pytest.mark.parametrize(
    ("first", "second", "target", "measured"),
    [
        (0x0, 0x10100, 0x20000, 2390),
        (0x0, 0x4000, 0x10000, 4167),
        (0x0, 0x10000, 0x14100, 4167),
        (0x0, 0x10100, 0x4000, 2389),
        (0x0, 0x10100, 0x4020, 3751),
        (0x0, 0x10100, 0x10100, 2390),
    ],
)
def test_an_addition_takes_what_the_vendor_measured_at_these_addresses(first, second, target, measured):
    """1000 additions of 64 repeats each, in ticks of a timer; only ratios are meant."""

    def cycles(*addresses):
        *sources, written = map(at, addresses)
        return 64 * least_cycles(sources, written, COSTS) + START

    ratio = cycles(first, second, target) / cycles(0x0, 0x10100, 0x20000)
    assert ratio == pytest.approx(measured / 2390, rel=0.02)


def test_a_single_operand_meets_no_other():
    assert least_cycles([at(0)], at(0x10000), COSTS) == 1


def test_an_operand_named_twice_is_read_once():
    assert least_cycles([at(0), at(0)], at(0x10100), COSTS) == 1
    unknown = View(-1, UNKNOWN, (4096,), (1,), 32)
    assert least_cycles([unknown, unknown], None, COSTS) == COSTS["bank_conflict"]


@pytest.mark.parametrize("other", [at(0x100, elements=64), View(-1, UNKNOWN, (4096,), (1,), 32)])
def test_operands_that_may_meet_are_taken_to(other):
    """A broadcast one stays while the other moves on; the address of another is not known."""
    assert least_cycles([at(0), other], None, COSTS) == COSTS["bank_conflict"]
