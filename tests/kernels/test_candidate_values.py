"""Candidate values are sorted, within bounds, dense enough, and include the blocks that fill the cores."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels.candidate_values import nice_numbers, powers_of_two, row_blocks, row_sub_blocks
from tilewise.kernels.spec import Target, ceil_div

sizes = st.integers(1, 2**31 - 1)
cores = st.integers(1, 200)


def ascend(cores: int) -> Target:
    return Target("ascend", "a part", cores, 196608, 32, 65535)


NVIDIA = Target("nvidia", "a GPU", 132, 233472, 16, 2**31 - 1)


@given(st.integers(0, 10), sizes)
def test_powers_of_two_reach_the_size_and_no_further(exponent, high):
    low = 2**exponent
    values = powers_of_two(low, high)
    assert values[0] == low
    assert values[-1] >= high or values == [low]
    assert all(b == 2 * a and a < high for a, b in itertools.pairwise(values))


@given(sizes)
def test_nice_numbers_have_neighbours_within_a_third(high):
    values = nice_numbers(high)
    assert values[0] == 1
    assert values == sorted(set(values))
    assert values[-1] <= high < 1.34 * values[-1] + 1
    assert all(b <= 1.34 * a for a, b in itertools.pairwise(values) if a >= 3)


def test_nice_numbers_begin_as_documented():
    assert nice_numbers(24) == [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24]


@given(sizes, cores)
def test_row_blocks_are_sorted_and_at_most_four_even_shares(size, count):
    blocks = row_blocks(size, ascend(count))
    assert blocks == sorted(set(blocks))
    assert blocks[0] == 1
    assert blocks[-1] <= min(size, 4 * ceil_div(size, count))


@given(sizes, cores, st.integers(1, 8))
def test_row_blocks_hold_the_largest_block_for_each_whole_number_of_waves(size, count, waves):
    block = ceil_div(size, count * waves)
    assert block in row_blocks(size, ascend(count))
    assert ceil_div(size, block) <= count * waves


@given(sizes, cores)
def test_row_sub_blocks_fit_on_chip_and_hold_every_block_that_does(size, count):
    target = ascend(count)
    subs = row_sub_blocks(size, target)
    assert subs == sorted(set(subs))
    assert all(1 <= sub <= size and sub * 64 * 4 <= target.on_chip_bytes for sub in subs)
    assert {block for block in row_blocks(size, target) if block * 64 * 4 <= target.on_chip_bytes} <= set(subs)


@settings(max_examples=50)
@given(sizes)
def test_a_gpu_gets_powers_of_two(size):
    for blocks in (row_blocks(size, NVIDIA), row_sub_blocks(size, NVIDIA)):
        assert all(block & (block - 1) == 0 for block in blocks)
        assert blocks[0] == 1
        assert min(size, 128) <= blocks[-1] <= 128
