"""Where a launch's data comes from, and the rates that follow: of a part and costs with round figures."""

import dataclasses
from dataclasses import replace

import pytest

from tilewise.db.records import L2State
from tilewise.tuner.devices.ascend_model.clock.core import ProgramTime
from tilewise.tuner.devices.ascend_model.clock.shared_memory import Reuse, SharedMemory
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, View
from tilewise.tuner.hardware.ascend_costs import HBM_CORE_GB_S, costs
from tilewise.tuner.hardware.ascend_parts import part

MIB = 2**20
PART = dataclasses.replace(
    part("Ascend910B4"),
    clock_ghz=2.0,
    l2_mib=1,
    l2_gb_s=2000,
    read_gb_s=1000,
    write_gb_s=800,
    mixed_gb_s=600,
    hbm_gb_s=1600,
)
FIGURES = {
    "l2_share": 0.9,
    "l2_latency_ns": 100,
    "hbm_latency_ns": 200,
    "l2_read_bytes": 60,
    "l2_write_bytes": 40,
    "eviction": 0.5,
    "read_share": 0.95,
    "mixed_share": 0.75,
}
COSTS = dataclasses.replace(costs(), figures={**costs().figures, **FIGURES})
PAIRED = (68.9 + 73.3 + 68.8) / 3
"""GB/s that global memory gives each of two cores on one path."""

CACHED, NEAR, FAR = 2000 * 0.9 / 10 / 2, 200, 400
"""Bytes per cycle that each of ten cores draws from the cache, and cycles until the first byte of cache and memory."""


def program(*, reads=None, writes=None):
    return ProgramTime(1.0, {}, reads or {}, writes or {}, {})


def settled(buffers, timed, *, programs=1, l2=L2State.WARM, active=1, again=None, on=PART):
    memory = SharedMemory(on, COSTS, buffers, l2)
    reuse = None
    if again is not None:
        reuse = Reuse(0, 1)
        reuse.again = again
    memory.settle([timed], programs, active, reuse)
    return memory


def outside(rate, competing=10):
    """Return the bytes per cycle that each core draws from global memory which gives `rate` GB/s."""
    return rate / competing / 2


def rates(rate):
    return rate.core, rate.share, rate.latency


def from_both(share, alone, memory):
    """Return the core's own rate, the shared one and the latency of reads of which `share` come from memory."""
    core = 1 / (share / min(alone, 60) + (1 - share) / 60)
    return pytest.approx((core, 1 / (share / memory + (1 - share) / CACHED), share * FAR + (1 - share) * NEAR))


# What fits the cache --------------------------------------------------------------------------------------------


def test_what_fits_the_cache_is_read_and_written_there():
    found = settled({3: MIB}, program(reads={3: MIB}, writes={3: MIB})).rates(10, 10)
    assert rates(found.inward[3]) == pytest.approx((60, CACHED, NEAR))
    assert rates(found.outward[3]) == pytest.approx((40, CACHED, NEAR))


def test_until_a_launch_is_known_all_is_in_the_cache():
    found = SharedMemory(PART, COSTS, {3: 8 * MIB}, L2State.COLD).rates(10, 10)
    assert rates(found.inward[3]) == pytest.approx((60, CACHED, NEAR))
    assert rates(found.outward[3]) == pytest.approx((40, CACHED, NEAR))


def test_less_than_one_core_does_not_compete():
    memory = settled({3: MIB}, program(reads={3: MIB}))
    assert memory.rates(0.2, 1) == memory.rates(1.0, 1) != memory.rates(1.5, 1)


@pytest.mark.parametrize(("times", "share"), [(1, 1), (4, 1 / 4), (1 / 2, 1), (0, 0)])
def test_an_empty_cache_is_filled_by_the_first_read_of_each_byte(times, share):
    """Each of ten cores draws 70 GB/s from memory: as one of a pair."""
    size = MIB // 2
    timed = program(reads={3: int(size * times / 8)})
    found = settled({3: size}, timed, programs=8, l2=L2State.COLD).rates(10, 10)
    alone = PAIRED / 2
    assert rates(found.inward[3]) == from_both(share, alone, outside(1000 * 0.95))
    assert rates(found.outward[3]) == pytest.approx((40, CACHED, NEAR))


