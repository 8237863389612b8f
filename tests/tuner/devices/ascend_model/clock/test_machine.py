"""A whole launch: waves of programs over cores that share memory, warm or cold."""

import dataclasses

import pytest

from tilewise.db.records import L2State
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime, Machine
from tilewise.tuner.hardware.ascend_costs import FIGURES, HBM_CORE_GB_S, REPEAT_CYCLES, costs
from tilewise.tuner.hardware.ascend_parts import part

B4 = part("Ascend910B4")
LAUNCH = costs()["launch_us"]
MIB = 2**20

COPY = (
    '%times = "arith.index_cast"(%n) : (i32) -> index',
    '"scf.for"(%c0, %times, %c1) ({',
    "^bb0(%i: index):",
    "load",
    '"scf.yield"() : () -> ()',
    "}) : (index, index, index) -> ()",
)
"""A program that loads a tile of 16384 bytes n times and does nothing with it."""


@pytest.fixture
def streaming(program):
    """Time a launch whose programs only load; `megabytes` is the size of the buffer."""

    def time(programs, *, megabytes=8, cores=40, trips=400, on=B4, end="value"):
        machine = Machine(on, cores, program(*COPY), [megabytes * MIB], costs(end))
        return machine.time([trips], (programs,))

    return time


@pytest.fixture
def launched(function, row_reduce):
    """Time row_reduce for a problem and a config."""

    def time(problem, config, *, cores=40, on=B4, end="value"):
        (launch,) = row_reduce.plan(config, problem)
        sizes, scalars = toolchain.arguments(row_reduce, problem, config, launch)
        code, _ = function(row_reduce, problem, config)
        return Machine(on, cores, code, list(sizes.values()), costs(end)).time(scalars, launch.grid)

    return time


def running(timed):
    """Return the microseconds without the launch."""
    return timed.time_us - LAUNCH


def costing(**figures):
    """Return the cost table with some figures replaced."""
    table = costs()
    return dataclasses.replace(table, figures={**table.figures, **figures})


# Waves ----------------------------------------------------------------------------------------------------------


def test_fifty_programs_on_forty_cores_take_twice_as_long_as_forty(launched, problem, rows):
    one, two = launched(problem(800, 8192), rows(20, 20, 256)), launched(problem(1000, 8192), rows(20, 20, 256))
    assert (one.waves, two.waves) == (1, 2)
    assert running(two) == pytest.approx(2 * running(one), rel=0.05)


def test_half_the_cores_idle_takes_twice_as_long(launched, problem, rows):
    full, half = launched(problem(1000, 8192), rows(25, 25, 256)), launched(problem(1000, 8192), rows(50, 25, 256))
    assert (full.waves, half.waves) == (1, 1)
    assert running(half) == pytest.approx(2 * running(full), rel=0.1)


@pytest.mark.parametrize(("programs", "waves"), [(1, 1), (39, 1), (40, 1), (41, 2), (80, 2), (81, 3), (4000, 100)])
def test_waves_are_programs_over_cores_rounded_up(programs, waves, streaming):
    assert streaming(programs, trips=4).waves == waves


def test_equal_full_waves_take_equally_long(streaming):
    one, two, ten = (running(streaming(40 * waves)) for waves in (1, 2, 10))
    assert ten - two == pytest.approx(8 * (two - one), rel=0.01)


def test_more_cores_take_more_programs_at_once(streaming):
    assert streaming(48, cores=48).waves == 1
    assert streaming(48, cores=40).waves == 2


def test_every_program_pays_for_being_started(streaming):
    idle = streaming(400, trips=0)
    assert running(idle) >= 10 * costs()["program_start"] / (B4.clock_ghz * 1e3)


