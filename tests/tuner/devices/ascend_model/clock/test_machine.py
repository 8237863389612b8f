"""A whole launch: waves of programs over cores that share memory, warm or cold."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace

import pytest

from tilewise.db.records import L2State
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.machine import _GOLDEN, KernelTime, Machine, _root
from tilewise.tuner.hardware.ascend_costs import FIGURES, HBM_CORE_GB_S, REPEAT_CYCLES, costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES

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


@pytest.mark.in_part(6)
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
    """About 90 GB/s for each core of two on one path, twice that alone, up to 2.0 to 2.6 TB/s in all."""
    assert rate_gb_s(streaming(1)) == pytest.approx(2 * FIGURES["l2_read_bytes"].value * B4.clock_ghz, rel=0.05)
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
    for figure in [*FIGURES.values(), *CUBE_FIGURES.values(), *REPEAT_CYCLES.values()]:
        assert figure.low <= figure.value <= figure.high
        assert figure.value > 0
        assert figure.unit and figure.source
    assert list(HBM_CORE_GB_S) == sorted(HBM_CORE_GB_S)


# Sums by hand ---------------------------------------------------------------------------------------------------

US = 1e-3 / B4.clock_ghz
"""Microseconds of a cycle."""

FEW = """%few = "memref.reinterpret_cast"(SOURCE) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>,
  static_offsets = array<i64: 0>, static_sizes = array<i64: SIZE>, static_strides = array<i64: 1>}>
  : (FROM) -> memref<SIZExf32, strided<[1]>, #hivm.address_space<SPACE>>"""


def moving(size, verb, attributes=""):
    """Return the lines of a program that loads or stores so many float32."""
    outside = FEW.replace("SOURCE", "%arg").replace("FROM", "memref<?xf32, #hivm.address_space<gm>>")
    inside = FEW.replace("SOURCE", "%a").replace("FROM", "UB").replace("%few", "%near")
    far, near = (f"memref<{size}xf32, strided<[1]>, #hivm.address_space<{space}>>" for space in ("gm", "ub"))
    operands, kinds = ("%few, %near", f"{far}, {near}") if verb == "load" else ("%near, %few", f"{near}, {far}")
    made = (outside.replace("SPACE", "gm"), inside.replace("SPACE", "ub"))
    return *(
        line.replace("SIZE", str(size)) for line in made
    ), f'"hivm.hir.{verb}"({operands}){attributes} : ({kinds}) -> ()'


def working(times, *before):
    """Return the lines of a program that computes as many times as an i64 says, and three times more: longer than the
    one float that it loads takes to arrive."""
    return (
        '%me = "hivm.hir.get_block_idx"() : () -> i64',
        *before,
        *moving(1, "load"),
        '%three = "arith.constant"() <{value = 3 : i64}> : () -> i64',
        f'%more = "arith.addi"({times}, %three) : (i64, i64) -> i64',
        '%times = "arith.index_cast"(%more) : (i64) -> index',
        '"scf.for"(%c0, %times, %c1) ({',
        "^bb0(%i: index):",
        "exp",
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
    )


@pytest.fixture
def growing(program, run):
    """A program that takes longer the higher its number is, and the microseconds that one takes."""
    code = program(*working("%me"))

    def time(number):
        return run(code, program=number).cycles * US

    return code, time


