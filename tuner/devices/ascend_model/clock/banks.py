"""Conflicts of a vector instruction's operands in the banks of the unified buffer.

The buffer has 16 groups of 3 banks of 4 KiB. Bits 5 to 8 of an address are the group, bits 16 and 17 the bank in it. A
repeat takes 8 neighbouring groups. Two reads from one group take turns, and so do a read from and a write to one bank,
unless both begin in the same group: then the write waits for the next repeat anyway. (The vendor's `bank_conflict_ub`
example: 86, 150 and 135 cycles for 64 repeats and a start of 22.) An operand that an instruction names twice, as a test
for NaN does, is read once: published minima of compiled kernels leave no time for a second read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View, ceil
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["least_cycles"]

_BLOCK, _GROUPS, _BANK_SHIFT, _REPEAT_BLOCKS = 32, 16, 16, 8


def least_cycles(sources: Sequence[View], target: View | None, costs: Costs) -> float:
    """Return the least cycles a repeat that the operands' banks allow; 1 if they do not meet."""
    if any(_meet(one, other) for one, other in combinations(sources, 2)):
        return costs["bank_conflict"]
    if target is not None and any(_crosses(source, target) for source in sources):
        return costs["bank_crossing"]
    return 1.0


def _meet(one: View, other: View) -> bool:
    """Return whether two operands are read from the same groups. A broadcast one, which stays while the other moves on,
    meets it in some repeats; one operand named twice does not meet itself."""
    if one.offset is UNKNOWN or other.offset is UNKNOWN or one.elements() != other.elements():
        return True
    if one == other:
        return False
    apart = (_block(other) - _block(one)) % _GROUPS
    return apart < _width(one) or _GROUPS - apart < _width(other)


def _crosses(source: View, target: View) -> bool:
    """Return whether reads and writes meet in a bank although they begin in different groups."""
    if source.offset is UNKNOWN or target.offset is UNKNOWN:
        return False
    first, second = _block(source), _block(target)
    if (first * _BLOCK) >> _BANK_SHIFT != (second * _BLOCK) >> _BANK_SHIFT:
        return False
    return (second - first) % _GROUPS != 0 and _meet(source, target)


def _block(view: View) -> int:
    return int(view.offset) * view.item_bits // 8 // _BLOCK


def _width(view: View) -> int:
    """Return the groups that one repeat takes."""
    return min(_REPEAT_BLOCKS, max(1, ceil(view.rows()[1], _BLOCK)))
