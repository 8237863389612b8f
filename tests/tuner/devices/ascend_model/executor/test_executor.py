"""Execution of compiled programs: control flow, double buffers, memory, and results of Triton's interpreter."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.executor import Executor, _layout, side_by_side
from tilewise.tuner.devices.ascend_model.executor.global_memory import require_transfer
from tilewise.tuner.devices.ascend_model.executor.hazards import Race
from tilewise.tuner.devices.ascend_model.executor.memory import Fault, OutOfBounds, View
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, execute, judge
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.workers.worker import Worker

UB = 196608


def constant(name, value, kind="index"):
    return f'%{name} = "arith.constant"() <{{value = {value} : {kind}}}> : () -> {kind}'


def binary(name, operation, a, b, kind="index"):
    return f'%{name} = "arith.{operation}"(%{a}, %{b}) : ({kind}, {kind}) -> {kind}'


ID = ('%id = "hivm.hir.get_block_idx"() : () -> i64', '%p = "arith.index_cast"(%id) : (i64) -> index')


def put(value, at, kind="index"):
    """Return the lines that store a number into the buffer."""
    as_whole = f'%w_{value} = "arith.index_cast"(%{value}) : ({kind}) -> i64'
    as_float = f'%f_{value} = "arith.sitofp"(%w_{value}) : (i64) -> f32'
    return as_whole, as_float, f'"memref.store"(%f_{value}, %x, %{at}) : (f32, GM, index) -> ()'


@pytest.fixture
def run(program):
    """Run hand-written lines as this many programs, and return the buffer of 4096 elements."""

    def execute_lines(*lines, programs=1, size=UB, data=None):
        data = np.arange(4096, dtype=np.float32) if data is None else data
        Executor(program(*lines), size).run({"x_ptr": data}, [7], (programs,))
        return data

    return execute_lines


# Control flow -----------------------------------------------------------------------------------------------------


def test_programs_that_branch_differently_go_on_alone(run):
    lines = (
        *ID,
        constant("five", 5),
        binary("odd", "andi", "p", "c1"),
        '%is_odd = "arith.cmpi"(%odd, %c1) <{predicate = 0 : i64}> : (index, index) -> i1',
        '%r = "scf.if"(%is_odd) ({',
        binary("times", "muli", "p", "five"),
        '"scf.yield"(%times) : (index) -> ()',
        "}, {",
        binary("plus", "addi", "p", "five"),
        '"scf.yield"(%plus) : (index) -> ()',
        "}) : (i1) -> index",
        *put("r", "p"),
    )
    assert run(*lines, programs=6)[:6].tolist() == [5, 5, 7, 15, 9, 25]


def test_promises_to_the_compiler_do_nothing(run):
    lines = (*ID, '%is = "arith.cmpi"(%p, %c1) <{predicate = 3 : i64}> : (index, index) -> i1')
    promise = '"llvm.intr.assume"(%is) : (i1) -> ()'
    assert run(*lines, promise, *put("p", "p"), programs=3)[:3].tolist() == [0, 1, 2]


def test_loops_run_as_often_as_each_program_says_and_carry_values(run):
    lines = (
        *ID,
        '%sum = "scf.for"(%c0, %p, %c1, %c0) ({',
        "^bb0(%i: index, %carried: index):",
        binary("next", "addi", "carried", "i"),
        '"scf.yield"(%next) : (index) -> ()',
        "}) : (index, index, index, index) -> index",
        *put("sum", "p"),
    )
    assert run(*lines, programs=7)[:7].tolist() == [sum(range(p)) for p in range(7)]


def test_programs_whose_loops_begin_elsewhere_and_are_as_long_stay_together(program):
    lines = (
        *ID,
        constant("three", 3),
        constant("seven", 7),
        constant("twenty", 20),
        binary("low", "muli", "p", "seven"),
        binary("end", "addi", "low", "seven"),
        '%in = "arith.cmpi"(%end, %twenty) <{predicate = 2 : i64}> : (index, index) -> i1',
        '%high = "arith.select"(%in, %end, %twenty) : (i1, index, index) -> index',
        '%sum = "scf.for"(%low, %high, %three, %c0) ({',
        "^bb0(%i: index, %carried: index):",
        binary("next", "addi", "carried", "i"),
        '"scf.yield"(%next) : (index) -> ()',
        "}) : (index, index, index, index) -> index",
        *put("sum", "p"),
    )
    executor, groups = Executor(program(*lines), UB), []
    executor._steps.append(lambda group: groups.append(group.programs.tolist()))
    data = np.arange(4096, dtype=np.float32)
    executor.run({"x_ptr": data}, [7], (5,))
    assert data[:5].tolist() == [sum(range(7 * p, min(7 * p + 7, 20), 3)) for p in range(5)]
    assert sorted(groups) == [[0, 1], [2], [3, 4]]


def test_while_loops_end_for_each_program_on_its_own(run):
    lines = (
        *ID,
        constant("two", 2),
        '%rest, %trips = "scf.while"(%p, %c0) ({',
        "^bb0(%left: index, %count: index):",
        '%more = "arith.cmpi"(%left, %c0) <{predicate = 4 : i64}> : (index, index) -> i1',
        '"scf.condition"(%more, %left, %count) : (i1, index, index) -> ()',
        "}, {",
        "^bb0(%l: index, %c: index):",
        binary("half", "divsi", "l", "two"),
        binary("counted", "addi", "c", "c1"),
        '"scf.yield"(%half, %counted) : (index, index) -> ()',
        "}) : (index, index) -> (index, index)",
        *put("trips", "p"),
    )
    assert run(*lines, programs=9)[:9].tolist() == [p.bit_length() for p in range(9)]


def test_iterations_take_a_buffers_addresses_in_turn_over_all_loops_around_it(run):
    """In three times three iterations, the last ones to use the two addresses are the ninth and the eighth."""
    lines = (
        constant("three", 3),
        constant("first", 1024, "i64"),
        constant("second", 2048, "i64"),
        '"scf.for"(%c0, %three, %c1) ({',
        "^bb0(%i: index):",
        '"scf.for"(%c0, %three, %c1) ({',
        "^bb0(%j: index):",
        binary("rows", "muli", "i", "three"),
        binary("count", "addi", "rows", "j"),
        '%wide = "arith.index_cast"(%count) : (index) -> i64',
        '%value = "arith.sitofp"(%wide) : (i64) -> f32',
        '%t = "hivm.hir.pointer_cast"(%first, %second) <{operandSegmentSizes = array<i32: 2, 0>}> : (i64, i64) -> UB',
        '"memref.store"(%value, %t, %c0) : (f32, UB, index) -> ()',
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
        '"scf.yield"() : () -> ()',
        "}) : (index, index, index) -> ()",
        '%t1 = "hivm.hir.pointer_cast"(%first) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> UB',
        '%t2 = "hivm.hir.pointer_cast"(%second) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> UB',
        '%v1 = "memref.load"(%t1, %c0) : (UB, index) -> f32',
        '%v2 = "memref.load"(%t2, %c0) : (UB, index) -> f32',
        '"memref.store"(%v1, %x, %c0) : (f32, GM, index) -> ()',
        '"memref.store"(%v2, %x, %c1) : (f32, GM, index) -> ()',
    )
    assert run(*lines)[:2].tolist() == [8, 7]


def test_more_programs_than_run_side_by_side_all_run(run):
    assert run(*ID, *put("p", "p"), programs=4096).tolist() == list(range(4096))


def test_arguments_and_the_grid_come_after_the_buffers(run):
    lines = (
        '%size = "arith.index_cast"(%n) : (i32) -> index',
        '%programs = "arith.index_cast"(%gx) : (i32) -> index',
        *put("size", "c0"),
        *put("programs", "c1"),
    )
    assert run(*lines)[:2].tolist() == [7, 1]


def test_a_wrong_number_of_arguments_is_refused(program):
    with pytest.raises(ValueError, match="by_hand takes 4 scalars, 5 were given"):
        Executor(program("load"), UB).run({"x_ptr": np.zeros(4096, np.float32)}, [1, 2], (1,))


# Memory -----------------------------------------------------------------------------------------------------------

IN_OUT = ("load", "set MTE2 V 0", "wait MTE2 V 0", "exp", "set V MTE3 0", "wait V MTE3 0", "store")


def test_a_tile_goes_in_through_the_vector_unit_and_out(run):
    data = np.linspace(-3, 3, 4096, dtype=np.float32)
    np.testing.assert_allclose(run(*IN_OUT, data=data.copy()), np.exp(data.astype(np.float64)), rtol=4 * 2**-24)


def test_what_was_never_loaded_is_nan(run):
    assert np.isnan(run("store")).all()


def test_a_buffer_that_ends_too_early_is_named(run):
    with pytest.raises(OutOfBounds, match=r"load \(operation \d+\) uses element 4095 of x_ptr, which has 4000"):
        run(*IN_OUT, data=np.zeros(4000, np.float32))


def test_programs_that_use_other_places_on_chip_go_on_alone(run):
    """Each program writes its number to the place of that number on chip, and stores the element there."""
    dynamic = "static_offsets = array<i64: -9223372036854775808>, static_sizes = array<i64: 1>, "
    part = f"<{{operandSegmentSizes = array<i32: 1, 1, 0, 0>, {dynamic}static_strides = array<i64: 1>}}>"
    inside, outside = (f"memref<1xf32, strided<[1], offset: ?>, #hivm.address_space<{s}>>" for s in ("ub", "gm"))
    number, _, _ = put("p", "p")
    data = run(
        *(*ID, constant("size", 1000), binary("at", "muli", "p", "size"), number),
        '%f = "arith.sitofp"(%w_p) : (i64) -> f32',
        '"memref.store"(%f, %a, %p) : (f32, UB, index) -> ()',
        *("set S MTE3 0", "wait S MTE3 0"),
        f'%from = "memref.subview"(%a, %p) {part} : (UB, index) -> {inside}',
        f'%to = "memref.subview"(%x, %at) {part} : (GM, index) -> {outside}',
        f'"hivm.hir.store"(%from, %to) : ({inside}, {outside}) -> ()',
        programs=3,
    )
    assert data[:3000:1000].tolist() == [0, 1, 2]


def test_a_plan_beyond_on_chip_memory_is_refused(program):
    with pytest.raises(OutOfBounds, match="by_hand needs 16384 bytes of on-chip memory, which has 8192"):
        Executor(program("load"), 8192)


def test_a_transfer_between_different_shapes_is_a_fault(run):
    half = '"memref.subview"(%a) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_offsets = array<i64: 0>, '
    half += "static_sizes = array<i64: 2048>, static_strides = array<i64: 1>}> : (UB) -> "
    kind = "memref<2048xf32, strided<[1]>, #hivm.address_space<ub>>"
    with pytest.raises(Fault, match=r"between memory of shapes \(4096,\) and \(2048,\), which differ"):
        run(f"%half = {half}{kind}", f'"hivm.hir.load"(%x, %half) : (GM, {kind}) -> ()')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '"hivm.hir.load"(%a, %x) : (UB, GM) -> ()',
            r"load \(operation \d+\) uses global memory as if it were on chip",
        ),
        ('"hivm.hir.store"(%x, %a) : (GM, UB) -> ()', r"store \(operation \d+\) uses global memory as if"),
        (
            '"hivm.hir.store"(%a, %a) : (UB, UB) -> ()',
            r"store \(operation \d+\) uses on-chip memory as if it were global",
        ),
        (
            '"hivm.hir.vexp"(%x, %a) <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (GM, UB) -> ()',
            "uses global memory",
        ),
    ],
)
def test_memory_on_the_wrong_side_is_a_fault(run, line, message):
    with pytest.raises(Fault, match=message):
        run(line)


def test_an_unknown_operation_is_an_error_that_names_it(run):
    with pytest.raises(UnknownOperation, match=r"hivm\.hir\.vmystery"):
        run('"hivm.hir.vmystery"(%a, %a) : (UB, UB) -> ()')
    with pytest.raises(UnknownOperation, match=r"scf\.mystery"):
        run('"scf.mystery"() : () -> ()')


def expanded(shape):
    """Return the line that views the buffer on chip under another static type."""
    kind = f"memref<{shape}xf32, #hivm.address_space<ub>>"
    return f'"memref.expand_shape"(%a) <{{reassociation = [[0, 1]]}}> : (UB) -> {kind}'


def test_a_view_of_more_dimensions_has_the_missing_size_from_its_source(run):
    run(f"%wide = {expanded('64x64')}")
    run(f"%wide = {expanded('?x64')}")
    with pytest.raises(UnknownOperation, match=r"expand_shape cuts 4096 elements into 3840"):
        run(f"%wide = {expanded('60x64')}")


def memory(name, shape="4096xf32", space="ub"):
    """Return the line that plans another buffer from 16384 bytes on, and its type."""
    kind = f"memref<{shape}, #hivm.address_space<{space}>>"
    cast = f'%{name} = "hivm.hir.pointer_cast"(%far) <{{operandSegmentSizes = array<i32: 1, 0>}}> : (i64) -> {kind}'
    return constant("far", 16384, "i64"), cast


HALF = "memref<2048xf32, #hivm.address_space<ub>>"
CAST = f'%half = "memref.cast"(%a) : (UB) -> {HALF}'
BYTES = "memref<4096xi8, #hivm.address_space<ub>>"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*memory("b", "?xf32")], r"pointer_cast .* to a dynamic shape"),
        ([*memory("b", space="cc")], r"does not know the memory cc of a \w+ core"),
        (
            [
                '"scf.for"(%c0, %c1, %c0) ({',
                "^bb0(%i: index):",
                '"scf.yield"() : () -> ()',
                "}) : (index, index, index) -> ()",
            ],
            "with a step of 0",
        ),
        (['"hivm.hir.load"(%x, %a) <{init_out_buffer = true}> : (GM, UB) -> ()'], "load .* with an initial value"),
        (
            ['"hivm.hir.store"(%a, %x) <{atomic_kind = #hivm.atomic_kind<odd>}> : (UB, GM) -> ()'],
            "store .* of atomic kind odd",
        ),
        (
            ['%wide = "memref.cast"(%a) : (UB) -> memref<?x?xf32, #hivm.address_space<ub>>'],
            "memref.cast .* to a dynamic shape",
        ),
        ([f'%bytes = "memref.cast"(%a) : (UB) -> {BYTES}'], "memref.cast .* between types of different widths"),
    ],
    ids=["dynamic memory", "memory", "step", "load", "atomic", "dynamic type", "width"],
)
def test_a_form_that_was_never_seen_is_named(run, lines, words):
    with pytest.raises(UnknownOperation, match=words):
        run(*lines)


def test_operands_of_different_shapes_are_a_fault_that_names_them(run):
    add = '"hivm.hir.vadd"(%a, %half, %a) <{operandSegmentSizes = array<i32: 2, 1, 0>}>'
    flags = ("load", "set MTE2 V 0", "wait MTE2 V 0")
    with pytest.raises(Fault, match=r"has operands of shapes \(4096,\), \(2048,\), \(4096,\), which do not match"):
        run(*flags, CAST, f"{add} : (UB, {HALF}, UB) -> ()")


def test_programs_that_choose_other_memory_go_on_alone(run):
    """Each writes 10 and 20 to its place in two buffers, and stores what the chosen one has there."""
    kind = "memref<4096xf32, #hivm.address_space<ub>>"
    data = run(
        *(*ID, *memory("b"), constant("ten", 10.0, "f32"), constant("twenty", 20.0, "f32")),
        '"memref.store"(%ten, %a, %p) : (f32, UB, index) -> ()',
        f'"memref.store"(%twenty, %b, %p) : (f32, {kind}, index) -> ()',
        binary("odd", "andi", "p", "c1"),
        '%is_odd = "arith.cmpi"(%odd, %c1) <{predicate = 0 : i64}> : (index, index) -> i1',
        f'%chosen = "arith.select"(%is_odd, %a, %b) : (i1, UB, {kind}) -> UB',
        '%v = "memref.load"(%chosen, %p) : (UB, index) -> f32',
        '"memref.store"(%v, %x, %p) : (f32, GM, index) -> ()',
        programs=4,
    )
    assert data[:6].tolist() == [20, 10, 20, 10, 4, 5]


# Whole kernels, as compiled ---------------------------------------------------------------------------------------

MASKED = [
    *("RELU", "EXTREMES", "SELECT", "ROOTS", "ROUNDING", "QUOTIENT", "CASTS", "NARROWING", "COMPARISON", "BITS"),
    *("POSITIONS", "NUMBERS", "WHOLE_NUMBERS", "STANDARDISE", "PERSISTENT_WHILE", "HALVING_WHILE", "NESTED_IF"),
    *("SOFTMAX", "ROW_FOLDS", "BROADCASTS", "TRANSPOSED_LOAD", "BLOCK_POINTERS", "LAYER_NORM", "ONLINE_LOG_SUM"),
    *("HALVES", "BRAIN_HALVES", "LONGS", "BYTES"),
]
WHOLE = ["RUNNING_SUMS", "TRANSPOSE", "RESHAPE"]
"""Kernels of `operation_kernels.py`: those with masks, and those for whole tiles only."""

SIZES = {("N",): {"N": 1000}, ("M", "N"): {"M": 50, "N": 127}}


@pytest.fixture(scope="module")
def interpreter():
    worker = Worker("tilewise.benchmarks.model.interpreter_worker:outputs", env={"TRITON_INTERPRET": "1"})
    worker.start()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def user(kernel_file, target):
    def load(name, dims=None):
        spec = registry.load(f"{kernel_file}:{name}")
        problem = Problem(spec.name, dims or SIZES[spec.dims], spec.dtypes[0])
        return spec, problem, dict(spec.default(problem, target))

    return load


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", [*MASKED, *WHOLE])
def test_the_compiled_program_computes_what_tritons_interpreter_does(name, user, target, cache_folder, interpreter):
    import torch

    spec, problem, config = user(name, {"M": 48, "N": 128} if name in WHOLE else None)
    arguments = Arguments(spec, problem)
    tensors = arguments.bind(config)
    arguments.poison()
    functions = compile_config(spec, problem, config, target, cache_folder)
    execute(spec, problem, config, functions, tensors, target.on_chip_bytes)

    wanted = interpreter.call(spec.origin, problem, config, timeout=60.0)
    verdict = compare(arguments.outputs, {key: torch.from_numpy(values) for key, values in wanted.items()})
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize("name", ["STRIDED", "STRIDED_BY_SIZE", "GATHER", "SCATTER", "RUNNING_SUMS"])
def test_reading_or_writing_beyond_a_buffer_is_found_where_a_kernel_has_no_mask(name, user, target, cache_folder):
    spec, problem, config = user(name)
    arguments = Arguments(spec, problem)
    functions = compile_config(spec, problem, config, target, cache_folder)
    verdict = judge(spec, problem, config, functions, arguments, target.on_chip_bytes)
    assert not verdict.agreed
    assert " uses element " in verdict.reason


KERNELS = [
    ("row_reduce", {"M": 61, "N": 600}, "float16", {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 256}),
    ("row_reduce", {"M": 61, "N": 600}, "bfloat16", {"BLOCK_SIZE_M": 8, "SUB_BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 64}),
]


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("name", "dims", "dtype", "tile"), KERNELS)
@pytest.mark.parametrize("multibuffer", [True, False])
def test_16_bit_inputs_with_tails_agree_with_float64(name, dims, dtype, tile, multibuffer, target, cache_folder):
    spec, problem, config = registry.load(name), Problem(name, dims, dtype), tile | {"multibuffer": multibuffer}
    functions = compile_config(spec, problem, config, target, cache_folder)
    verdict = judge(spec, problem, config, functions, Arguments(spec, problem), target.on_chip_bytes)
    assert verdict.agreed, verdict.reason


# Places of transfers ----------------------------------------------------------------------------------------------

TRANSFER = Op("hivm.hir.load", (), (), {}, (), (), (), 5)


def at(base, *sizes):
    return View(base, 0, 0, sizes, (1,) * len(sizes), "f32")


@pytest.mark.parametrize(
    ("outside", "inside"), [(at(0, 4, 8), at(-1, 4, 8)), (at(3, 4, 1, 8), at(-1, 1, 4, 8)), (at(3), at(-1, 1))]
)
def test_a_transfer_joins_equal_shapes_apart_from_axes_of_one(outside, inside):
    require_transfer(outside, inside, TRANSFER)


@pytest.mark.parametrize(
    ("outside", "inside", "message"),
    [
        (at(-1, 4), at(-1, 4), r"load \(operation 5\) uses on-chip memory as if it were global"),
        (at(0, 4), at(0, 4), r"load \(operation 5\) uses global memory as if it were on chip"),
        (at(3, 4), at(3, 4), "uses global memory as if it were on chip"),
        (at(3, 4), at(-1, 5), r"memory of shapes \(4,\) and \(5,\), which differ"),
        (at(3, 4, 2), at(-1, 2, 4), "which differ"),
        (at(3, 4, 2), at(-1, 4), "which differ"),
    ],
)
def test_other_transfers_are_faults(outside, inside, message):
    with pytest.raises(Fault, match=message):
        require_transfer(outside, inside, TRANSFER)


def test_a_number_stored_to_global_memory_and_overwritten_by_a_transfer_is_a_race(run):
    """The scalar unit's store is the first operation of the program, and may still be in its cache."""
    lines = ('%one = "arith.constant"() <{value = 1.0 : f32}> : () -> f32',)
    stored = '"memref.store"(%one, %x, %c0) : (f32, GM, index) -> ()'
    with pytest.raises(Race, match=r"store .* on MTE3 writes elements of x_ptr that memref\.store .* on S wrote"):
        run(*lines, stored, "store")
    assert np.isnan(run(*lines, stored, "set S MTE3 0", "wait S MTE3 0", "store")).all()


