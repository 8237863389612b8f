"""One program on one core: pipes, flags, barriers, loops. Times of hand-written programs follow from the cost table.

A tile is 4096 float32: 16384 bytes, 64 vector repeats. Hand-written programs move 32 bytes per cycle.
"""

from dataclasses import replace

import pytest

from tilewise.tuner.devices.ascend_model.clock import core, loops
from tilewise.tuner.devices.ascend_model.clock.program_clock import (
    Memory,
    ProgramClock,
    Rate,
    UnknownOperation,
    _either_view,
)
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, DependsOnContents, View
from tilewise.tuner.hardware.ascend_costs import costs

COSTS = costs()
ROW, DISPATCH = COSTS["row_bytes"], COSTS["vector_dispatch"]
LOAD = STORE = (16384 + ROW) / 32
EXP = 64 * COSTS.repeat_cycles["vexp"] + DISPATCH
ADD = 64 + DISPATCH  # of a tile and itself, which is read once
ISSUE, FLAG, BARRIER = COSTS["vector_issue"], COSTS["flag"], COSTS["barrier"]
LATENCY, START, LOOP = 260.0, COSTS["function_start"], COSTS["iteration"]


def loop(times, *lines):
    """Return the lines inside a loop over `%i` from 0."""
    return (
        f'%end{times} = "arith.constant"() <{{value = {times} : index}}> : () -> index',
        f'"scf.for"(%c0, %end{times}, %c1) ({{',
        "^bb0(%i: index):",
        *lines,
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
    )


# Order ----------------------------------------------------------------------------------------------------------


def test_a_load_takes_its_start_its_bytes_and_its_latency(run):
    timed = run("load")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY)
    assert timed.busy["MTE2"] == pytest.approx(LOAD)
    assert (timed.bytes_in, timed.bytes_out) == (16384, 0)


def test_a_vector_operation_takes_its_repeats_and_its_start(run):
    timed = run("exp")
    assert timed.cycles == pytest.approx(ISSUE + EXP + START)
    assert timed.busy["V"] == pytest.approx(EXP)


def test_the_vector_pipe_waits_for_a_transfer_that_it_has_a_flag_from(run):
    timed = run("load", "set MTE2 V 0", "wait MTE2 V 0", "exp")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY + FLAG + EXP + START)


def test_without_a_flag_pipes_work_side_by_side(run):
    timed = run("load", "exp")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY)
    assert timed.cycles > 2 * ISSUE + EXP + START


def test_a_load_computation_and_store_in_turn_add_up(run):
    timed = run("load", "set MTE2 V 0", "wait MTE2 V 0", "exp", "set V MTE3 0", "wait V MTE3 0", "store")
    expected = ISSUE + LOAD + LATENCY + FLAG + EXP + START + FLAG + STORE + LATENCY
    assert timed.cycles == pytest.approx(expected)
    assert timed.bytes_in == timed.bytes_out == 16384


def test_flags_of_one_event_are_taken_in_the_order_they_were_set(run):
    early = run("load", "set MTE2 V 0", "load", "set MTE2 V 0", "wait MTE2 V 0", "exp").cycles
    late = run("load", "set MTE2 V 0", "load", "set MTE2 V 0", "wait MTE2 V 0", "wait MTE2 V 0", "exp").cycles
    assert early == pytest.approx(ISSUE + 2 * LOAD + LATENCY)  # exp runs beside the second load
    assert late == pytest.approx(ISSUE + 2 * LOAD + LATENCY + FLAG + EXP + START)


def test_a_flag_of_another_event_is_another_flag(run):
    with pytest.raises(ValueError, match="deadlock: V waits for event 1 of MTE2, which is never set"):
        run("load", "set MTE2 V 0", "wait MTE2 V 1", "exp")


def test_a_wait_that_is_never_set_is_a_deadlock(run):
    with pytest.raises(ValueError, match="deadlock: MTE2 waits for event 0 of V, which is never set"):
        run("wait V MTE2 0", "load")


def test_a_flag_serves_one_wait(run):
    with pytest.raises(ValueError, match="deadlock"):
        run("load", "set MTE2 V 0", "wait MTE2 V 0", "wait MTE2 V 0")


def test_an_event_may_be_a_value(run):
    """The compiler writes it this way where buffers alternate."""
    pipes = "set_pipe = #hivm.pipe<PIPE_MTE2>, wait_pipe = #hivm.pipe<PIPE_V>"
    dynamic = f'"hivm.hir.set_flag"(%zero) <{{{pipes}}}> : (i64) -> ()'
    by_value = run("load", dynamic, "wait MTE2 V 0", "exp")
    assert by_value.cycles == run("load", "set MTE2 V 0", "wait MTE2 V 0", "exp").cycles


def test_the_scalar_unit_waits_for_a_flag_and_holds_up_what_it_issues(run):
    timed = run("load", "set MTE2 S 0", "wait MTE2 S 0", "exp")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY + FLAG + ISSUE + EXP + START)


def test_without_a_barrier_start_up_is_hidden(run):
    assert run("exp", "exp").cycles == pytest.approx(ISSUE + 2 * EXP + START)


def test_a_barrier_drains_its_pipe(run):
    assert run("exp", "barrier V", "exp").cycles == pytest.approx(ISSUE + 2 * (EXP + START) + BARRIER)


def test_a_barrier_of_one_pipe_leaves_the_others_alone(run):
    timed = run("load", "barrier V", "exp")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY)


def test_a_barrier_of_all_pipes_waits_for_everything(run):
    timed = run("load", "barrier ALL", "exp")
    assert timed.cycles == pytest.approx(ISSUE + LOAD + LATENCY + BARRIER + ISSUE + EXP + START)


SINGLE = ("wait V MTE2 0", "load", "set MTE2 V 0", "wait MTE2 V 0", "exp", "set V MTE2 0")
DOUBLE = (*SINGLE, *(line.replace(" 0", " 1") for line in SINGLE))


def test_double_buffering_overlaps_loading_with_computing(run):
    single = run("set V MTE2 0", *loop(20, *SINGLE), "wait V MTE2 0").cycles
    double = run("set V MTE2 0", "set V MTE2 1", *loop(10, *DOUBLE), "wait V MTE2 0", "wait V MTE2 1").cycles
    serial = LOAD + LATENCY + FLAG + EXP + START + FLAG
    assert single == pytest.approx(20 * serial, rel=0.02)
    assert double < 0.75 * single
    assert double >= 20 * max(LOAD, EXP)


def test_a_double_buffer_is_bound_by_the_longer_of_two_stages(run):
    """Memory is slow, so only loading counts. The latency is hidden, except where a tile waits for its buffer."""
    double = run("set V MTE2 0", "set V MTE2 1", *loop(50, *DOUBLE), "wait V MTE2 0", "wait V MTE2 1", rate=8.0)
    load = (16384 + ROW) / 8
    assert double.busy["MTE2"] == pytest.approx(100 * load)
    assert double.cycles == pytest.approx(100 * load, rel=0.01)


# Layouts --------------------------------------------------------------------------------------------------------