def test_a_byte_that_comes_into_a_dirty_cache_writes_back_another():
    """Half a byte per byte read makes a third of the traffic writes: the mixed rate, and 0.75 of it."""
    found = settled({3: MIB // 2}, program(reads={3: MIB // 2}), l2=L2State.DIRTY).rates(10, 10)
    mixed = outside(600 * 0.75)
    assert found.inward[3].share == pytest.approx(mixed / 1.5)
    assert found.outward[3].share == pytest.approx(1 / (0.5 / mixed + 1 / CACHED))


def test_bytes_that_come_into_the_cache_take_the_time_of_global_memory_and_of_what_they_write_back():
    """A clean cache takes 950 bytes per ns. With a dirty one half as much again moves, at 450."""
    timed = program(reads={3: MIB // 2})
    clean, dirty = (settled({3: MIB // 2}, timed, l2=l2) for l2 in (L2State.COLD, L2State.DIRTY))
    assert clean.fetching_us(950_000) == pytest.approx(1.0)
    assert dirty.fetching_us(450_000) == pytest.approx(1.5)


def test_no_more_lines_are_written_back_than_the_cache_holds():
    """Four times its size is read, so a quarter of the lines that leave are dirty: an eighth of a byte each."""
    found = settled({3: 4 * MIB}, program(reads={3: 4 * MIB}), l2=L2State.DIRTY).rates(10, 10)
    written = (1 / 8) / (9 / 8)
    rate = (1000 + (600 - 1000) * 3 * written) * (0.95 + (0.75 - 0.95) * 3 * written)
    assert found.inward[3].share == pytest.approx(outside(rate) / (9 / 8))


def test_lines_that_are_stored_to_are_evicted_too():
    """A byte is read and one stored to the cache; half a byte is written back for each."""
    timed = program(reads={3: MIB // 4}, writes={4: MIB // 4})
    found = settled({3: MIB // 4, 4: MIB // 4}, timed, l2=L2State.DIRTY).rates(10, 10)
    written = (0.5 * 2) / (0.5 * 2 + 1)
    assert written == 1 / 2
    memory = outside(600 * 0.75)
    assert found.inward[3].share == pytest.approx(memory / 1.5)
    assert found.outward[4].share == pytest.approx(1 / (0.5 / memory + 1 / CACHED))


def test_a_launch_that_moves_nothing_has_rates_too():
    found = settled({3: MIB}, program(), l2=L2State.DIRTY).rates(10, 10)
    assert found.inward[3].share == pytest.approx(CACHED)


# What does not fit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        (0, 1000 * 0.95),
        (1, 600 * 0.75),
        (9, (800 + (600 - 800) * 0.3) * (0.95 + (0.75 - 0.95) * 0.3)),  # nine of ten bytes
    ],
)
def test_what_does_not_fit_is_streamed_at_the_rate_of_the_mixture(written, rate):
    timed = program(reads={3: 4 * MIB}, writes={4: 4 * MIB * written})
    found = settled({3: 4 * MIB, 4: 36 * MIB}, timed).rates(10, 10)
    assert found.inward[3].share == pytest.approx(outside(rate))
    assert found.outward[4].share == pytest.approx(outside(rate))
    assert (found.inward[3].latency, found.outward[4].latency) == pytest.approx((FAR, NEAR))


@pytest.mark.parametrize(("size", "is_small"), [(MIB // 4, True), (MIB // 4 + 1, False)])
def test_a_small_buffer_that_all_programs_read_stays_beside_streamed_ones(size, is_small):
    programs = 20
    timed = program(reads={3: size})
    found = settled({3: size, 4: MIB}, timed, programs=programs).rates(10, 10).inward[3]
    share = 1 / programs if is_small else 1
    assert 1 / found.share == pytest.approx(share / outside(950) + (1 - share) / CACHED)


@pytest.mark.parametrize(("between", "stays"), [(MIB // 8, True), (MIB // 8 + 1, False)])
def test_what_is_read_again_while_it_is_still_in_the_cache_comes_from_there(between, stays):
    """Eight programs at a time draw on the cache; each reads 4 of 6 parts of its bytes again."""
    again = [(3, MIB // 4, between), (3, MIB // 4, between), (3, 1, MIB)]
    timed = program(reads={3: 3 * MIB // 4})
    found = settled({3: 2 * MIB}, timed, programs=16, active=8, again=again).rates(10, 10).inward[3]
    share = 1 / 3 if stays else 1
    assert 1 / found.share == pytest.approx(share / outside(950) + (1 - share) / CACHED, rel=1e-9)


def test_a_buffer_that_is_not_read_again_is_streamed_beside_one_that_is():
    again = [(3, MIB, 0)]
    timed = program(reads={3: 2 * MIB, 4: MIB})
    found = settled({3: 2 * MIB, 4: 2 * MIB, 5: 2 * MIB}, timed, again=again).rates(10, 10).inward
    assert found[4].share == pytest.approx(outside(950))
    assert 1 / found[3].share == pytest.approx(0.5 / outside(950) + 0.5 / CACHED)
    assert found[5].share == pytest.approx(CACHED)  # never read


@pytest.mark.parametrize(
    ("sizes", "read", "repeats"),
    [
        ({3: MIB}, 10 * MIB, False),  # it fits
        ({3: 2 * MIB}, 2 * MIB, False),  # read once
        ({3: 10 * MIB}, 11 * MIB, False),  # a tenth of it twice
        ({3: 10 * MIB}, 11 * MIB + 8, True),
        ({3: MIB // 4, 4: MIB}, 10 * MIB, False),  # small: it stays anyway
        ({3: MIB // 4 + 1, 4: MIB}, 10 * MIB, True),
        ({4: MIB, 5: MIB}, 10 * MIB, False),  # another buffer's reads
    ],
)
def test_it_matters_how_soon_data_is_read_again_only_if_it_is_and_does_not_stay(sizes, read, repeats):
    memory = SharedMemory(PART, COSTS, sizes, L2State.WARM)
    assert memory.repeats([program(reads={3: int(read / 8)})], 8) is repeats


@pytest.mark.parametrize(("missed", "share"), [({3: 1 / 2}, 1 / 2), ({3: 1 / 8}, 1 / 4), ({4: 1 / 2}, 1 / 4)])
def test_the_order_of_tiles_says_which_reads_miss_the_cache_beside_the_first_of_each_byte(missed, share):
    memory = SharedMemory(PART, COSTS, {3: 2 * MIB}, L2State.WARM)
    memory.settle([program(reads={3: 8 * MIB})], 1, 1, None, missed)
    found = memory.rates(10, 10)
    assert 1 / found.inward[3].share == pytest.approx(share / outside(950) + (1 - share) / CACHED)
    assert found.outward[3].share == pytest.approx(outside(950))


@pytest.mark.parametrize(
    ("size", "written", "share"),
    [(MIB, 4 * MIB, 0), (2 * MIB, 8 * MIB, 1 / 4), (2 * MIB, MIB, 1), (2 * MIB, 0, 0)],
)
def test_workspace_is_read_from_the_cache_and_leaves_it_once_if_it_does_not_fit(size, written, share):
    memory = SharedMemory(PART, COSTS, {3: size}, L2State.COLD, workspace={3})
    memory.settle([program(reads={3: size}, writes={3: written})], 1, 1, None)
    found = memory.rates(10, 10)
    assert rates(found.inward[3]) == pytest.approx((60, CACHED, NEAR))
    assert 1 / found.outward[3].share == pytest.approx(share / outside(800 * 0.95) + (1 - share) / CACHED)


def test_a_core_counts_the_bytes_moved_since_it_last_read_a_place():
    core = Reuse(0, 2)
    one, other = View(0, 0, (4,), (1,), 32), View(1, 0, (8,), (1,), 32)
    elsewhere = View(0, 4, (4,), (1,), 32)
    for view, inward in [(one, True), (other, True), (one, True), (other, False), (elsewhere, True), (other, True)]:
        core.touched(view, inward)
    assert core.again == [(0, 16, 32), (1, 32, 16)]


# Global memory for one core -------------------------------------------------------------------------------------


def one_core(competing, active=100, *, on=PART, cube=False):
    """Return the GB/s of a core that reads from global memory only."""
    memory = settled({3: MIB}, program(reads={3: MIB}), l2=L2State.COLD, on=on)
    return memory.rates(competing, active, cube=cube).inward[3].core * on.clock_ghz


def test_two_vector_cores_share_a_path_from_global_memory():
    assert one_core(1, 1) == pytest.approx(100.9)
    assert one_core(20, 20) == pytest.approx(PAIRED)
    assert one_core(5, 20) == pytest.approx(1 / (3 / 4 / 100.9 + 1 / 4 / PAIRED))


def test_two_vector_cores_share_a_path_from_the_cache():
    """Alone, a core has all of the path for itself."""
    memory = settled({3: MIB}, program(reads={3: MIB}))
    found = [memory.rates(competing, active).inward[3].core for competing, active in [(1, 1), (5, 20), (20, 20)]]
    assert found == pytest.approx([120, 96, 60])


@pytest.mark.parametrize(
    ("competing", "gb_s"),
    [
        (2, (6 * 100.9 + 68.9) / 7),
        *list(HBM_CORE_GB_S.items())[1:],
        (4.5, (100.9 + 68.9) / 2),
        (46, (41.6 + 3 * 33.7) / 4),
        (96, 33.7 / 2),
    ],
)
def test_a_cube_core_draws_what_two_vector_cores_were_measured_to_beside_so_many_others(competing, gb_s):
    assert one_core(competing / 2, cube=True) == pytest.approx(2 * gb_s)


@pytest.mark.parametrize("competing", [1, 7, 30])
def test_a_cube_core_of_a_part_with_half_the_rate_draws_as_beside_twice_as_many(competing):
    half = dataclasses.replace(PART, hbm_gb_s=800)
    assert one_core(competing, on=half, cube=True) == pytest.approx(one_core(2 * competing, cube=True))


def test_a_cube_core_of_a_faster_part_draws_no_more_than_two_vector_cores_alone():
    assert one_core(1 / 2, on=dataclasses.replace(PART, hbm_gb_s=3200), cube=True) == pytest.approx(2 * 100.9)


@pytest.mark.parametrize(("competing", "beside", "path"), [(0.5, 1 / 40, 30), (5, 1 / 4, 30), (20, 1, 15), (60, 1, 5)])
def test_a_cube_core_and_its_two_vector_cores_share_a_path(competing, beside, path):
    """The pipes of ten cube cores, with 20 vector cores beside them, transfer to three cores each at most."""
    figures = {**COSTS.figures, "cube_read_bytes": 30, "fix_bytes": 50}
    memory = SharedMemory(PART, dataclasses.replace(COSTS, figures=figures), {3: MIB}, L2State.WARM, core="cube")
    both = memory.rates_of_both(competing, 10)
    cached = 2000 * 0.9 / max(1, competing) / 2
    shared = pytest.approx(min(cached, path))
    assert (both.inward[3].core, both.outward[3].core) == pytest.approx((30, 50))
    assert (both.vector.inward[3].core, both.vector.outward[3].core) == pytest.approx((60 * 2 / (1 + beside), 40))
    for side in (both, both.vector):
        assert (side.inward[3].share, side.outward[3].share) == (shared, shared)
        assert (side.inward[3].latency, side.clock_ghz) == (NEAR, 2.0)


def test_a_place_that_is_read_again_knows_what_was_moved_since():
    core = Reuse(0, 5)
    one, other = View(3, 0, (256,), (1,), 32), View(3, 256, (64,), (1,), 32)
    core.touched(one, True)
    core.touched(other, True)
    core.touched(replace(other, offset=UNKNOWN), True)  # somewhere else each time
    core.touched(replace(other, offset=UNKNOWN), True)
    core.touched(one, True)
    core.touched(one, False)
    core.touched(one, True)
    core.touched(replace(one, sizes=(128,)), True)
    assert core.again == [(3, 1024, 3 * 256), (3, 1024, 0)]