@pytest.mark.parametrize(("on_chip", "buffers", "needed"), [(64, 1, 64), (4096, 33, 64), (63, 33, 64)])
def test_a_program_that_needs_more_memory_than_there_is_is_refused(on_chip, buffers, needed):
    """A program takes whole blocks of 32 bytes, and at least one."""
    function = planned("mine", buffers)
    if needed > on_chip:
        with pytest.raises(OutOfBounds, match=f"mine needs {needed} bytes of on-chip memory, which has {on_chip}"):
            _layout(function, {"ub": on_chip})
    else:
        assert _layout(function, {"ub": on_chip}).size == -(-buffers // 32) * 32
    assert _layout(planned("none", 0), {"ub": on_chip}).size == 32


def planned(name, size):
    return SimpleNamespace(name=name, core="vector", planned_bytes=lambda space: size)


@pytest.mark.parametrize(
    ("program_bytes", "programs"),
    [(1, 1024), (12 << 10, 1024), ((12 << 10) + 1, 1023), (12 << 20, 1), (8 << 20, 1), (6 << 20, 2), (13 << 20, 1)],
)
def test_as_many_programs_run_side_by_side_as_have_room_in_12_mib_and_at_most_1024(program_bytes, programs):
    assert side_by_side(program_bytes) == programs