def tile(name, space, sizes, strides):
    """Return the MLIR and the type of a view of a buffer: rows and columns with strides."""
    shape, steps = "x".join(map(str, sizes)), ", ".join(map(str, strides))
    source, kind = ("%arg", "memref<?xf32, #hivm.address_space<gm>>") if space == "gm" else ("%a", "UB")
    view = f"memref<{shape}xf32, strided<[{steps}]>, #hivm.address_space<{space}>>"
    make = (
        f'%{name} = "memref.reinterpret_cast"({source}) <{{operandSegmentSizes = array<i32: 1, 0, 0, 0>, '
        f"static_offsets = array<i64: 0>, static_sizes = array<i64: {', '.join(map(str, sizes))}>, "
        f"static_strides = array<i64: {steps}>}}> : ({kind}) -> {view}"
    )
    return make, view


def move(run, outside, inside, sizes=(16, 64)):
    """Return the time of loading a tile with these strides on either side."""
    near, near_view = tile("near", "ub", sizes, inside)
    far, far_view = tile("far", "gm", sizes, outside)
    return run(near, far, f'"hivm.hir.load"(%far, %near) : ({far_view}, {near_view}) -> ()').busy["MTE2"]


def test_rows_that_lie_apart_cost_a_step_each(run):
    start, step = COSTS["mte2_start"], COSTS["transfer_row"]
    assert move(run, (64, 1), (64, 1)) == pytest.approx((4096 + ROW) / 32)
    assert move(run, (128, 1), (64, 1)) == pytest.approx(16 * (256 + ROW) / 32)
    narrow = move(run, (1024, 1), (64, 1), sizes=(16, 8))
    assert narrow == pytest.approx(start + 15 * step)  # the steps take longer than 32 bytes each


def test_a_row_off_the_blocks_of_memory_touches_one_line_more(run):
    """The vendor's copies of rows of 2048 and 512 bytes take 1.28 and 1.91 times as long where rows are not aligned."""
    even = [move(run, (4096, 1), (4096, 1), sizes=(16, width)) for width in (512, 128)]
    odd = [move(run, (4095, 1), (4096, 1), sizes=(16, width)) for width in (512, 128)]
    assert odd[0] / even[0] == pytest.approx(1.28, rel=0.05)
    assert odd[1] / even[1] == pytest.approx(1.91, rel=0.05)


@pytest.mark.parametrize(("outside", "inside"), [((64, 1), (72, 1)), ((72, 1), (64, 1)), ((72, 1), (72, 1))])
def test_a_transfer_is_cut_where_either_side_is(outside, inside, run):
    sizes = (128, 2)
    cut = move(run, outside, inside, sizes)
    assert cut >= COSTS["mte2_start"] + 127 * COSTS["transfer_row"]


def test_a_transposed_transfer_goes_element_by_element(run):
    """Each element takes as long as a transfer of its own."""
    assert move(run, (1, 9999), (64, 1)) == pytest.approx(16 * 64 * COSTS["mte2_start"])


@pytest.mark.parametrize(
    ("outside", "inside", "sizes", "crowded"),
    [
        ((3, 1), (8, 1), (128, 3), True),  # windows side by side
        ((2, 1), (8, 1), (128, 4), True),  # windows that overlap
        ((64, 1), (512, 8), (16, 64), True),  # elements side by side, each in a block of its own on chip
        ((512, 7), (512, 8), (16, 64), True),
        ((512, 8), (512, 8), (16, 64), False),  # elements a block apart
        ((8, 1), (16, 1), (128, 7), False),
    ],
)
@pytest.mark.parametrize("op", ["load", "store"])
def test_rows_under_a_block_take_a_transfer_each_or_longer_in_the_block_before(
    outside, inside, sizes, crowded, op, run
):
    near, near_view = tile("near", "ub", sizes, inside)
    far, far_view = tile("far", "gm", sizes, outside)
    first, second = (far, near) if op == "load" else (near, far)
    names, kinds = (("far", "near"), (far_view, near_view))
    if op == "store":
        names, kinds = names[::-1], kinds[::-1]
    timed = run(first, second, f'"hivm.hir.{op}"(%{names[0]}, %{names[1]}) : ({kinds[0]}, {kinds[1]}) -> ()')
    rows = sizes[0] if outside[1] == 1 and inside[1] == 1 else sizes[0] * sizes[1]
    each = COSTS["same_block_ns"] if crowded else COSTS["mte2_start"]
    assert timed.busy["MTE2" if op == "load" else "MTE3"] == pytest.approx(rows * each)


def test_rows_of_whole_blocks_and_one_short_row_are_no_narrow_rows(run):
    steps = COSTS["mte2_start"] + 15 * COSTS["transfer_row"]
    assert move(run, (1024, 1), (64, 1), sizes=(16, 8)) == pytest.approx(steps)
    assert move(run, (64, 1), (64, 1), sizes=(1, 3)) == pytest.approx(COSTS["mte2_start"])


def test_starting_and_stepping_hide_behind_a_small_share_of_the_memory(run):
    """They keep the core's own transfer unit busy while other cores use the memory."""
    own = run("load").busy["MTE2"]
    assert own == pytest.approx(LOAD)
    assert run("load", share=40.0).busy["MTE2"] == pytest.approx(own)
    assert run("load", share=8.0).busy["MTE2"] == pytest.approx((16384 + ROW) / 8)


@pytest.mark.parametrize(
    ("strides", "sizes", "repeats", "instructions"),
    [
        ((64, 1), (16, 64), 16, 1),  # contiguous: 256 bytes per repeat
        ((96, 1), (16, 64), 16, 1),  # one repeat per row
        ((96, 1), (16, 65), 18, 2),  # rows of nine blocks: one block of eight rows per repeat
        ((96, 1), (16, 8), 2, 1),  # rows of 32 bytes: eight per repeat
        ((96, 1), (16, 1), 2, 1),  # an element takes its block of 32 bytes
        ((1024, 8), (16, 64), 128, 1),
    ],
)
def test_a_vector_operation_pays_for_the_layout_of_its_operands(strides, sizes, repeats, instructions, run):
    make, view = tile("t", "ub", sizes, strides)
    exp = f'"hivm.hir.vexp"(%t, %t) <{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({view}, {view}) -> ()'
    timed = run(make, exp)
    set_up = DISPATCH + (instructions - 1) * COSTS["vector_next"]
    assert timed.busy["V"] == pytest.approx(repeats * COSTS.repeat_cycles["vexp"] + set_up)


def test_scratch_space_is_not_work(run):
    """A cast's last operand is scratch space, here twice as large as the data."""
    small, view = tile("t", "ub", (1024,), (1,))
    cast = '"hivm.hir.vcast"(%t, %t, %a) <{operandSegmentSizes = array<i32: 1, 1, 1>}> '
    timed = run(small, f"{cast} : ({view}, {view}, UB) -> ()")
    assert timed.busy["V"] == pytest.approx(16 * COSTS.repeat_cycles["vcast"] + DISPATCH)


SUBVIEW = """%part = "memref.subview"(%t) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>,
  static_offsets = array<i64: 0, 0, 0>, static_sizes = array<i64: 32, 16, 1>,
  static_strides = array<i64: 1, 1, 1>}> : (SOURCE) -> memref<32x16xf32, strided<[128, 8]>, #hivm.address_space<ub>>"""


