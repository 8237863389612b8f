"""Unordered accesses are reported, whatever values they happened to see; ordered ones are not."""

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, MTE3, S, V
from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.hazards import FlagFault, Order, Race, Sharing, _equal
from tilewise.tuner.devices.ascend_model.executor.memory import Global, View
from tilewise.tuner.devices.ascend_model.ir.hivm import Op

UB = 196608


def op(name, number):
    return Op(f"hivm.hir.{name}", (), (), {}, (), (), (), number)


LOAD, ADD, EXP, STORE, SET, WAIT = (
    op(name, number) for number, name in enumerate(("load", "vadd", "vexp", "store", "set_flag", "wait_flag"), 1)
)
TILE = View(-1, 64, 0, (4, 8), (16, 1), "f32")
"""Bytes 64 to 96, 128 to 160 and so on."""
OTHER = View(-1, 2048, 0, (8,), (1,), "f32")


@pytest.fixture
def order():
    return Order(4096)


def flag(order, source, target, event=0):
    order.set_flag(source, target, event, SET)
    order.wait_flag(source, target, event, WAIT)


# On chip ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "writes", "message"),
    [
        (
            [TILE],
            [],
            r"race: vadd \(operation 2\) on V reads on-chip byte \d+, which load \(operation 1\) on MTE2 wrote",
        ),
        (
            [],
            [TILE],
            r"race: vadd \(operation 2\) on V writes on-chip byte \d+, which load \(operation 1\) on MTE2 wrote",
        ),
    ],
)
def test_using_what_another_pipe_may_still_write_is_a_race(order, reads, writes, message):
    order.use(MTE2, LOAD, [], [TILE])
    with pytest.raises(Race, match=message):
        order.use(V, ADD, reads, writes)


def test_overwriting_what_another_pipe_may_still_read_is_a_race(order):
    order.use(V, ADD, [TILE], [])
    with pytest.raises(Race, match=r"load .* writes .* which vadd \(operation 2\) on V read, and nothing orders them"):
        order.use(MTE2, LOAD, [], [TILE])


def test_reading_together_is_no_race(order):
    order.use(MTE3, STORE, [TILE], [])
    order.use(V, ADD, [TILE], [])


def test_a_flag_orders_what_comes_after_it_with_what_came_before(order):
    order.use(MTE2, LOAD, [], [TILE])
    flag(order, MTE2, V)
    order.use(V, ADD, [TILE], [])


def test_a_flag_orders_nothing_issued_after_it_was_set(order):
    order.set_flag(MTE2, V, 0, SET)
    order.use(MTE2, LOAD, [], [TILE])
    order.wait_flag(MTE2, V, 0, WAIT)
    with pytest.raises(Race):
        order.use(V, ADD, [TILE], [])


def test_a_flag_orders_the_pipe_that_waits_and_no_other(order):
    order.use(MTE2, LOAD, [], [TILE])
    flag(order, MTE2, V)
    with pytest.raises(Race, match="store"):
        order.use(MTE3, STORE, [TILE], [])


def test_flags_pass_on_what_their_pipe_waited_for(order):
    order.use(MTE2, LOAD, [], [TILE])
    flag(order, MTE2, V)
    flag(order, V, MTE3)
    order.use(MTE3, STORE, [TILE], [])


def test_a_flag_may_be_set_twice_and_then_waited_for_twice(order):
    order.use(MTE2, LOAD, [], [TILE])
    order.set_flag(MTE2, V, 0, SET)
    other = View(-1, 1024, 0, (8,), (1,), "f32")
    order.use(MTE2, LOAD, [], [other])
    order.set_flag(MTE2, V, 0, SET)
    order.wait_flag(MTE2, V, 0, WAIT)
    order.use(V, ADD, [TILE], [])
    with pytest.raises(Race):
        order.use(V, ADD, [other], [])
    order.wait_flag(MTE2, V, 0, WAIT)
    order.use(V, ADD, [other], [])


def test_other_blocks_of_32_bytes_do_not_meet(order):
    order.use(MTE2, LOAD, [], [TILE])
    order.use(V, ADD, [], [View(-1, 96, 0, (4, 8), (16, 1), "f32")])  # the gaps between the rows
    with pytest.raises(Race):
        order.use(V, ADD, [View(-1, 92, 0, (1,), (1,), "f32")], [])


