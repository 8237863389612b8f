"""Bytes that a transfer costs of the memory's rate: those of its rows, and some for each row."""

import dataclasses

import pytest

from tilewise.tuner.devices.ascend_model.clock.rows import drawn
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import costs

COSTS = dataclasses.replace(costs(), figures={**costs().figures, "row_bytes": 10, "misaligned_line": 0.5})


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "bits", "rows", "size"),
    [
        ((16, 64), (64, 1), 0, 32, 1, 4096 + 10),
        ((16, 64), (128, 1), 0, 32, 16, 16 * (256 + 10)),
        ((16, 64), (128, 1), 8, 32, 16, 16 * (256 + 10)),  # begins with a block
        ((16, 64), (128, 1), 4, 32, 16, 16 * (256 + 10 + 128)),  # and within one
        ((16, 64), (128, 1), UNKNOWN, 32, 16, 16 * (256 + 10)),
        ((16, 64), (129, 1), UNKNOWN, 32, 16, 16 * (256 + 10 + 128)),
        ((16, 64), (136, 1), 0, 16, 16, 16 * (128 + 10 + 64)),  # 272 bytes apart
        ((16, 256), (300, 1), 0, 32, 16, 16 * (1024 + 10 + 256)),  # a line at most
        ((1, 64), (99, 1), 0, 32, 1, 256 + 10),
        ((64,), (1,), 1, 32, 1, 256 + 10 + 128),
        ((8, 1, 8), (16, 3, 1), 0, 32, 8, 8 * (32 + 10)),  # one element has no step
    ],
)
def test_rows_that_begin_within_a_block_cost_a_part_of_a_line_more(sizes, strides, offset, bits, rows, size):
    found = drawn(View(0, offset, sizes, strides, bits), COSTS)
    assert (found.rows, found.bytes) == (rows, pytest.approx(size))