def test_a_subview_may_drop_any_dimension_of_size_one(run):
    make, view = tile("t", "ub", (32, 16, 8), (128, 8, 1))
    kind = "memref<32x16xf32, strided<[128, 8]>, #hivm.address_space<ub>>"
    exp = f'"hivm.hir.vexp"(%part, %part) <{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({kind}, {kind}) -> ()'
    timed = run(make, SUBVIEW.replace("SOURCE", view), exp)
    assert timed.busy["V"] >= 64 * COSTS.repeat_cycles["vexp"]  # 512 elements in blocks of their own


def reduction(run, sizes, dims):
    steps = [1]
    for size in reversed(sizes[1:]):
        steps.insert(0, steps[0] * size)
    make, view = tile("t", "ub", sizes, steps)
    reduce = f'"hivm.hir.vreduce"(%t, %a) <{{arith = #hivm.reduce_op<sum>, reduce_dims = array<i64: {dims}>}}>'
    return run(make, f"{reduce} : ({view}, UB) -> ()").busy["V"]


def test_a_reduction_over_rows_or_columns_adds_every_element_about_once(run):
    """16 x 128 is 32 repeats of data, halved until 16 repeats, one per row, are left; or until one row is left."""
    add, fold = COSTS["bank_conflict"], COSTS.repeat_cycles["fold"]
    assert reduction(run, (16, 128), 1) == pytest.approx(16 * add + DISPATCH + 16 * fold + DISPATCH)
    assert reduction(run, (16, 128), 0) == pytest.approx(sum(r * add + DISPATCH for r in (16, 8, 4, 2)))


def test_a_unit_axis_after_the_reduced_one_changes_nothing(run):
    assert reduction(run, (16, 128, 1), 1) == reduction(run, (16, 128), 1)


def reduced(run, sizes, dims, arith="sum", dtype="f32"):
    """Return the time of reducing a tile of another type, and loading a tile beside it."""
    make, view = tile("t", "ub", sizes, (sizes[-1], 1) if len(sizes) == 2 else (1,))
    make, view, kind = (text.replace("xf32", f"x{dtype}") for text in (make, view, "UB"))
    make = make.replace(": (UB)", ": (UB)")
    reduce = f'"hivm.hir.vreduce"(%t, %a) <{{arith = #hivm.reduce_op<{arith}>, reduce_dims = array<i64: {dims}>}}>'
    return run(make, f"{reduce} : ({view}, {kind}) -> ()", "load")


ROUND_TRIP = FLAG + COSTS["scalar_on_chip"] + FLAG
"""The vector pipe waits for the scalar unit, which waits for it."""


def test_the_largest_number_of_a_row_passes_through_the_scalar_unit(run):
    """So the next load is issued after it; a sum leaves the scalar unit alone."""
    largest, total = (reduced(run, (64,), 0, arith) for arith in ("max", "sum"))
    fold = COSTS.repeat_cycles["fold"] + DISPATCH + COSTS["fold_start"]
    assert total.cycles == pytest.approx(2 * ISSUE + LOAD + LATENCY)
    assert largest.cycles == pytest.approx(ISSUE + fold + FLAG + COSTS["scalar_on_chip"] + ISSUE + LOAD + LATENCY)
    many = reduced(run, (16, 64), 1, "max")
    assert many.cycles == pytest.approx(2 * ISSUE + LOAD + LATENCY)


@pytest.mark.parametrize(("arith", "dtype"), [("sum", "i32"), ("prod", "f32"), ("xori", "i32"), ("max", "i32")])
def test_what_no_instruction_folds_is_moved_by_the_scalar_unit(arith, dtype, run):
    """16 rows of 8: 4, 2 and 1 numbers of each are moved to scratch space and added, then 16 to their places."""
    timed = reduced(run, (16, 8), 1, arith, dtype)
    moved = 2 * 16 * (4 + 2 + 1 + 1)
    assert timed.busy["S"] == pytest.approx(4 * ISSUE + moved * COSTS["scalar_on_chip"])
    assert timed.busy["V"] == pytest.approx(3 * (2 * COSTS["bank_conflict"] + DISPATCH))


def test_long_rows_are_halved_to_a_block_before_the_scalar_unit_moves_them(run):
    short, long = (reduced(run, (16, width), 1, "prod") for width in (8, 64))
    halvings = [16 * COSTS["bank_conflict"] + DISPATCH for _ in (32, 16, 8)]
    assert long.busy["V"] - short.busy["V"] == pytest.approx(sum(halvings))


SELECT = (
    '"hivm.hir.vsel"(%a, {one}, {other}, %a, %a) <{{operandSegmentSizes = array<i32: 3, 1, 1>}}> : '
    "(UB, {kinds}, UB, UB) -> ()"
)


@pytest.mark.parametrize(
    ("one", "other", "kinds", "numbers"),
    [
        ("%a", "%a", "UB, UB", 0),
        ("%number", "%a", "f32, UB", 1),
        ("%a", "%number", "UB, f32", 1),
        ("%number", "%number", "f32, f32", 2),
    ],
)
def test_a_selection_passes_through_the_scalar_unit(one, other, kinds, numbers, run):
    """Its condition's address is written on chip, after its numbers are broadcast; the load behind waits for it."""
    number = '%number = "arith.constant"() <{value = 1.0 : f32}> : () -> f32'
    timed = run(number, "exp", SELECT.format(one=one, other=other, kinds=kinds), "load")
    broadcast = numbers * (COSTS.repeat_cycles["vbrc"] + DISPATCH)
    start = COSTS["vector_start"] if numbers else 0
    before = ISSUE + max(EXP + START, EXP + broadcast + start)
    assert timed.cycles == pytest.approx(before + FLAG + COSTS["scalar_on_chip"] + 2 * ISSUE + LOAD + LATENCY)
    assert timed.busy["MTE2"] == pytest.approx(LOAD)


def broadcast(run, column, steps, scratch=True, dims="1"):
    """Return the busy times of multiplying a tile with a column."""
    make, view = tile("t", "ub", (16, 64), (64, 1))
    narrow, narrow_view = tile("c", "ub", column, steps)
    groups, more, kinds = ("2, 1, 1", ", %a", ", UB") if scratch else ("2, 1, 0", "", "")
    multiply = (
        f'"hivm.hir.vmul"(%t, %c, %t{more}) <{{broadcast = array<i64: {dims}>, '
        f"operandSegmentSizes = array<i32: {groups}>}}> : ({view}, {narrow_view}, {view}{kinds}) -> ()"
    )
    return run(make, narrow, multiply).busy


def test_a_column_is_broadcast_eight_numbers_a_repeat_or_one_by_one(run):
    row = broadcast(run, (1, 64), (64, 1), dims="0")
    near = broadcast(run, (16, 1), (1, 1))
    apart = broadcast(run, (16, 1), (8, 1))
    brc = COSTS.repeat_cycles["vbrc"]
    assert near["V"] - row["V"] == pytest.approx(2 * brc + DISPATCH, abs=64)
    assert near["S"] - row["S"] == pytest.approx(ISSUE)
    assert apart["S"] - row["S"] == pytest.approx(16 * (ISSUE + COSTS["scalar_on_chip"]))