def test_masks_take_an_eighth_of_a_byte_an_element(order):
    order.use(V, ADD, [], [View(-1, 0, 0, (2, 256), (512, 1), "i1")])
    order.use(MTE2, LOAD, [], [View(-1, 32, 0, (8,), (1,), "f32")])
    with pytest.raises(Race):
        order.use(MTE2, LOAD, [], [View(-1, 64, 0, (8,), (1,), "f32")])


def test_operations_of_one_pipe_need_a_barrier_where_one_uses_the_others_result(order):
    order.use(V, ADD, [], [TILE])
    with pytest.raises(Race, match=r"vexp \(operation 3\) on V reads .* which vadd \(operation 2\) on V wrote"):
        order.use(V, EXP, [TILE], [])
    order.barrier(V)
    order.use(V, EXP, [TILE], [])
    assert order.unbarriered == set()


def test_long_operations_over_the_very_same_elements_are_kept_apart_by_their_pipe_and_noted(order):
    order = Order(UB)
    long = View(-1, 0, 0, (64, 64), (64, 1), "f32")
    order.use(V, ADD, [], [long])
    order.use(V, EXP, [long], [long])
    assert len(order.unbarriered) == 2  # it reads and overwrites the same elements
    assert all("without a barrier between" in note for note in order.unbarriered)
    with pytest.raises(Race):
        order.use(V, ADD, [View(-1, 0, 0, (63, 64), (64, 1), "f32")], [])


def test_a_barrier_of_all_pipes_orders_everything(order):
    order.use(MTE2, LOAD, [], [TILE])
    order.barrier(None)
    order.use(V, ADD, [TILE], [TILE])
    order.barrier(None)
    order.use(MTE3, STORE, [TILE], [])


# The scalar unit --------------------------------------------------------------------------------------------------


def test_what_the_scalar_unit_stores_needs_a_flag_to_be_seen(order):
    order.use(S, op("memref.store", 9), [], [TILE])
    with pytest.raises(Race, match=r"memref\.store"):
        order.use(V, ADD, [TILE], [])
    flag(order, S, V)
    order.use(V, ADD, [TILE], [])


def test_the_scalar_unit_is_in_order_with_itself(order):
    order.use(S, op("memref.store", 9), [], [TILE])
    order.use(S, op("memref.load", 10), [TILE], [])


def test_what_is_issued_after_the_scalar_unit_has_waited_starts_later(order):
    order.use(V, ADD, [], [TILE])
    flag(order, V, S)
    order.use(S, op("memref.load", 10), [TILE], [])
    order.use(MTE3, STORE, [TILE], [])


def test_a_flag_there_and_back_tells_that_the_scalar_units_store_is_over(order):
    order.use(S, op("memref.store", 9), [], [TILE])
    flag(order, S, V)
    order.use(V, EXP, [TILE], [TILE])
    order.use(S, op("memref.store", 10), [], [OTHER])
    flag(order, V, S)
    order.use(MTE3, STORE, [TILE], [])
    with pytest.raises(Race, match=r"memref\.store \(operation 10\)"):
        order.use(MTE3, STORE, [OTHER], [])


# Flags ------------------------------------------------------------------------------------------------------------


def test_waiting_for_a_flag_that_is_not_set_is_a_deadlock(order):
    order.set_flag(V, MTE2, 1, SET)
    with pytest.raises(FlagFault, match=r"deadlock: V waits at wait_flag \(operation 6\) for event 0 of MTE2"):
        order.wait_flag(MTE2, V, 0, WAIT)


def test_a_flag_that_stays_set_is_found_at_the_end(order):
    order.set_flag(V, MTE2, 1, SET)
    with pytest.raises(
        FlagFault, match=r"event 1 from V to MTE2 is set at set_flag \(operation 5\) and never waited for"
    ):
        order.finish()


def test_a_copy_goes_on_alone(order):
    order.use(MTE2, LOAD, [], [TILE])
    order.set_flag(MTE2, V, 0, SET)
    twin = order.copy()
    twin.wait_flag(MTE2, V, 0, WAIT)
    twin.use(V, ADD, [TILE], [TILE])
    twin.finish()
    with pytest.raises(Race):
        order.use(V, ADD, [TILE], [])
    with pytest.raises(FlagFault):
        order.finish()


# Global memory ----------------------------------------------------------------------------------------------------

ID = '%p = "hivm.hir.get_block_idx"() : () -> i64'
NUMBER = '%v = "arith.sitofp"(%p) : (i64) -> f32'
AT = '%i = "arith.index_cast"(%p) : (i64) -> index'


