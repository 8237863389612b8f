"""Sides of tiles, what a program's registers and shared memory hold, and the table of tiles of groups."""

from __future__ import annotations

import pytest

from tilewise.kernels.matrix.tile_table import table_buffers, tile_table
from tilewise.kernels.matrix.tiles import (
    buffered,
    default_group,
    group_holds,
    operands_hold,
    scale_of_each,
    sums_hold,
    up_to,
)
from tilewise.kernels.spec import Dot, Problem, Target, Tiling

B4 = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
H200 = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)


@pytest.mark.parametrize(
    ("size", "found"),
    [(1, [16]), (16, [16]), (17, [16, 32]), (100, [16, 32, 64, 128]), (10**6, [16, 32, 64, 128, 256])],
)
def test_sides_lead_to_the_first_that_holds_the_size(size, found):
    assert up_to(size, 16, 256) == found


def test_tiles_of_64_rows_or_more_keep_all_their_stages():
    assert [buffered(rows, 3) for rows in (16, 63, 64, 128)] == [2, 2, 3, 3]


@pytest.mark.parametrize(
    ("rows", "cols", "warps", "held"),
    [
        (8, 8, 1, True),
        (7, 9, 1, False),
        (64, 64, 1, True),
        (17, 241, 1, False),
        (128, 128, 4, True),
        (128, 256, 4, False),
    ],
)
def test_a_thread_holds_2_to_128_sums(rows, cols, warps, held):
    assert sums_hold(rows, cols, warps) is held


@pytest.mark.parametrize(
    ("target", "streamed", "stages", "shared", "held"),
    [
        (H200, 58112, 4, 0, True),  # all but 1 KiB
        (H200, 58112, 4, 1, False),
        (H200, 58113, 4, 0, False),
        (H200, 50000, 4, 32448, True),
        (B4, 98304, 9, 10**6, True),  # a pair of each operand
        (B4, 98305, 1, 0, False),
    ],
)
def test_operands_in_flight_fit_on_chip(target, streamed, stages, shared, held):
    tiling = Tiling((), streamed, 0, dot=Dot(16, 16, 16, stages=stages, shared_bytes=shared))
    assert operands_hold(tiling, target) is held


@pytest.mark.parametrize(
    ("m", "held", "default"), [(128, True, 8), (112, True, 4), (49, True, 4), (48, False, 1), (1, False, 1)]
)
def test_rows_of_tiles_are_worked_on_together_as_far_as_there_are_some(m, held, default):
    problem = Problem("gemm", {"M": m, "N": 64, "K": 64}, "float16")
    assert group_holds({"GROUP_M": 4, "BLOCK_M": 16}, problem, H200) is held
    assert default_group(m, 16) == default


def test_elements_of_a_block_share_its_scale():
    torch = pytest.importorskip("torch")
    scales = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert scale_of_each(scales, (3, 5), 2).tolist() == [[1, 1, 2, 2, 3], [1, 1, 2, 2, 3], [4, 4, 5, 5, 6]]


@pytest.mark.parametrize(
    ("tiles", "groups", "rows", "programs", "sizes"),
    [
        (100, 5, 32, 1, (8, 128, 5)),
        (129, 64, 16, 2, (64, 128, 4)),
        (129, 65, 128, 3, (128, 64, 7)),
        (17, 1024, 1, 3, (1024, 8, 0)),
        (17, 4096, 16, 3, (4096, 8, 4)),  # a program compares 8 tiles however many groups there are
    ],
)
def test_a_table_of_tiles_is_made_by_as_few_programs_as_can_compare_them(tiles, groups, rows, programs, sizes):
    launch = tile_table(tiles, groups, rows)
    constants = dict(zip(("BLOCK_G", "STEP", "SHIFT"), sizes, strict=True))
    assert launch.grid == (programs,)
    assert launch.constants == {"GROUPS": groups, "TILES": tiles, "BLOCK_M": rows, **constants}
    buffers = table_buffers(tiles)
    assert {name: buffer.shape for name, buffer in buffers.items()} == {
        "groups_ptr": (tiles,),
        "rows_ptr": (tiles,),
        "count_ptr": (1,),
    }
    assert {(buffer.dtype, buffer.role) for buffer in buffers.values()} == {("int32", "out")}