def test_a_number_that_an_operation_does_not_take_is_broadcast_in_scratch_space(run):
    def divided(groups, more, kinds):
        number = '%number = "arith.constant"() <{value = 1.0 : f32}> : () -> f32'
        divide = f'"hivm.hir.vdiv"(%a, %number, %a{more}) <{{operandSegmentSizes = array<i32: {groups}>}}>'
        return run(number, f"{divide} : (UB, f32, UB{kinds}) -> ()").busy["V"]

    extra = divided("2, 1, 1", ", %a", ", UB") - divided("2, 1, 0", "", "")
    assert extra == pytest.approx(COSTS.repeat_cycles["vbrc"] + DISPATCH)


def test_a_longer_reduction_takes_longer(run):
    times = [reduction(run, (1, n), 1) for n in (64, 128, 512, 2048, 4096)]
    assert times == sorted(times) and len(set(times)) == len(times)


# Loops ----------------------------------------------------------------------------------------------------------

TILES = {
    "one sub-tile": (25, 25, 256),
    "sub-tiles with a tail": (25, 4, 512),
    "single rows": (7, 1, 1024),
    "wide": (3, 2, 2048),
    "single buffers": (25, 5, 2048),
}
SHAPES = {
    "even": (1000, 8192),
    "primes": (997, 8191),
    "one row": (1, 8192),
    "one column": (1000, 1),
    "long": (31, 60_008),
}


def in_full(monkeypatch):
    """Turn skipping of iterations off."""
    monkeypatch.setattr(loops, "_steady", lambda history: None)


@pytest.mark.in_part(4)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", SHAPES)
def test_skipping_the_steady_part_of_a_loop_changes_nothing(
    tile, shape, row_reduce, problem, rows, function, run, monkeypatch
):
    config, size = rows(*TILES[tile]), problem(*SHAPES[shape])
    code, arguments = function(row_reduce, size, config)
    last = arguments[-3] - 1
    skipped = [run(code, arguments=arguments, program=program) for program in (0, last)]
    in_full(monkeypatch)
    for program, quick in zip((0, last), skipped, strict=True):
        full = run(code, arguments=arguments, program=program)
        assert quick.cycles == pytest.approx(full.cycles, rel=1e-9)
        assert quick.busy == pytest.approx(full.busy, rel=1e-9)
        assert (quick.bytes_in, quick.bytes_out) == (full.bytes_in, full.bytes_out)


@pytest.mark.parametrize("rate", [2.0, 30.0, 300.0])
@pytest.mark.parametrize("end", ["low", "high"])
def test_skipping_changes_nothing_whatever_bounds_the_loop(
    rate, end, row_reduce, problem, rows, function, run, monkeypatch
):
    code, arguments = function(row_reduce, problem(997, 30_011), rows(25, 4, 512))
    quick = run(code, arguments=arguments, rate=rate, end=end)
    in_full(monkeypatch)
    full = run(code, arguments=arguments, rate=rate, end=end)
    assert quick.cycles == pytest.approx(full.cycles, rel=1e-9)


def test_a_long_loop_is_skipped_over(row_reduce, problem, rows, function, run, monkeypatch):
    """If no iteration were skipped, the tests above would compare a run with itself."""
    code, arguments = function(row_reduce, problem(1000, 1 << 22), rows(25, 25, 256))
    interpreted = 0
    genuine = core.Core.occupy

    def count(self, pipe, cycles, latency):
        nonlocal interpreted
        interpreted += 1
        genuine(self, pipe, cycles, latency)

    monkeypatch.setattr(core.Core, "occupy", count)
    timed = run(code, arguments=arguments)
    assert timed.bytes_in == (25 + 1) * 4 * (1 << 22)
    assert interpreted < 1000  # of 16384 iterations


PART = "memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>"
CUT = f"""%p = "memref.subview"(%x, %now) <{{operandSegmentSizes = array<i32: 1, 0, 1, 0>,
  static_offsets = array<i64: 0>, static_sizes = array<i64: -9223372036854775808>,
  static_strides = array<i64: 1>}}> : (GM, index) -> {PART}"""
SHRINKING = (
    '%size = "arith.constant"() <{value = 4096 : index}> : () -> index',
    '%n2 = "arith.index_cast"(%n) : (i32) -> index',
    *loop(
        100,
        '%done = "arith.muli"(%i, %size) : (index, index) -> index',
        '%rest = "arith.subi"(%n2, %done) : (index, index) -> index',
        '%some = "arith.minsi"(%rest, %size) : (index, index) -> index',
        '%now = "arith.maxsi"(%some, %c0) : (index, index) -> index',
        CUT,
        f'"hivm.hir.load"(%p, %a) : ({PART}, UB) -> ()',
    ),
)


@pytest.mark.parametrize("tiles", [0, 1, 3.5, 40, 40.25, 93.5, 99, 100, 250])
def test_a_loop_that_runs_on_after_its_data_has_ended_is_timed_right(tiles, run, monkeypatch):
    """An iteration's work may change far from the loop's end, where sizes fall to zero."""
    elements = int(tiles * 4096)
    quick = run(*SHRINKING, arguments=(elements, 1, 1, 1))
    assert quick.bytes_in == 4 * min(elements, 100 * 4096)
    in_full(monkeypatch)
    assert quick.cycles == pytest.approx(run(*SHRINKING, arguments=(elements, 1, 1, 1)).cycles, rel=1e-9)


ON_CHIP = "memref<?xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>"
REDUCING = (
    *SHRINKING[:2],
    *loop(
        100,
        *SHRINKING[5:9],
        CUT.replace("(%x,", "(%a,").replace("GM", "UB").replace(PART, ON_CHIP),
        '"hivm.hir.vreduce"(%p, %a) <{arith = #hivm.reduce_op<sum>, reduce_dims = array<i64: 0>}> : '
        f"({ON_CHIP}, UB) -> ()",
    ),
)


@pytest.mark.parametrize("tiles", [40, 40.25, 93.5, 100])
def test_a_loop_whose_reductions_shrink_is_timed_right(tiles, run, monkeypatch):
    arguments = (int(tiles * 4096), 1, 1, 1)
    quick = run(*REDUCING, arguments=arguments)
    in_full(monkeypatch)
    assert quick.busy == pytest.approx(run(*REDUCING, arguments=arguments).busy, rel=1e-9)


@pytest.mark.parametrize("ahead", [0, 10, 50, 300])
def test_a_pipe_that_starts_far_ahead_is_caught_up_with(ahead, run, monkeypatch):
    """All iterations look alike until the slower pipe has caught up, and alike in another way afterwards."""
    lines = (*["exp"] * ahead, *loop(400, "load", "set MTE2 V 0", "wait MTE2 V 0", "exp"))
    quick = run(*lines)
    in_full(monkeypatch)
    assert quick.cycles == pytest.approx(run(*lines).cycles, rel=1e-9)


def branch(condition, *lines, mark=""):
    return (f'"scf.if"({condition}) ({{', *lines, '"scf.yield"() : () -> ()', "}, {", f"}}) {{{mark}}} : (i1) -> ()")


def sides(condition, one, other):
    end = '"scf.yield"() : () -> ()'
    return (f'"scf.if"({condition}) ({{', *one, end, "}, {", *other, end, "}) : (i1) -> ()")