def store(value, at):
    return f'"memref.store"({value}, %x, {at}) : (f32, GM, index) -> ()'


@pytest.fixture
def execute(program):
    """Run hand-written lines as this many programs, and return the buffer."""

    def run(*lines, programs=2):
        data = np.arange(4096, dtype=np.float32)
        Executor(program(*lines), UB).run({"x_ptr": data}, [1], (programs,))
        return data

    return run


def test_programs_may_write_elements_of_their_own(execute):
    assert execute(ID, NUMBER, AT, store("%v", "%i"), programs=4)[:5].tolist() == [0, 1, 2, 3, 4]


def test_programs_that_write_different_values_to_one_element_race(execute):
    message = (
        r"race: memref.store \(operation \d+\) writes elements of x_ptr that .*program.* writes with another value"
    )
    with pytest.raises(Race, match=message):
        execute(ID, NUMBER, store("%v", "%c0"))


def test_programs_that_write_the_same_value_to_one_element_do_not(execute):
    constant = '%v = "arith.constant"() <{value = 7.000000e+00 : f32}> : () -> f32'
    assert execute(constant, store("%v", "%c0"))[0] == 7


def test_reading_what_another_program_writes_is_a_race(execute):
    read = '%w = "memref.load"(%x, %c0) : (GM, index) -> f32'
    with pytest.raises(Race, match=r"memref.store .* writes elements of x_ptr that .*program.* reads"):
        execute(ID, NUMBER, AT, read, store("%v", "%i"))
    with pytest.raises(Race, match=r"memref.load .* reads elements of x_ptr that program 1 writes"):
        execute(ID, NUMBER, AT, store("%v", "%i"), '%w = "memref.load"(%x, %c1) : (GM, index) -> f32')


FAR = (
    '%far = "arith.constant"() <{value = 65536 : i64}> : () -> i64',
    '%b = "hivm.hir.pointer_cast"(%far) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> UB',
)
"""A second tile, so that the programs share nothing on chip."""


def test_a_program_reads_what_it_wrote_only_after_a_flag(execute):
    first = (*FAR, "load", "set MTE2 MTE3 0", "wait MTE2 MTE3 0", "store")
    again = '"hivm.hir.load"(%x, %b) : (GM, UB) -> ()'
    with pytest.raises(Race, match=r"load .* on MTE2 reads elements of x_ptr that store .* on MTE3 wrote"):
        execute(*first, again, programs=1)
    left = execute(*first, "set MTE3 MTE2 0", "wait MTE3 MTE2 0", again, programs=1)
    assert (left == np.arange(4096)).all()


def test_a_program_overwrites_what_it_read_only_after_a_flag(execute):
    other = [
        *FAR,
        '%one = "arith.constant"() <{value = 1.000000e+00 : f32}> : () -> f32',
        '"hivm.hir.vbrc"(%one, %b) <{broadcast_dims = array<i64>}> : (f32, UB) -> ()',
        "set V MTE3 0",
        "wait V MTE3 0",
    ]
    send = '"hivm.hir.store"(%b, %x) : (UB, GM) -> ()'
    with pytest.raises(Race, match=r"store .* on MTE3 writes elements of x_ptr that load .* on MTE2 read"):
        execute(*other, "load", send, programs=1)
    assert (execute(*other, "load", "set MTE2 MTE3 1", "wait MTE2 MTE3 1", send, programs=1) == 1).all()


ATOMIC = '"hivm.hir.store"(%a, %x) <{atomic_kind = #hivm.atomic_kind<add>}> : (UB, GM) -> ()'
FILL = (
    '%one = "arith.constant"() <{value = 1.000000e+00 : f32}> : () -> f32',
    '"hivm.hir.vbrc"(%one, %a) <{broadcast_dims = array<i64>}> : (f32, UB) -> ()',
    "set V MTE3 0",
    "wait V MTE3 0",
)


def test_programs_may_all_add_to_one_element(execute):
    assert (execute(*FILL, ATOMIC, programs=3) == np.arange(4096) + 3).all()


def test_adding_to_what_another_program_writes_is_a_race(execute):
    with pytest.raises(Race, match=r"adds to elements of x_ptr that program . writes"):
        execute(ID, NUMBER, AT, store("%v", "%i"), *FILL, ATOMIC)


