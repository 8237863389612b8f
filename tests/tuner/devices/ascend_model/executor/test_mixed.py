"""Kernels of a cube core and two vector cores agree with float64; with a flag less, or too early, they are refused."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tilewise.benchmarks.model.mutations import edited
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.hazards import FlagFault, Race
from tilewise.tuner.devices.ascend_model.executor.mixed import MixedExecutor, executor_of
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, judge, verify_compiled
from tilewise.tuner.devices.ascend_model.ir.hivm import parse
from tilewise.tuner.measure.verify import Arguments

UB = 192 << 10
CROSS = ("hivm.hir.sync_block_set", "hivm.hir.sync_block_wait")
ODD = {"M": 75, "N": 133, "K": 101}
TILE = {"VARIANT": "masked", "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1, "SPLIT_K": 1, "PROGRAMS": 0}


@pytest.fixture(scope="module")
def verdict(target, cache_folder):
    def verify(name, dims, dtype, config, **flags):
        spec = registry.load(name)
        return verify_compiled(spec, Problem(name, dims, dtype, flags), config, target, cache_folder)

    return verify


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("dtype", "flags"),
    [
        ("float16", {"bias": True}),
        ("bfloat16", {"activation": "gelu"}),
        ("float32", {"bias": True, "activation": "relu"}),
        ("int8", {"scaled": True, "bias": True}),
        ("float16", {"scaled": True, "activation": "silu", "column_major": True}),
    ],
)
def test_a_product_with_an_epilogue_agrees_at_an_odd_size(verdict, dtype, flags):
    found = verdict("gemm", ODD, dtype, {**TILE, "multibuffer": True}, **flags)
    assert found.agreed, found.reason


@pytest.mark.in_part(1)
@pytest.mark.parametrize(
    ("q", "k", "dtype", "flags"),
    [(64, 128, "bfloat16", {}), (75, 133, "float16", {}), (75, 133, "float16", {"causal": True})],
)
def test_attention_agrees_at_odd_sizes(verdict, q, k, dtype, flags):
    dims = {"B": 1, "H": 2, "HKV": 1, "Q": q, "K": k, "D": 64}
    found = verdict("flash_attention", dims, dtype, {"VARIANT": "masked", "BLOCK_M": 32, "BLOCK_N": 64}, **flags)
    assert found.agreed, found.reason


@pytest.mark.in_part(1)
@pytest.mark.parametrize("slots", [0, 2])
def test_attention_whose_trips_overlap_agrees_with_any_slots_of_workspace(verdict, slots):
    dims = {"B": 1, "H": 2, "HKV": 2, "Q": 75, "K": 512, "D": 64}
    config = {"VARIANT": "masked", "BLOCK_M": 64, "BLOCK_N": 128, "set_workspace_multibuffer": slots}
    found = verdict("flash_attention", dims, "bfloat16", config)
    assert found.agreed, found.reason


# Flags between cores ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def epilogue(target, cache_folder):
    """A product with a bias on few programs, each of which has more tiles than workspace has slots."""
    spec = registry.load("gemm")
    config = {**TILE, "multibuffer": True, "PROGRAMS": 2}
    problem = Problem("gemm", {"M": 100, "N": 200, "K": 40}, "float16", {"bias": True})
    (function,) = compile_config(spec, problem, config, target, cache_folder)
    arguments = Arguments(spec, problem)
    return function, lambda changed: judge(spec, problem, config, (changed,), arguments, UB)


def test_the_whole_program_agrees(epilogue):
    function, verdict_on = epilogue
    assert verdict_on(function).agreed


def changes(function):
    """Yield the function with each flag between cores dropped, and with another number."""
    for op in function.walk():
        if op.name in CROSS:
            yield edited(function, op, [])
            if "static_flag_id" in op.attributes:
                other = {**op.attributes, "static_flag_id": (op.attributes["static_flag_id"] + 1) % 5}
                yield edited(function, op, [replace(op, attributes=other)])


def test_every_flag_between_cores_that_is_left_out_or_misnumbered_is_found(epilogue):
    function, verdict_on = epilogue
    changed = random.Random(1).sample(list(changes(function)), 12)
    assert [function for function in changed if verdict_on(function).agreed] == []


@pytest.mark.parametrize(
    ("transfer", "pipe", "words"),
    [
        ("hivm.hir.fixpipe", "PIPE_FIX", "reads elements of workspace"),
        ("hivm.hir.load", "PIPE_MTE2", "writes elements of workspace that load"),
    ],
)
def test_a_flag_that_is_set_before_the_transfer_that_it_stands_for_is_a_race(epilogue, transfer, pipe, words):
    function, verdict_on = epilogue
    moved = next(op for op in function.walk() if op.name == transfer)
    flags = [op for op in function.walk() if op.name == CROSS[0] and op.attributes["tpipe"] == pipe]
    late = next(op for op in flags if op.number > moved.number)
    early = edited(function, moved, [late, moved])
    *_, second = (op for op in early.walk() if op.number == late.number)
    found = verdict_on(edited(early, second, []))
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS)
    assert words in found.reason


# Programs by hand ---------------------------------------------------------------------------------------------------

FUNCTION = """
  "func.func"() <{function_type = () -> (), sym_name = "NAME"}> ({
  ^bb0(%ffts: i64, %lock: memref<?xi8, GM>, %space: memref<?xi8, GM>, %x: memref<?xf32, GM>,
       %gx: i32, %gy: i32, %gz: i32):
    %zero = "arith.constant"() <{value = 0 : i64}> : () -> i64
    %c0 = "arith.constant"() <{value = 0 : index}> : () -> index
    %c1 = "arith.constant"() <{value = 1 : i64}> : () -> i64
    %one = "arith.constant"() <{value = 1.0 : f32}> : () -> f32
    %program = "hivm.hir.get_block_idx"() : () -> i64
    %slot = "memref_ext.alloc_workspace"(%space, %c0) <{operandSegmentSizes = array<i32: 1, 0, 1>}>
      : (memref<?xi8, GM>, index) -> memref<8xf32, GM>
    %tile = "hivm.hir.pointer_cast"(%zero) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> memref<8xf32, ONCHIP>
    BODY
    "func.return"() : () -> ()
  }) {hacc.entry, hivm.func_core_type = #hivm.func_core_type<CORE>} : () -> ()
"""


def flag(verb, core, pipe, number):
    pipes = f"pipe = #hivm.pipe<PIPE_S>, tpipe = #hivm.pipe<PIPE_{pipe}>"
    more = f"static_flag_id = {number} : i64, tcore_type = #hivm.tcore_type<{core}>"
    return f'"hivm.hir.sync_block_{verb}"() <{{{pipes}, {more}}}> : () -> ()'


def by_hand(cube, vector, dtype="f32"):
    """Return a mixed kernel of these lines for each kind of core, on tensors of this type."""
    text = ""
    for name, core, space, lines in (("aic", "AIC", "cbuf", cube), ("aiv", "AIV", "ub", vector)):
        function = FUNCTION.replace("NAME", name).replace("CORE", core).replace("BODY", "\n".join(lines))
        text += function.replace("GM", "#hivm.address_space<gm>").replace("ONCHIP", f"#hivm.address_space<{space}>")
    return parse(f'"builtin.module"() ({{\n{text}}}) : () -> ()'.replace("xf32", f"x{dtype}"))


STORE = '"memref.store"(%one, %slot, %c0) : (f32, memref<8xf32, GM>, index) -> ()'.replace(
    "GM", "#hivm.address_space<gm>"
)
LOAD = STORE.replace('"memref.store"(%one, %slot, %c0) : (f32, ', '%read = "memref.load"(%slot, %c0) : (').replace(
    "-> ()", "-> f32"
)


def run(function, programs=1):
    executor = executor_of(function, UB)
    executor.run({"x_ptr": np.zeros(64, np.float32)}, [], (programs,))
    return executor


def test_one_core_reads_what_another_stored_before_it_set_a_flag():
    executor = run(by_hand([flag("wait", "CUBE", "S", 0), LOAD], [STORE, flag("set", "VECTOR", "S", 0)]))
    assert isinstance(executor, MixedExecutor)


def test_without_the_flag_it_is_a_race_that_names_both_cores():
    with pytest.raises(Race, match=r"store .* of the vector core 0 writes .* memref.load .* of the cube core read"):
        run(by_hand([LOAD], [STORE]))


def test_a_flag_counts_for_the_cube_core_once_both_vector_cores_have_set_it():
    only_one = [
        '%sub = "hivm.hir.get_sub_block_idx"() : () -> i64',
        '%first = "arith.cmpi"(%sub, %zero) <{predicate = 0 : i64}> : (i64, i64) -> i1',
        f'"scf.if"(%first) ({{\n{flag("set", "VECTOR", "MTE3", 0)}\n"scf.yield"() : () -> ()\n}}, {{\n}}) : (i1) -> ()',
    ]
    with pytest.raises(FlagFault, match=r"deadlock: the cube core waits at .* for flag 0"):
        run(by_hand([flag("wait", "CUBE", "MTE3", 0)], only_one))


def test_a_flag_that_stays_set_is_an_error():
    with pytest.raises(FlagFault, match=r"flag 3 of the cube core is set at .* and never waited for"):
        run(by_hand([flag("set", "CUBE", "FIX", 3)], []))


def test_a_flag_is_counted_in_four_bits():
    with pytest.raises(FlagFault, match="sets flag 3 of the cube core 16 times"):
        run(by_hand([flag("set", "CUBE", "FIX", 3)] * 16, [flag("wait", "VECTOR", "FIX", 3)] * 16))


def test_programs_that_one_core_splits_and_the_other_does_not_are_executed_alone():
    """The cube core takes program 0 first and waits for its flag; the vector cores wait for both programs' flags."""
    both = "\n".join([flag("set", "CUBE", "FIX", 1), flag("wait", "CUBE", "MTE3", 0), '"scf.yield"() : () -> ()'])
    cube = [
        '%first = "arith.cmpi"(%program, %zero) <{predicate = 0 : i64}> : (i64, i64) -> i1',
        f'"scf.if"(%first) ({{\n{both}\n}}, {{\n{both}\n}}) : (i1) -> ()',
    ]
    run(by_hand(cube, [flag("wait", "VECTOR", "FIX", 1), flag("set", "VECTOR", "MTE3", 0)]), programs=3)


def test_the_two_vector_cores_may_store_the_same_value_but_not_different_ones():
    same = [STORE, flag("set", "VECTOR", "S", 0)]
    run(by_hand([flag("wait", "CUBE", "S", 0)], same))
    different = [
        '%sub = "hivm.hir.get_sub_block_idx"() : () -> i64',
        '%value = "arith.sitofp"(%sub) : (i64) -> f32',
        STORE.replace("%one", "%value"),
        flag("set", "VECTOR", "S", 0),
    ]
    with pytest.raises(Race, match="vector core 1 writes elements of workspace"):
        run(by_hand([flag("wait", "CUBE", "S", 0)], different))


def part_of_x(name, start, size=8):
    """Return the line for some elements of x, and their type."""
    kind = f"memref<{size}xf32, strided<[1], offset: {start}>, GM>"
    shape = f"static_offsets = array<i64: {start}>, static_sizes = array<i64: {size}>, static_strides = array<i64: 1>"
    cast = f'"memref.reinterpret_cast"(%x) <{{operandSegmentSizes = array<i32: 1, 0, 0, 0>, {shape}}}>'
    return f"{name} = {cast} : (memref<?xf32, GM>) -> {kind}", kind


def updated(*stores, loaded=8, dtype="f32", numpy_dtype=np.float32):
    """Execute a kernel of which both vector cores load x[0:loaded] into a tile of eight elements, and then store that:
    `(core, start)` by one of them."""
    (line, kind), into = part_of_x("%old", 0, loaded), f"memref<{loaded}xf32, ONCHIP>"
    pipes = (
        "set_pipe = #hivm.pipe<PIPE_MTE2>, static_event_id = #hivm.event<EVENT_ID0>, wait_pipe = #hivm.pipe<PIPE_MTE3>"
    )
    segments = "operandSegmentSizes = array<i32: 1, 1, 0, 0, 0, 0>"
    lines = [
        '%sub = "hivm.hir.get_sub_block_idx"() : () -> i64',
        line,
        f'%into = "hivm.hir.pointer_cast"(%zero) <{{operandSegmentSizes = array<i32: 1, 0>}}> : (i64) -> {into}',
        f'"hivm.hir.load"(%old, %into) <{{{segments}}}> : ({kind}, {into}) -> ()',
        *(f'"hivm.hir.{verb}_flag"() <{{{pipes}}}> : () -> ()' for verb in ("set", "wait")),
    ]
    for number, (core, start) in enumerate(stores):
        line, kind = part_of_x(f"%new{number}", start)
        store = (
            f'"hivm.hir.store"(%tile, %new{number}) : (memref<8xf32, ONCHIP>, {kind}) -> ()\n"scf.yield"() : () -> ()'
        )
        own = f'"arith.constant"() <{{value = {core} : i64}}>'
        lines += [
            line,
            f"%core{number} = {own} : () -> i64",
            f'%own{number} = "arith.cmpi"(%sub, %core{number}) <{{predicate = 0 : i64}}> : (i64, i64) -> i1',
            f'"scf.if"(%own{number}) ({{\n{store}\n}}, {{\n}}) : (i1) -> ()',
        ]
    x = np.arange(64, dtype=numpy_dtype)
    executor_of(by_hand([], lines, dtype), UB).run({"x_ptr": x}, [], (1,))
    return x


def test_what_the_second_vector_core_loads_beside_the_first_ones_store_is_poison():
    assert (updated((0, 0)) == np.arange(64)).all()
    assert np.isnan(updated((0, 0), (1, 8))[8:16]).all()  # it matters, so it comes out


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [("f32", np.float32), ("f16", np.float16), ("i32", np.int32), ("i16", np.int16), ("i64", np.int64)],
)
def test_what_a_load_that_is_poison_does_not_fill_of_its_block_is_poison_too(dtype, numpy_dtype):
    first, second = updated((0, 0), (1, 8), loaded=3, dtype=dtype, numpy_dtype=numpy_dtype)[:16].reshape(2, 8)
    assert first[:3].tolist() == [0, 1, 2]
    end = min(8, -(-3 * second.itemsize // 32) * 32 // second.itemsize)
    for poison in (first[3:end], second[:end]):
        assert (np.isnan(poison) if dtype.startswith("f") else poison == -1).all()


def test_a_second_vector_core_that_stores_what_it_read_beside_the_first_one_is_a_race():
    with pytest.raises(Race, match=r"of the vector core 1 .*nothing orders them"):
        updated((0, 0), (1, 0))


def test_what_one_vector_core_loads_of_what_nobody_stores_is_no_race():
    assert (updated((0, 16), (1, 8))[:24] == np.concatenate([np.arange(8)] * 3)).all()


def test_axes_that_a_launch_leaves_out_have_one_program():
    gm = "#hivm.address_space<gm>"
    shape = "static_offsets = array<i64: 0>, static_sizes = array<i64: 3>, static_strides = array<i64: 1>"
    view = f'%view = "memref.reinterpret_cast"(%x) <{{operandSegmentSizes = array<i32: 1, 0, 0, 0>, {shape}}}>'
    sizes = [
        line
        for place, axis in enumerate("xyz")
        for line in (
            f'%at{axis} = "arith.constant"() <{{value = {place} : index}}> : () -> index',
            f'%size{axis} = "arith.sitofp"(%g{axis}) : (i32) -> f32',
            f'"memref.store"(%size{axis}, %view, %at{axis}) : (f32, memref<3xf32, {gm}>, index) -> ()',
        )
    ]
    x = np.zeros(3, np.float32)
    executor_of(by_hand([f"{view} : (memref<?xf32, {gm}>) -> memref<3xf32, {gm}>", *sizes], []), UB).run(
        {"x_ptr": x}, [], (1,)
    )
    assert x.tolist() == [1, 1, 1]