def equals(number):
    return (
        f'%at = "arith.constant"() <{{value = {number} : index}}> : () -> index',
        '%hit = "arith.cmpi"(%i, %at) <{predicate = 0 : i64}> : (index, index) -> i1',
    )


@pytest.mark.parametrize("at", [0, 37, 50, 99])
def test_a_branch_of_the_kernels_own_is_timed_wherever_it_is_taken(at, run):
    timed = run(*loop(100, "add", *equals(at), *branch("%hit", "exp")))
    assert timed.busy["V"] == pytest.approx(100 * ADD + EXP)


def test_a_branch_for_the_tail_at_the_end_of_a_loop_is_timed(run):
    """Such a branch does not prevent skipping."""
    timed = run(*loop(1000, "add", *equals(999), *branch("%hit", "exp", mark="hivm.unlikely_condition")))
    assert timed.busy["V"] == pytest.approx(1000 * ADD + EXP)


def test_promises_to_the_compiler_take_no_time(run):
    timed = run(*loop(100, "add", *equals(3), '"llvm.intr.assume"(%hit) : (i1) -> ()'))
    assert timed.busy["V"] == pytest.approx(100 * ADD) and timed.cycles == pytest.approx(run(*loop(100, "add")).cycles)


def test_a_loop_of_no_iterations_takes_no_time_on_the_pipes(run):
    timed = run(*loop(0, "load", "exp"))
    assert timed.busy["V"] == timed.busy["MTE2"] == 0


def test_values_carried_round_a_loop_are_right_after_skipping(run):
    """A counter that grows by three in each of 1001 iterations is the trip count of a second loop."""
    lines = (
        '%three = "arith.constant"() <{value = 3 : index}> : () -> index',
        '%many = "arith.constant"() <{value = 1001 : index}> : () -> index',
        '%total = "scf.for"(%c0, %many, %c1, %c0) ({',
        "^bb0(%i: index, %so: index):",
        "add",
        '%next = "arith.addi"(%so, %three) : (index, index) -> index',
        '"scf.yield"(%next) : (index) -> ()',
        "}) : (index, index, index, index) -> index",
        '"scf.for"(%c0, %total, %c1) ({',
        "^bb0(%j: index):",
        "exp",
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
    )
    assert run(*lines).busy["V"] == pytest.approx(1001 * ADD + 3003 * EXP)


def test_a_while_loop_ends_when_its_condition_says(run):
    lines = (
        '%ten = "arith.constant"() <{value = 10 : index}> : () -> index',
        '%last = "scf.while"(%c0) ({',
        "^bb0(%k: index):",
        '%more = "arith.cmpi"(%k, %ten) <{predicate = 2 : i64}> : (index, index) -> i1',
        '"scf.condition"(%more, %k) : (i1, index) -> ()',
        "}, {",
        "^bb0(%l: index):",
        "exp",
        '%m = "arith.addi"(%l, %c1) : (index, index) -> index',
        '"scf.yield"(%m) : (index) -> ()',
        "}) : (index) -> index",
        '"scf.for"(%c0, %last, %c1) ({',
        "^bb0(%j: index):",
        "add",
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
    )
    assert run(*lines).busy["V"] == pytest.approx(10 * EXP + 10 * ADD)


# Scalars --------------------------------------------------------------------------------------------------------

READ = '%read = "memref.load"(%a, %c0) : (UB, index) -> f32'
READ_OUTSIDE = '%read = "memref.load"(%x, %c0) : (GM, index) -> f32'
WRITE = '"memref.store"(%read, %x, %c0) : (f32, GM, index) -> ()'


def test_reading_a_number_takes_the_scalar_unit_time(run):
    assert run(READ).busy["S"] == pytest.approx(COSTS["scalar_on_chip"])
    outside = run(READ_OUTSIDE)
    assert outside.busy["S"] == pytest.approx(COSTS["scalar_on_chip"] + COSTS["scalar_outside"])
    assert (outside.bytes_in, outside.bytes_out) == (4, 0)
    both = run(READ, WRITE)
    assert (both.bytes_in, both.bytes_out) == (0, 4)


def numbers_read(run, step, times=100):
    """Return the scalar unit's cycles for each of many numbers so many elements apart, beside its other work."""
    steps = f'%step = "arith.constant"() <{{value = {step} : index}}> : () -> index'
    at = '%at = "arith.muli"(%i, %step) : (index, index) -> index'
    read = '%read = "memref.load"(%x, %at) : (GM, index) -> f32'
    other = run(steps, *loop(times, at)).busy["S"]
    return (run(steps, *loop(times, at, read)).busy["S"] - other) / times - COSTS["scalar_on_chip"]


@pytest.mark.parametrize(("step", "share"), [(16, 1), (50, 1), (8, 1 / 2), (1, 1 / 16), (-1, 1 / 16)])
def test_numbers_of_one_line_are_fetched_once(step, share, run):
    """A line of the scalar unit's cache has 64 bytes; the first number's is fetched whole."""
    times = 100
    first = COSTS["scalar_outside"] * (1 - share) / times
    found = numbers_read(run, step, times)
    assert found == pytest.approx(share * COSTS["scalar_outside"] + first, rel=0.03)


@pytest.mark.parametrize(
    "use",
    [
        '%u = "arith.addf"(%read, %read) : (f32, f32) -> f32',
        '%u = "arith.maximumf"(%read, %read) : (f32, f32) -> f32',
        '%u = "math.sqrt"(%read) : (f32) -> f32',
        '%u = "arith.fptosi"(%read) : (f32) -> i32',
        '%u = "arith.cmpf"(%read, %read) <{predicate = 2 : i64}> : (f32, f32) -> i1',
        '%u = "arith.negf"(%read) : (f32) -> f32',
    ],
)
def test_what_follows_from_data_is_unknown_and_costs_time_all_the_same(use, run):
    assert run(READ, use).busy["S"] > run(READ).busy["S"]


DECIDED = '%d = "arith.cmpf"(%read, %read) <{predicate = 1 : i64}> : (f32, f32) -> i1'


@pytest.mark.parametrize("condition", ["gt", "eq", "and", "select"])
def test_a_branch_on_data_with_work_on_both_sides_is_refused(condition, run):
    """Any way of computing the condition from data is refused."""
    lines = {
        "gt": ['%c = "arith.cmpf"(%read, %read) <{predicate = 2 : i64}> : (f32, f32) -> i1'],
        "eq": [DECIDED, '%c = "arith.cmpi"(%d, %d) <{predicate = 0 : i64}> : (i1, i1) -> i1'],
        "and": [DECIDED, '%c = "arith.andi"(%d, %d) : (i1, i1) -> i1'],
        "select": [DECIDED, '%c = "arith.select"(%d, %d, %d) : (i1, i1, i1) -> i1'],
    }[condition]
    with pytest.raises(UnknownOperation, match=r"cannot follow scf\.if where it depends on tensor contents"):
        run(READ, *lines, *sides("%c", ("exp",), ("add",)))