class Programs:
    """Programs that run one after the other and use the same elements of a buffer: each waits for its own accesses."""

    def __init__(self):
        self.view, self.order = View(0, 0, 8, (4,), (1,), "f32"), Order(4096)
        self.memory = Global("x_ptr", np.zeros(32, np.float32))
        self.sharing = Sharing([32], [0], ["x_ptr"])

    def load(self, program):
        self.sharing.load(self.order, MTE2, LOAD, self.view, np.array([program]))
        self._wait(MTE2)

    def store(self, program):
        pieces = [(part, window, window + 1) for part, window in self.memory.pieces(self.view, 1, STORE)]
        self.sharing.store(self.order, MTE3, STORE, self.view, np.array([program]), pieces)
        self._wait(MTE3)

    def add(self, program):
        self.sharing.add(STORE, self.view, np.array([program]))
        self._wait(MTE3)

    def _wait(self, pipe):
        self.order.issue(pipe, LOAD)
        self.order.barrier(None)


@pytest.fixture
def programs():
    return Programs()


def test_a_program_may_use_its_own_elements_again(programs):
    for use in (programs.load, programs.load, programs.store, programs.store, programs.load):
        use(0)


def test_programs_may_read_or_add_one_after_the_other(programs):
    for program in (0, 1, 1, 0):
        programs.load(program)
    adding = Programs()
    for program in (0, 1, 1, 0):
        adding.add(program)


@pytest.mark.parametrize("program", [0, 1, 2])
def test_nobody_may_write_what_several_programs_read(programs, program):
    programs.load(0)
    programs.load(1)
    with pytest.raises(Race, match=r"store .* writes elements of x_ptr that another program reads"):
        programs.store(program)
    with pytest.raises(Race, match=r"store .* adds to elements of x_ptr that another program reads"):
        programs.add(program)


@pytest.mark.parametrize("program", [0, 1, 2])
def test_nobody_may_read_or_set_what_programs_add_to(programs, program):
    programs.add(0)
    programs.add(1)
    with pytest.raises(Race, match=r"load .* reads elements of x_ptr that another program writes"):
        programs.load(program)
    with pytest.raises(Race, match=r"store .* writes elements of x_ptr that another program writes with another value"):
        programs.store(program)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("load", "store", "writes elements of x_ptr that program {} reads"),
        ("load", "add", "adds to elements of x_ptr that program {} reads"),
        ("store", "load", "reads elements of x_ptr that program {} writes"),
        ("store", "store", "writes elements of x_ptr that program {} writes with another value"),
        ("store", "add", "adds to elements of x_ptr that program {} writes"),
    ],
)
def test_a_race_names_the_other_program(programs, first, second, before, after, message):
    getattr(programs, before)(first)
    with pytest.raises(Race, match=message.format(first) + " in the same launch"):
        getattr(programs, after)(second)


# The compiled headline kernel -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def headline(row_reduce, problem, rows, target, cache_folder):
    """A small case: two full column tiles and a tail, two full programs and a tail of rows."""
    from tilewise.benchmarks.model.mutations import compile_case

    return compile_case(row_reduce, problem(61, 600), rows(25, 25, 256), target, cache_folder)


def test_the_headline_kernel_has_no_hazard(headline):
    assert headline.unordered == frozenset()


def test_a_copy_with_one_flag_removed_is_caught_whichever_it_is(headline, target):
    from tilewise.benchmarks.model.mutations import edited, try_change

    (function,) = headline.functions
    flags = [op for op in function.body.walk() if op.name in ("hivm.hir.set_flag", "hivm.hir.wait_flag")]
    assert len(flags) >= 16
    for op in flags:
        found = try_change(headline, "", "", (edited(function, op, []),), on_chip_bytes=target.on_chip_bytes)
        assert found.report.startswith(("race: ", "deadlock: ", "event ")), (op.number, found)


def test_a_copy_with_one_barrier_removed_is_caught_where_it_orders_anything(headline, target):
    from tilewise.benchmarks.model.mutations import edited, try_change

    (function,) = headline.functions
    barriers = [op for op in function.body.walk() if op.name == "hivm.hir.pipe_barrier"]
    found = [
        try_change(headline, "", "", (edited(function, op, []),), on_chip_bytes=target.on_chip_bytes) for op in barriers
    ]
    assert sum(one.order_changed for one in found) >= 8
    assert all(one.report for one in found if one.counts)


def test_values_that_are_not_numbers_equal_one_another_and_nothing_else():
    there, new = np.array([1.0, np.nan, np.nan, 1.0, 1.0]), np.array([1.0, np.nan, 1.0, np.nan, 2.0])
    assert _equal(there, new).tolist() == [True, True, False, False, False]