@pytest.mark.parametrize(("full", "stride"), [(2, 1), (16, 1), (32, 2), (80, 5)])
@pytest.mark.parametrize("rest", [0, 3])
def test_at_most_sixteen_waves_spread_evenly_stand_for_waves_that_differ(full, stride, rest, growing):
    """Each takes as long as its first program, the last one as long as its last."""
    code, time = growing
    cores = 4
    programs = full * cores + rest
    timed = Machine(B4, cores, code, [MIB], costs()).time([1], (programs,))
    starts = [wave * stride * cores for wave in range(full // stride)]
    expected = (sum(map(time, starts[:-1])) + time(full * cores - 1)) * stride
    if rest:
        expected += time(programs - 1)
    assert timed.time_us - sum(timed.overhead_us.values()) == pytest.approx(expected)
    assert timed.pipes_us["V"] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("full", "rest", "longest"), [(1, 0, 3), (2, 0, 7), (1, 2, 5), (2, 1, 7), (4, 0, 15)])
def test_the_recording_is_of_the_longest_program_of_the_longest_wave(full, rest, longest, program, run):
    """Programs take longer up to the eighth, and then again from the start."""
    seven = '%seven = "arith.constant"() <{value = 7 : i64}> : () -> i64'
    code = program(*working("%part", seven, '%part = "arith.andi"(%me, %seven) : (i64, i64) -> i64'))
    _, recording = Machine(B4, 4, code, [MIB], costs()).record([1], (full * 4 + rest,))
    assert recording.time.cycles == pytest.approx(run(code, program=longest).cycles)


@pytest.mark.parametrize(
    ("programs", "trips", "waves", "handed"),
    [
        (1, 10, 1, 0),
        (30, 10, 1, 29),  # one after the other, within the first wave
        (100, 0, 3, None),  # short programs: the hundredth waits for the ninety-nine before it
        (100, 500, 3, 19),  # long ones hide all but those of the last wave
    ],
)
def test_starts_and_handing_out_add_up(programs, trips, waves, handed, program, run):
    figures = costing(dispatch_us=1.0, program_start=3300.0, launch_us=7.0)
    code = program(*working("%many", '%many = "arith.extsi"(%n) : (i32) -> i64'))
    timed = Machine(B4, 40, code, [MIB], figures).time([trips], (programs,))
    one = run(code, arguments=(trips, 1, 1, 1)).cycles * US
    assert timed.waves == waves
    assert timed.overhead_us["start"] == pytest.approx(waves * 2.0)
    if handed is None:
        handed = (programs - 1) * 1.0 + one + 2.0 - waves * (one + 2.0)
    assert timed.overhead_us["dispatch"] == pytest.approx(handed)
    assert timed.overhead_us["launch"] == 7.0
    assert timed.time_us == pytest.approx(7.0 + waves * (2.0 + one) + handed)


@pytest.mark.parametrize(("l2", "cold"), [(L2State.WARM, 0.0), (L2State.COLD, 5.0), (L2State.DIRTY, 5.0)])
@pytest.mark.parametrize(("cores", "launch"), [(20, 7.0), (40, 7.0), (41, 11.0), (48, 11.0)])
def test_a_launch_takes_longer_on_a_large_part_and_with_an_empty_cache(l2, cold, cores, launch, program):
    figures = costing(launch_us=7.0, launch_48_us=11.0, cold_us=5.0)
    machine = Machine(dataclasses.replace(B4, cores=cores), 4, program("load"), [MIB], figures, l2=l2)
    assert machine.time([1], (4,)).overhead_us["launch"] == launch + cold


@pytest.mark.parametrize("programs", [1, 2, 40, 80])
def test_atomics_wait_for_those_before_them_from_the_end_of_the_first_programs_on(programs, program):
    """The wait for the queue, less the time in which programs run anyway."""
    figures = costing(atomic_us=5.0, program_start=3300.0, dispatch_us=0.0)
    timed = Machine(B4, 40, program(ATOMIC), [16384], figures).time([1], (programs,))
    one = (timed.time_us - sum(timed.overhead_us.values())) / timed.waves
    waited = programs * 5.0 - (timed.waves - 1) * (one + 2.0)
    assert timed.overhead_us["atomics"] == pytest.approx(waited)


@pytest.mark.parametrize(
    ("size", "programs", "waits"),
    [
        (32, 40, 3),  # four stores of 128 bytes share a line
        (32, 3, 2),
        (32, 1, 0),
        (1, 40, 39),
        (1, 80, 78),
        (128, 40, 0),
        (4096, 40, 0),
        (90, 40, 0),  # one of 360 bytes and a part of the next
    ],
)
def test_stores_of_less_than_a_line_wait_for_those_to_the_same_line(size, programs, waits, program):
    timed = Machine(B4, 40, program(*moving(size, "store")), [MIB], costing(shared_line_us=2.0)).time([1], (programs,))
    assert timed.overhead_us["lines"] == pytest.approx(waits * 2.0)


def test_atomics_wait_by_address_not_by_line(program):
    lines = moving(32, "store", " <{atomic_kind = #hivm.atomic_kind<add>}>")
    timed = Machine(B4, 40, program(*lines), [MIB], costing(shared_line_us=2.0)).time([1], (40,))
    assert timed.overhead_us["lines"] == 0


def test_a_buffer_that_is_only_read_or_only_written_counts_as_such(streaming, program):
    read = streaming(80, trips=2)
    assert (read.reads, read.writes) == ((80 * 2 * 16384,), (0,))
    stored = Machine(B4, 40, program("store"), [MIB], costs()).time([1], (50,))
    assert (stored.reads, stored.writes) == ((0,), (50 * 16384,))


@pytest.mark.parametrize(("grid", "axis", "size"), [((3,), "%gx", 3), ((3,), "%gz", 1), ((3, 2), "%gy", 2)])
def test_programs_are_told_the_grid(grid, axis, size, program, run):
    code = program(*working("%many", f'%many = "arith.extsi"({axis}) : (i32) -> i64'))
    timed = Machine(B4, 40, code, [MIB], costs()).time([9], grid)
    expected = run(code, arguments=(9, size, size, size)).cycles * US
    assert timed.time_us - sum(timed.overhead_us.values()) == pytest.approx(expected)


@pytest.mark.parametrize("active", [1, 10, 40])
@pytest.mark.parametrize("computing", [0, 30])
def test_as_many_cores_compete_as_transfer_at_a_time(active, computing, program):
    """Cores that wait to be started or that compute leave memory to the others."""
    figures = costing(program_start=5000.0, dispatch_us=0.2)
    in_turn = ("set MTE2 V 0", "wait MTE2 V 0", *["exp"] * computing, "set V MTE2 0", "wait V MTE2 0")
    code = program(*COPY[:4], *in_turn, *COPY[4:])
    machine = Machine(B4, 40, code, [8 * MIB], figures)
    (wave,) = machine._waves(active, [50, active, 1, 1])
    timed, waiting = wave.longest, 5000.0 + active * 0.2 * B4.clock_ghz * 1e3
    competing = active * timed.busy["MTE2"] / (timed.cycles + waiting)
    drawn = B4.l2_gb_s * figures["l2_share"] / B4.clock_ghz / wave.memory.inward[3].share
    assert drawn == pytest.approx(max(1.0, competing), rel=0.005)


@pytest.mark.parametrize("slope", [0.01, 0.5, 1.0, 2.0, 9.0])
@pytest.mark.parametrize("root", [0.3, 0.7, 1.5, 1.9])
def test_the_root_of_a_falling_function_is_found_strictly_between_its_bounds(slope, root):
    asked = []

    def excess(at):
        assert 0 < at < 2
        asked.append(at)
        return slope * (root - at)

    found = _root(excess, 2.0)
    assert found == asked[-1]
    assert abs(slope * (root - found)) <= 0.002 * found or abs(root - found) <= 0.008
    assert len(asked) <= 12


@pytest.mark.parametrize(("off", "asked"), [(0.0, 1), (0.0019, 1), (-0.0019, 1), (0.0022, 2), (-0.0022, 2)])
def test_a_root_is_close_enough_within_a_fifth_of_a_percent(off, asked):
    calls = []

    def excess(at):
        calls.append(at)
        return 5.0 * (1 + off) - at

    assert _root(excess, 10.0) == pytest.approx(5.0, rel=0.0025)
    assert len(calls) == asked


@pytest.mark.parametrize(
    ("active", "compared", "longest"), [(9, [40, 43, 46], 46), (3, [40, 41, 42], 42), (1, [40], 40)]
)
def test_programs_whose_work_contents_decide_are_compared_across_their_wave(active, compared, longest):
    seen = []

    def run(arguments, program, memory):
        seen.append(program)
        return SimpleNamespace(cycles=float(program))

    machine = SimpleNamespace(_contents={0: [1]}, _rates=lambda *given: given, _clock=SimpleNamespace(run=run))
    assert Machine._longest(machine, 40, active, ()) == longest
    assert seen == compared
    machine._contents = {}
    assert Machine._longest(machine, 40, active, ()) == 40


@pytest.mark.parametrize(
    ("programs", "last", "seen"),
    [
        (20, 95.0, [40, 59]),
        (20, 94.9, [40, 59, *range(41, 60, 2)]),
        (3, 94.9, [40, 42, 40, 41, 42]),
        (2, 120.0, [40, 41]),
        (1, 50.0, [40]),
    ],
)
def test_where_the_last_program_does_less_some_that_are_spread_evenly_stand_for_all(programs, last, seen):
    """Five percent less is not yet less."""
    timed = []

    def run(arguments, program, memory):
        timed.append((program, memory))
        return SimpleNamespace(cycles=last if program == 40 + programs - 1 > 40 else 100.0, program=program)

    machine = SimpleNamespace(_contents={}, _rates=lambda *given: given, _clock=SimpleNamespace(run=run))
    machine._function = SimpleNamespace(vector=None)
    machine._compares = functools.partial(Machine._compares, machine)
    standing = [each.program for each in Machine._spread(machine, 40, programs, ())]
    assert timed == [(program, (1.0, 1)) for program in seen]  # alone on the memory
    assert standing == (seen[2:] or [40])


def test_sampled_waves_are_spread_over_the_period_of_any_cycle():
    """Of 16 the nearest two are at least a third as far apart as the farthest neighbours: the three-gap theorem."""
    places = sorted(wave * _GOLDEN % 1 for wave in range(16))
    gaps = [after - before for before, after in itertools.pairwise([*places, 1.0])]
    assert max(gaps) < 3 * min(gaps)


TURNS = (
    '%id = "hivm.hir.get_block_idx"() : () -> i64',
    '%first = "arith.index_cast"(%id) : (i64) -> index',
    '%tasks = "arith.index_cast"(%n) : (i32) -> index',
    '%cores = "arith.constant"() <{value = 40 : index}> : () -> index',
    '"scf.for"(%first, %tasks, %cores) ({',
    "^bb0(%i: index):",
    "load",
    '"scf.yield"() : () -> ()',
    "}) : (index, index, index) -> ()",
)
"""A program that takes every 40th of n tiles."""


def taking_turns(program, tasks, programs=40):
    return Machine(B4, 40, program(*TURNS), [1024 * MIB], costs()).time([tasks], (programs,))


@pytest.mark.parametrize("rest", [8, 20, 32])
def test_cores_that_are_done_leave_memory_to_the_others(rest, program):
    """Memory is the bottleneck, so the time follows the tiles of all programs, not those of the longest one alone."""
    three, uneven, four = (taking_turns(program, tasks).time_us for tasks in (120, 120 + rest, 160))
    share = (uneven - three) / (four - three)
    assert rest / 40 - 0.1 < share < rest / 40 + 0.2


@pytest.mark.parametrize(("tasks", "moved"), [(160, 160), (128, 128), (16, 16), (43, 43)])
def test_a_launch_moves_the_tiles_that_its_programs_take(tasks, moved, program):
    assert taking_turns(program, tasks).bytes_in == pytest.approx(moved * 16384, rel=0.1)