@pytest.mark.parametrize("guarded", [0, 1])
def test_a_guard_that_depends_on_data_is_timed_on_its_longer_side(guarded, run):
    condition = '%c = "arith.cmpf"(%read, %read) <{predicate = 2 : i64}> : (f32, f32) -> i1'
    both = [("add",), ("exp",) * 4]
    timed = run(READ, condition, *sides("%c", *(both if guarded else both[::-1])))
    assert timed.busy["V"] == pytest.approx(4 * EXP)


def test_a_trip_count_from_data_is_refused(run):
    lines = ('%t = "arith.fptosi"(%read) : (f32) -> index', '"scf.for"(%c0, %t, %c1) ({', "^bb0(%i: index):")
    with pytest.raises(UnknownOperation, match=r"cannot follow scf\.for"):
        run(READ, *lines, "exp", '"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()")


def selected(*tiles):
    """Return the lines that operate on the one of two tiles that data selects."""
    kinds = ", ".join(tiles)
    casts = (f'%tile{n} = "hivm.hir.pointer_cast"(%at) <{{{CAST}}}> : (i64) -> {tile}' for n, tile in enumerate(tiles))
    return (
        '%d = "arith.cmpf"(%read, %read) <{predicate = 1 : i64}> : (f32, f32) -> i1',
        '%at = "arith.constant"() <{value = 0 : i64}> : () -> i64',
        *casts,
        f'%s = "arith.select"(%d, %tile0, %tile1) : (i1, {kinds}) -> {tiles[0]}',
        '%one = "memref.load"(%s, %c0) : (' + tiles[0] + ", index) -> f32",
    )


CAST = "operandSegmentSizes = array<i32: 1, 0>"
SMALL, LARGE = (f"memref<{size}xf32, #hivm.address_space<ub>>" for size in (64, 128))


def test_a_tile_that_data_selects_costs_what_each_costs(run):
    assert run(READ, *selected(SMALL, SMALL)).busy["S"] > run(READ).busy["S"]


def test_tiles_of_two_sizes_that_data_selects_from_are_refused(run):
    with pytest.raises(UnknownOperation, match=r"cannot follow arith\.select of tensors"):
        run(READ, *selected(SMALL, LARGE))


def test_where_data_points_to_does_not_matter_to_the_time(run):
    """A gather: the offset comes from memory."""
    view = "memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>"
    sizes = "static_sizes = array<i64: 64>, static_strides = array<i64: 1>"
    offset = "operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808>"
    kinds = f"(memref<?xf32, #hivm.address_space<gm>>, index) -> {view}"
    at = (
        '%t = "arith.fptosi"(%read) : (f32) -> index',
        f'%v = "memref.reinterpret_cast"(%arg, %t) <{{{offset}, {sizes}}}> : {kinds}',
    )
    timed = run(READ, *at, f'"hivm.hir.load"(%v, %a) : ({view}, UB) -> ()')
    assert timed.bytes_in == 256


@pytest.mark.parametrize(
    ("n", "operation", "expected"),
    [
        (7, "addi", 9),
        (7, "subi", 5),
        (7, "divsi", 3),
        (-7, "divsi", -3),
        (-7, "remsi", -1),
        (-7, "floordivsi", -4),
        (-7, "ceildivsi", -3),
        (7, "minsi", 2),
        (7, "maxsi", 7),
        (7, "andi", 2),
        (5, "xori", 7),
        (5, "shli", 20),
        (-5, "shrsi", -2),
    ],
)
def test_whole_numbers_are_computed_as_the_machine_does(n, operation, expected, run):
    """The result plus a shift that makes it positive is a trip count."""
    shift = 10
    lines = (
        '%two = "arith.constant"() <{value = 2 : i32}> : () -> i32',
        f'%shift = "arith.constant"() <{{value = {shift} : i32}}> : () -> i32',
        f'%r = "arith.{operation}"(%n, %two) : (i32, i32) -> i32',
        '%sum = "arith.addi"(%r, %shift) : (i32, i32) -> i32',
        '%times = "arith.index_cast"(%sum) : (i32) -> index',
        '"scf.for"(%c0, %times, %c1) ({',
        "^bb0(%j: index):",
        "exp",
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
    )
    timed = run(*lines, arguments=(n, 1, 1, 1))
    assert timed.busy["V"] == pytest.approx((expected + shift) * EXP)


# Bounds ---------------------------------------------------------------------------------------------------------

KINDS = [
    ((25, 25, 256), (1000, 8192)),
    ((25, 4, 512), (997, 8191)),
    ((25, 5, 2048), (1000, 8192)),
    ((7, 1, 1024), (31, 1000)),
]


@pytest.mark.parametrize(("tile", "shape"), KINDS)
def test_more_bandwidth_never_makes_a_program_slower(tile, shape, row_reduce, problem, rows, function, run):
    code, arguments = function(row_reduce, problem(*shape), rows(*tile))
    cycles = [run(code, arguments=arguments, rate=rate).cycles for rate in (1, 2, 4, 8, 13, 16, 28, 32, 64, 100, 1000)]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > 2 * cycles[-1]


@pytest.mark.parametrize(("tile", "shape"), KINDS)
def test_a_program_is_never_faster_than_its_busiest_pipe(tile, shape, row_reduce, problem, rows, function, run):
    code, arguments = function(row_reduce, problem(*shape), rows(*tile))
    timed = run(code, arguments=arguments)
    assert max(timed.busy.values()) <= timed.cycles


@pytest.mark.parametrize(("tile", "shape"), KINDS)
def test_low_costs_are_fastest_and_high_costs_slowest(tile, shape, row_reduce, problem, rows, function, run):
    code, arguments = function(row_reduce, problem(*shape), rows(*tile))
    low, value, high = (run(code, arguments=arguments, end=end).cycles for end in ("low", "value", "high"))
    assert low < value < high


def test_a_running_sum_adds_one_row_after_another(run):
    """A row of 1000 float32 is 16 repeats of 256 bytes; here both operands are read from the same banks."""
    make, view = tile("t", "ub", (4, 1000), (1000, 1))
    sums = '"hivm.hir.vcumsum"(%t, %a) <{cum_dims = array<i64: 0>}>'
    timed = run(make, f"{sums} : ({view}, UB) -> ()")
    assert timed.busy["V"] == pytest.approx(4 * 16 * COSTS["bank_conflict"])


def test_rows_that_lie_apart_take_an_instruction_per_256_bytes_of_a_row(run):
    def issued(columns):
        make, view = tile("t", "ub", (16, columns), (96, 1))
        exp = f'"hivm.hir.vexp"(%t, %t) <{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({view}, {view}) -> ()'
        return run(make, exp).busy["S"]

    assert issued(72) - issued(64) == pytest.approx(ISSUE)


# Widths, instructions and passes ----------------------------------------------------------------------------------


def buffer(name, kind, address=0):
    """Return the MLIR and the type of a buffer on chip, such as `4096xf16`."""
    view = f"memref<{kind}, #hivm.address_space<ub>>"
    at = f'%{name}_at = "arith.constant"() <{{value = {address} : i64}}> : () -> i64'
    cast = f'"hivm.hir.pointer_cast"(%{name}_at) <{{operandSegmentSizes = array<i32: 1, 0>}}> : (i64) -> {view}'
    return (at, f"%{name} = {cast}"), view


def elementwise(run, short, source, target, attributes=""):
    """Return the vector pipe's cycles in one operation from a buffer to another at the same address."""
    from_lines, from_view = buffer("from", source)
    to_lines, to_view = buffer("to", target)
    words = f"<{{operandSegmentSizes = array<i32: 1, 1, 0>{attributes}}}> : ({from_view}, {to_view}) -> ()"
    return run(*from_lines, *to_lines, f'"hivm.hir.{short}"(%from, %to) {words}')


@pytest.mark.parametrize(
    ("short", "source", "target", "repeats", "cycles"),
    [
        ("vabs", "4096xf32", "4096xf32", 64, 1),
        ("vabs", "4096xf16", "4096xf16", 32, 1),
        ("vexp", "4096xf32", "4096xf32", 64, 2),
        ("vexp", "4096xf16", "4096xf16", 32, 4),  # twice as many elements, computed one after the other
        ("vcast", "4096xf32", "4096xf32", 64, 1),
        ("vcast", "4096xf16", "4096xf32", 64, 2),
        ("vcast", "4096xf32", "4096xf16", 64, 1),
        ("vcast", "4096xf16", "4096xf16", 32, 1),
    ],
)
def test_cycles_of_a_repeat_depend_on_the_widths(short, source, target, repeats, cycles, run):
    timed = elementwise(run, short, source, target)
    assert timed.busy["V"] == pytest.approx(repeats * cycles + DISPATCH)


@pytest.mark.parametrize(
    ("elements", "instructions"), [(64, 1), (255 * 64, 1), (255 * 64 + 1, 2), (510 * 64, 2), (510 * 64 + 64, 3)]
)
def test_an_instruction_repeats_at_most_255_times(elements, instructions, run):
    timed = elementwise(run, "vabs", f"{elements}xf32", f"{elements}xf32")
    repeats = -(-elements // 64)
    assert timed.busy["V"] == pytest.approx(repeats + DISPATCH + (instructions - 1) * COSTS["vector_next"])
    assert timed.busy["S"] == pytest.approx(instructions * ISSUE)


def test_a_broadcast_takes_an_instruction_per_row(run):
    plain = elementwise(run, "vabs", "16x64xf32", "16x64xf32")
    rows = elementwise(run, "vabs", "16x64xf32", "16x64xf32", ", broadcast = array<i64: 0>")
    assert plain.busy["S"] == pytest.approx(ISSUE)
    assert rows.busy["S"] == pytest.approx(ISSUE)  # its rows are one repeat each: a column of 256 bytes
    wide = elementwise(run, "vabs", "2x1024xf32", "2x1024xf32", ", broadcast = array<i64: 0>")
    assert wide.busy["S"] == pytest.approx(2 * ISSUE)
    narrow = elementwise(run, "vabs", "32x128xf32", "32x128xf32", ", broadcast = array<i64: 0>")
    assert narrow.busy["S"] == pytest.approx(2 * ISSUE)


def over_axis(run, short, shape, attributes):
    lines, view = buffer("t", shape)
    return run(*lines, f'"hivm.hir.{short}"(%t, %a) <{{{attributes}}}> : ({view}, UB) -> ()')


def passes(*repeats, cycles, instructions=1):
    """Return the vector pipe's cycles in passes of so many repeats."""
    set_up = DISPATCH + (instructions - 1) * COSTS["vector_next"]
    return sum(count * cycles + set_up for count in repeats)


@pytest.mark.parametrize(
    ("shape", "axis", "repeats"),
    [
        ("32xf32", 0, [1]),  # runs of 32 at once: 256 bytes
        ("33xf32", 0, [2, 2]),
        ("128xf32", 0, [4, 4]),
        ("129xf32", 0, [5, 5, 5]),
        ("4x128xf32", 1, [16, 16]),
    ],
)
def test_a_sort_merges_runs_four_by_four(shape, axis, repeats, run):
    rows = int(shape.split("x")[0]) if shape.count("x") == 2 else 1
    timed = over_axis(run, "vsort", shape, f"sort_axis = {axis} : i64")
    assert timed.busy["V"] == pytest.approx(passes(*repeats, cycles=COSTS.repeat_cycles["vsort"], instructions=rows))
    assert timed.cycles > timed.busy["V"] + len(repeats) * START


@pytest.mark.parametrize(
    ("shape", "axis", "repeats", "rows"),
    [("4x128xf32", 0, [2, 2, 2, 2], 1), ("4x128xf16", 0, [1, 1, 1, 1], 1), ("2x3x128xf32", 1, [4, 4, 4], 2)],
)
def test_a_running_product_takes_the_rows_one_after_another(shape, axis, repeats, rows, run):
    timed = over_axis(run, "vcumprod", shape, f"cum_dims = array<i64: {axis}>")
    assert timed.busy["V"] == pytest.approx(passes(*repeats, cycles=COSTS.repeat_cycles["vadd"], instructions=rows))


FOLD = COSTS.repeat_cycles["fold"]


@pytest.mark.parametrize(
    ("shape", "axis", "kind", "adds", "instructions", "folded"),
    [
        ("64xf32", 0, "sum", [], 1, 1),
        ("65xf32", 0, "sum", [1], 1, 1),
        ("256xf32", 0, "sum", [2, 1], 1, 1),
        ("256xf32", 0, "max", [4], 1, 1),  # the repeats one by one
        ("64xf32", 0, "max", [], 1, 1),
        ("256xf16", 0, "sum", [1], 1, 1),
        ("4x256xf32", 1, "max", [8, 4], 4, 4),  # several rows are halved
        ("4x64xf32", 0, "max", [2, 1], 1, None),
        ("3x4x64xf32", 1, "sum", [6, 3], 1, None),
        ("1x1xf32", 1, "sum", [], 1, 1),
    ],
)
def test_a_reduction_halves_until_a_repeat_or_a_row_is_left(shape, axis, kind, adds, instructions, folded, run):
    arith = f"arith = #hivm.reduce_op<{kind}>, reduce_dims = array<i64: {axis}>"
    timed = over_axis(run, "vreduce", shape, arith)
    both = COSTS["bank_conflict"]
    expected = sum(repeats * both + DISPATCH for repeats in adds)
    if instructions > 1:  # rows longer than a repeat are halved one by one
        expected += (instructions - 1) * COSTS["vector_next"]
    if folded:
        expected += folded * FOLD + DISPATCH
    assert timed.busy["V"] == pytest.approx(expected)


def test_passes_of_a_reduction_wait_for_one_another(run):
    """Each starts when the last one is done: after its start-up, and a barrier."""
    timed = over_axis(run, "vreduce", "256xf32", "arith = #hivm.reduce_op<sum>, reduce_dims = array<i64: 0>")
    halved = [repeats * COSTS["bank_conflict"] + DISPATCH + COSTS["vector_start"] + BARRIER for repeats in (2, 1)]
    assert timed.cycles == pytest.approx(ISSUE + sum(halved) + FOLD + DISPATCH + COSTS["fold_start"])


@pytest.mark.parametrize(
    ("address", "cycles"),
    [
        (32, 1),  # the write waits for the next repeat anyway
        (64, COSTS["bank_crossing"]),
        (32 + 7 * 32, COSTS["bank_crossing"]),
        (32 + 8 * 32, 1),  # the other eight groups
        (32 + 9 * 32, COSTS["bank_crossing"]),
        (64 + 65536, 1),  # another bank
    ],
)
def test_reading_and_writing_in_one_bank_take_turns(address, cycles, run):
    to_lines, to_view = buffer("to", "1024xf32", address)
    from_lines, from_view = buffer("from", "1024xf32", 32)
    words = f"<{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({from_view}, {to_view}) -> ()"
    timed = run(*to_lines, *from_lines, f'"hivm.hir.vabs"(%from, %to) {words}')
    assert timed.busy["V"] == pytest.approx(16 * cycles + DISPATCH)


def test_a_tile_that_the_compiler_left_without_an_address_is_refused(run):
    lost = '%lost = "memref.alloc"() <{operandSegmentSizes = array<i32: 0, 0>}> : () -> UB'
    with pytest.raises(UnknownOperation, match=r"reads a tile that nothing fills \(memref\.alloc without an address\)"):
        run(lost)


# Forms that were never seen, and choices that depend on data ------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            (
                '%b = "hivm.hir.pointer_cast"(%zero) <{operandSegmentSizes = array<i32: 1, 0>}> '
                ": (i64) -> memref<?xf32, #hivm.address_space<ub>>"
            ),
            "pointer_cast to a dynamic shape",
        ),
        (
            '%b = "memref.cast"(%a) : (UB) -> memref<?x?xf32, #hivm.address_space<ub>>',
            "memref.cast to a dynamic shape",
        ),
    ],
)
def test_a_dynamic_shape_is_not_modelled(run, line, words):
    with pytest.raises(UnknownOperation, match=words):
        run(line)