def test_programs_are_handed_out_one_by_one(program):
    """Short ones wait for that, however many cores there are; long ones hide it, except in the first wave."""
    slow = costing(dispatch_us=1.0)
    short = Machine(B4, 40, program(*COPY), [MIB], slow).time([1], (120,))
    assert 119 < running(short) < 123
    long = [Machine(B4, 40, program(*COPY), [MIB], slow).time([2000], (programs,)) for programs in (40, 80)]
    assert running(long[1]) - running(long[0]) == pytest.approx(running(long[0]) - 39, rel=0.1)


def test_a_grid_of_three_axes_is_their_product(program):
    machine = Machine(B4, 40, program(*COPY), [MIB], costs())
    assert machine.time([10], (2, 3, 20)) == machine.time([10], (120,))


def test_the_launch_itself_takes_its_time(streaming):
    assert streaming(1, trips=0).time_us == pytest.approx(LAUNCH, abs=1)


def test_a_tail_program_in_a_wave_of_its_own_adds_no_more_than_a_wave(launched, problem, rows):
    whole = launched(problem(1000, 8192), rows(25, 25, 256))
    more = launched(problem(1001, 8192), rows(25, 25, 256))
    assert (whole.waves, more.waves) == (1, 2)
    assert running(whole) * 1.2 < running(more) < running(whole) * 3


def test_the_longest_program_of_a_wave_ends_it(launched, problem, rows):
    """The last of 40 programs has 15 rows of 25, which the compiler pads in every iteration."""
    full, tail = launched(problem(1000, 8192), rows(25, 25, 256)), launched(problem(990, 8192), rows(25, 25, 256))
    alone = launched(problem(15, 8192), rows(25, 25, 256))
    assert running(tail) >= running(full)
    assert running(tail) == pytest.approx(max(running(full), running(alone)), rel=0.1)


# Bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1000, 8192), (990, 8191), (4321, 500), (7, 8192)])
@pytest.mark.parametrize("tile", [(25, 25, 256), (25, 4, 512), (20, 20, 64)])
def test_bytes_are_those_that_the_kernel_must_move(size, tile, launched, problem, rows):
    """x once, w once per sub-tile, the sums once."""
    timed = launched(problem(*size), rows(*tile))
    (m, n), (block, sub, _) = size, tile
    programs, sub_tiles = -(-m // block), -(-block // sub)
    assert timed.bytes_in == m * n * 4 + programs * sub_tiles * n * 4
    assert timed.bytes_out == m * 4


# Memory ---------------------------------------------------------------------------------------------------------


def rate_gb_s(timed):
    return timed.bytes_in / running(timed) / 1e3


def test_one_core_alone_is_faster_than_one_of_forty(streaming):
    alone, together = streaming(1), streaming(40)
    assert together.bytes_in == 40 * alone.bytes_in
    assert running(alone) < running(together) < 40 * running(alone)


def test_warm_data_streams_at_the_published_rates(streaming):
    """About 85 GB/s per core up to 2.0 to 2.6 TB/s in all."""
    assert rate_gb_s(streaming(1)) == pytest.approx(FIGURES["l2_read_bytes"].value * B4.clock_ghz, rel=0.05)
    assert rate_gb_s(streaming(40)) == pytest.approx(B4.l2_gb_s * FIGURES["l2_share"].value, rel=0.04)


def test_cold_data_streams_at_the_published_rate(streaming):
    """0.78 to 0.80 TB/s on the part with 32 GB."""
    assert 740 < rate_gb_s(streaming(40, megabytes=512)) < 800


def test_reading_and_writing_at_once_share_the_published_rate(program):
    both = program(*COPY[:3], "load", "store", *COPY[4:])
    timed = Machine(B4, 40, both, [1024 * MIB], costs("value")).time([1500], (40,))
    moved = timed.bytes_in + timed.bytes_out
    assert timed.bytes_in == timed.bytes_out
    assert moved / running(timed) / 1e6 == pytest.approx(0.615, rel=0.03)  # TB/s: bytes per microsecond are MB/s


@pytest.mark.parametrize("cores", [1, 8, 20, 40])
def test_a_working_set_larger_than_the_cache_is_never_faster(cores, streaming):
    warm, cold = (streaming(cores, megabytes=B4.l2_mib + more, trips=150) for more in (0, 1))
    assert running(warm) <= running(cold) * 1.25  # a lone core is limited by its own port in both cases
    if cores == 40:
        assert running(cold) > 2 * running(warm)


def test_after_the_cache_was_emptied_what_is_read_once_comes_from_global_memory(program):
    """8 MB is read once, or forty times."""

    def time(trips, l2):
        machine = Machine(B4, 40, program(*COPY), [8 * MIB], costs(), l2=l2)
        return running(machine.time([trips], (40,)))

    once, again = 8 * MIB // (40 * 16384), 40 * 8 * MIB // (40 * 16384)
    assert time(once, L2State.COLD) > 1.7 * time(once, L2State.WARM)
    assert time(again, L2State.WARM) < time(again, L2State.COLD) < 1.15 * time(again, L2State.WARM)


def test_dirty_lines_have_to_be_written_back_before_others_come_in(program):
    cold, dirty = (
        running(Machine(B4, 40, program(*COPY), [8 * MIB], costs(), l2=l2).time([8 * MIB // (40 * 16384)], (40,)))
        for l2 in (L2State.COLD, L2State.DIRTY)
    )
    assert 1.5 * cold < dirty < 3 * cold


def test_emptying_the_cache_costs_what_does_not_fit_it_its_code_only(program):
    warm, cold = (
        Machine(B4, 40, program(*COPY), [1024 * MIB], costs(), l2=l2).time([400], (40,)).time_us
        for l2 in (L2State.WARM, L2State.COLD)
    )
    assert cold - warm == pytest.approx(costs()["cold_us"])


def test_small_buffers_stay_warm_beside_a_large_one(program):
    """The program loads from the first buffer; the second only fills the cache."""
    two = program(*COPY)
    two = dataclasses.replace(two, arguments=(*two.arguments, (two.values, two.arguments[3][1])), values=two.values + 1)
    order = [*two.arguments[:4], two.arguments[-1], *two.arguments[4:-1]]
    two = dataclasses.replace(two, arguments=tuple(order))
    quarter, large = B4.l2_mib * MIB // 4, 10 * B4.l2_mib * MIB

    def time(first, second):
        return running(Machine(B4, 40, two, [first, second], costs()).time([400], (40,)))

    assert time(quarter, MIB) < time(quarter, large) < 1.5 * time(quarter, MIB)
    assert time(large, MIB) > 2 * time(quarter, MIB)


def test_what_a_program_reads_again_soon_stays_in_the_cache(program):
    """It reads the same tile four hundred times, or four thousand, of a buffer larger than the cache."""
    machine = Machine(B4, 40, program(*COPY), [B4.l2_mib * MIB + 1], costs())
    few, many = (machine.time([trips], (40,)) for trips in (50, 4000))
    assert rate_gb_s(few) < B4.read_gb_s
    assert rate_gb_s(many) > 0.9 * B4.l2_gb_s


def test_parts_differ_by_clock_and_memory(streaming):
    b3 = part("Ascend910B3")
    assert rate_gb_s(streaming(40, megabytes=512, on=b3)) > 1.5 * rate_gb_s(streaming(40, megabytes=512))


def test_cores_that_compute_leave_memory_to_the_others(program):
    """Programs that compute most of the time load about as fast on 40 cores as on one."""
    exp = ("set MTE2 V 0", "wait MTE2 V 0", *["exp"] * 40, "set V MTE2 0", "wait V MTE2 0")
    busy = program(*COPY[:4], *exp, *COPY[4:])
    machine = Machine(B4, 40, busy, [512 * MIB], costs())
    one, forty = machine.time([50], (1,)), machine.time([50], (40,))
    assert forty.pipes_us["MTE2"] < 1.3 * one.pipes_us["MTE2"]


def test_what_bounds_a_kernel_is_its_busiest_pipe(streaming, launched, problem, rows):
    assert streaming(40).bound_by == "MTE2"
    assert launched(problem(1000, 8192), rows(25, 25, 256)).bound_by == "V"


ATOMIC = '"hivm.hir.store"(%a, %x) <{atomic_kind = #hivm.atomic_kind<add>}> : (UB, GM) -> ()'


def test_atomics_on_one_address_pass_one_by_one(program):
    """Forty programs add to a buffer of one tile, so each element takes forty additions."""
    slow = costing(atomic_us=5.0)
    plain = Machine(B4, 40, program("store"), [16384], slow).time([1], (40,))
    serial = Machine(B4, 40, program(ATOMIC), [16384], slow).time([1], (40,))
    assert 40 * 5.0 < running(serial) < 40 * 5.0 + running(plain)
    assert running(plain) < 5.0


def test_atomics_on_different_addresses_do_not_wait_for_each_other(program):
    """Forty programs add to a buffer of forty tiles, so each element takes one addition on average."""
    slow = costing(atomic_us=5.0)
    plain = Machine(B4, 40, program("store"), [40 * 16384], slow).time([1], (40,))
    apart = Machine(B4, 40, program(ATOMIC), [40 * 16384], slow).time([1], (40,))
    assert running(apart) < running(plain) + 5.0


def test_overhead_and_the_longest_program_add_up_to_the_time(launched, problem, rows, streaming):
    one = launched(problem(1000, 8192), rows(25, 25, 256))
    assert one.overhead_us["launch"] == pytest.approx(LAUNCH)
    assert one.overhead_us["start"] == pytest.approx(costs()["program_start"] / (B4.clock_ghz * 1e3))
    assert one.overhead_us["dispatch"] == pytest.approx(39 * costs()["dispatch_us"])
    assert one.overhead_us["atomics"] == 0
    many = streaming(400, trips=0)
    assert many.overhead_us["start"] == pytest.approx(10 * one.overhead_us["start"])
    assert many.time_us == pytest.approx(sum(many.overhead_us.values()))  # programs that do nothing


def test_the_recorded_program_is_the_longest_of_the_waves_that_count(function, row_reduce, problem, rows):
    size, config = problem(990, 8192), rows(25, 25, 256)
    (launch,) = row_reduce.plan(config, size)
    sizes, scalars = toolchain.arguments(row_reduce, size, config, launch)
    code, _ = function(row_reduce, size, config)
    machine = Machine(B4, 40, code, list(sizes.values()), costs())
    timed, recording = machine.record(scalars, launch.grid)
    assert timed == machine.time(scalars, launch.grid)
    in_programs = timed.time_us - sum(timed.overhead_us.values())
    assert recording.time.cycles / (B4.clock_ghz * 1e3) == pytest.approx(in_programs)


def test_launches_in_turn_add_up(streaming):
    short, long = streaming(40, trips=10), streaming(80, trips=10)
    both = KernelTime.in_turn([short, long])
    assert both.time_us == pytest.approx(short.time_us + long.time_us)
    assert both.bytes_in == short.bytes_in + long.bytes_in
    assert both.waves == 2


# Bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "tile"), [((1000, 8192), (50, 25, 256)), ((990, 8191), (25, 4, 512)), ((4321, 500), (20, 20, 64))]
)
def test_the_interval_holds_the_value(size, tile, launched, problem, rows):
    low, value, high = (launched(problem(*size), rows(*tile), end=end).time_us for end in ("low", "value", "high"))
    assert low < value < high


def test_every_figure_lies_in_its_range_and_says_where_it_is_from():
    for figure in [*FIGURES.values(), *REPEAT_CYCLES.values()]:
        assert figure.low <= figure.value <= figure.high
        assert figure.value > 0
        assert figure.unit and figure.source
    assert list(HBM_CORE_GB_S) == sorted(HBM_CORE_GB_S)