def test_a_choice_of_tensors_may_depend_on_data_if_only_their_places_differ():
    one, other = View(3, 0, (64,), (1,), 32), View(3, 640, (64,), (1,), 32)
    assert _either_view(1, one, other) == one
    assert _either_view(0, one, other) == other
    assert _either_view(UNKNOWN, one, other) == replace(one, offset=UNKNOWN)
    for unlike in (replace(other, sizes=(32,)), replace(other, base=4), replace(other, strides=(2,))):
        with pytest.raises(DependsOnContents, match=r"cannot follow arith\.select of tensors"):
            _either_view(UNKNOWN, one, unlike)


PLACED = (
    '%whole = "arith.fptosi"(%read) : (f32) -> i64',
    '%at = "arith.index_cast"(%whole) : (i64) -> index',
)


def part(offset):
    """Return the lines that take 64 elements of the tile at `offset`, and move and use them."""
    view = "memref<64xf32, strided<[1], offset: ?>, #hivm.address_space<ub>>"
    sizes = "static_sizes = array<i64: 64>, static_strides = array<i64: 1>"
    dynamic = "operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808>"
    exp = f'"hivm.hir.vexp"(%part, %part) <{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({view}, {view}) -> ()'
    return f'%part = "memref.subview"(%a, %{offset}) <{{{dynamic}, {sizes}}}> : (UB, index) -> {view}', exp


def test_a_part_of_a_tile_at_a_place_that_data_gives_takes_what_one_elsewhere_takes(run):
    known, unknown = run(READ, *PLACED, *part("c0")), run(READ, *PLACED, *part("at"))
    assert unknown.busy["V"] == known.busy["V"] == pytest.approx(COSTS.repeat_cycles["vexp"] + DISPATCH)
    assert unknown.cycles == pytest.approx(known.cycles)
    twice = run(READ, *PLACED, *part("at"), part("at")[1])
    assert twice.busy["V"] == pytest.approx(2 * unknown.busy["V"])


@pytest.mark.parametrize(("kind", "elements"), [("i32", 64), ("f16", 128)])
def test_a_part_at_a_place_that_data_gives_is_seen_as_another_type(run, kind, elements):
    view, seen = (
        f"memref<{each}, strided<[1], offset: ?>, #hivm.address_space<ub>>" for each in ("64xf32", f"{elements}x{kind}")
    )
    absolute = f'"hivm.hir.vabs"(%seen, %seen) <{{operandSegmentSizes = array<i32: 1, 1, 0>}}> : ({seen}, {seen}) -> ()'

    def time(offset):
        cut, _ = part(offset)
        return run(READ, *PLACED, cut, f'%seen = "hivm.hir.bitcast"(%part) : ({view}) -> {seen}', absolute)

    assert time("at").busy["V"] == time("c0").busy["V"] > 0
    assert time("at").cycles == pytest.approx(time("c0").cycles)


def test_a_size_that_data_gives_is_refused(run):
    view = "memref<?xf32, strided<[1]>, #hivm.address_space<ub>>"
    sized = "operandSegmentSizes = array<i32: 1, 0, 1, 0>, static_offsets = array<i64: 0>"
    rest = "static_sizes = array<i64: -9223372036854775808>, static_strides = array<i64: 1>"
    cut = f'%part = "memref.subview"(%a, %at) <{{{sized}, {rest}}}> : (UB, index) -> {view}'
    with pytest.raises(DependsOnContents, match=r"cannot follow memref\.subview where it depends on tensor contents"):
        run(READ, *PLACED, cut)


@pytest.mark.parametrize("start", [0, 8, 16, 24, 64])
def test_a_tile_seen_as_another_type_lies_where_it_lay(run, start):
    """Its place decides which banks it shares with another operand."""
    space = "#hivm.address_space<ub>"
    whole, halves = f"memref<8192xf16, {space}>", f"memref<2048xf16, strided<[1], offset: ?>, {space}>"
    words = f"memref<1024xf32, strided<[1], offset: ?>, {space}>"
    sizes = f"static_offsets = array<i64: {2 * start}>, static_sizes = array<i64: 2048>"
    attributes = f"operandSegmentSizes = array<i32: 1, 0, 0, 0>, {sizes}, static_strides = array<i64: 1>"
    seen = (
        f'%all = "hivm.hir.bitcast"(%a) : (UB) -> {whole}',
        f'%cut = "memref.subview"(%all) <{{{attributes}}}> : ({whole}) -> {halves}',
        f'%back = "hivm.hir.bitcast"(%cut) : ({halves}) -> {words}',
    )
    (near_lines, near), (far_lines, far) = buffer("near", "1024xf32", 4 * start), buffer("far", "1024xf32", 65536)

    def added(name, kind):
        adds = f"<{{operandSegmentSizes = array<i32: 2, 1, 0>}}> : ({kind}, {far}, {far}) -> ()"
        return run(*seen, *near_lines, *far_lines, f'"hivm.hir.vadd"(%{name}, %far, %far) {adds}').busy["V"]

    assert added("back", words) == added("near", near)


def test_the_first_byte_of_a_transfer_arrives_after_the_latency_of_its_rate(program):
    """A rate without one moves the first byte at once."""
    function = program("load")

    def cycles(*latency):
        rates = dict.fromkeys(range(len(function.arguments)), Rate(32.0, 32.0, *latency))
        return ProgramClock(function, costs()).run([1, 1, 1, 1], 0, Memory(rates, rates)).cycles

    assert cycles() == cycles(0.0) == cycles(260.0) - 260.0
