"""Scheduled code read from MLIR's generic form."""

import math

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC, Block, MemRef, Op, index_plan, kept_dimensions, parse

ENTRY = """
"builtin.module"() ({
  "func.func"() <{function_type = () -> (), sym_name = "helper"}> ({
  ^bb0:
    "func.return"() : () -> ()
  }) {} : () -> ()
  "func.func"() <{function_type = () -> (), sym_name = "kernel"}> ({
  ^bb0(%ffts: i64, %x: memref<?xf32, #hivm.address_space<gm>>, %n: i32):
    %address = "arith.constant"() <{value = 64 : i64}> : () -> i64
    %other = "arith.constant"() <{value = 4096 : i64}> : () -> i64
    %zero = "arith.constant"() <{value = -2.5 : f32}> : () -> f32
    %a, %b = "test.pair"(%n, %address) <{operandSegmentSizes = array<i32: 1, 0, 1>,
      flags = array<i64: 1, -9223372036854775808>, names = ["p", "q"], groups = [[0, 1], [2]], marked,
      pipe = #hivm.pipe<PIPE_MTE2>, kind = #hivm.atomic_kind<add>, count = 2 : i32}>
      : (i32, i64) -> (i32, memref<4x?xf16, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>)
    BODY
    "scf.if"(%a) ({
      %inner = "arith.addi"(%n, %a) : (i32, i32) -> i32
      "scf.yield"() : () -> ()
    }, {
    }) : (i32) -> ()
    "func.return"() : () -> ()
  }) {hacc.entry} : () -> ()
}) : () -> ()
"""


def cast(addresses, shape):
    sizes = f"operandSegmentSizes = array<i32: {addresses.count('%')}, 0>"
    kinds = ", ".join(["i64"] * addresses.count("%"))
    result = f"memref<{shape}, #hivm.address_space<ub>>"
    return f'%m{shape} = "hivm.hir.pointer_cast"({addresses}) <{{{sizes}}}> : ({kinds}) -> {result}'


def entry(body=""):
    return parse(ENTRY.replace("BODY", body))


def test_the_entry_function_is_found_among_others():
    function = entry()
    assert function.name == "kernel"
    numbers, kinds = zip(*function.arguments, strict=True)
    assert len(set(numbers)) == 3
    assert kinds == ("i64", MemRef((DYNAMIC,), (1,), "f32", "gm"), "i32")


def test_attributes_are_plain_values():
    (pair,) = [op for op in entry().body.walk() if op.name == "test.pair"]
    assert dict(pair.attributes) == {
        "operandSegmentSizes": (1, 0, 1),
        "flags": (1, DYNAMIC),
        "names": ("p", "q"),
        "groups": ((0, 1), (2,)),
        "pipe": "PIPE_MTE2",
        "kind": "add",
        "marked": True,
        "count": 2,
    }


def test_operands_results_and_types_are_kept_in_order():
    function = entry()
    ops = {op.name: op for op in function.body.walk()}
    pair, addition, branch = ops["test.pair"], ops["arith.addi"], ops["scf.if"]
    n = function.arguments[2][0]
    assert pair.segments() == ((n,), (), (pair.operands[1],))
    assert pair.types == ("i32", "i64")
    assert pair.result_types == ("i32", MemRef((4, DYNAMIC), (DYNAMIC, 1), "f16", "gm"))
    assert addition.operands == (n, pair.results[0])
    assert branch.operands == (pair.results[0],)


def test_regions_are_blocks_and_an_absent_one_is_empty():
    (branch,) = [op for op in entry().body.operations if op.name == "scf.if"]
    taken, other = branch.regions
    assert [op.name for op in taken.operations] == ["arith.addi", "scf.yield"]
    assert other.operations == ()


def test_every_value_has_a_number_of_its_own():
    function = entry()
    numbers = [number for number, _ in function.arguments]
    numbers += [result for op in function.body.walk() for result in op.results]
    assert sorted(numbers) == list(range(function.values))


def test_constants_keep_their_value():
    constants = [op.attributes["value"] for op in entry().body.walk() if op.name == "arith.constant"]
    assert constants == [64, 4096, -2.5]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [("4x8xf32", (8, 1)), ("4x8x2xf32", (16, 2, 1)), ("f32", ()), ("4x?xf32", (DYNAMIC, 1)), ("?x4xf32", (4, 1))],
)
def test_a_memref_without_a_layout_is_contiguous(shape, strides):
    function = entry(f'%m = "test.make"() : () -> memref<{shape}, #hivm.address_space<ub>>')
    (make,) = [op for op in function.body.walk() if op.name == "test.make"]
    assert make.result_types[0].strides == strides


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], 0),
        ([cast("%address", "8xf32")], 64 + 32),
        ([cast("%address", "3x5xf16")], 64 + 30),
        ([cast("%address, %other", "8xf32")], 4096 + 32),
        ([cast("%other", "8xf32"), cast("%address", "2048xf32")], 64 + 8192),
        ([cast("%address", "2048xi1")], 64 + 256),  # the bits of a comparison are packed
        ([cast("%address", "9xi1")], 64 + 2),
    ],
)
def test_on_chip_bytes_reach_to_the_end_of_the_last_buffer(body, expected):
    assert entry("\n".join(body)).planned_bytes("ub") == expected


def test_two_addresses_are_a_double_buffer():
    assert entry(cast("%address, %other", "8xf32")).multi_buffered()
    assert not entry(cast("%address", "8xf32")).multi_buffered()


@pytest.mark.parametrize("tile", [(50, 25, 256), (25, 4, 2048), (25, 5, 2048), (20, 20, 256)])
def test_on_chip_bytes_of_real_code_are_the_largest_address_and_size(tile, row_reduce, problem, rows, compiled):
    function = parse(compiled(row_reduce, problem(1000, 8192), rows(*tile)).code)
    constants = {op.results[0]: op.attributes["value"] for op in function.body.walk() if op.name == "arith.constant"}
    casts = [op for op in function.body.walk() if op.name == "hivm.hir.pointer_cast"]
    ends = [
        constants[address] + math.prod(op.result_types[0].shape) * {"f32": 4, "i1": 1 / 8}[op.result_types[0].dtype]
        for op in casts
        for address in op.operands
    ]
    assert function.planned_bytes("ub") == max(ends) <= 1572864 // 8


def test_a_module_without_an_entry_is_an_error():
    with pytest.raises(ValueError, match="no entry function"):
        parse('"builtin.module"() ({}) : () -> ()')


def test_text_that_is_no_mlir_is_an_error():
    with pytest.raises(ValueError, match="does not parse"):
        parse("module {")


def test_an_unknown_element_type_is_an_error():
    with pytest.raises(ValueError, match="element type f8E4M3FN"):
        _ = MemRef((4,), (1,), "f8E4M3FN", "ub").item_bits


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        *[("f64", 64), ("i64", 64), ("index", 64), ("f32", 32), ("i32", 32)],
        *[("f16", 16), ("bf16", 16), ("i16", 16), ("i8", 8), ("i1", 1)],
    ],
)
def test_elements_have_the_bits_of_their_type(dtype, bits):
    assert MemRef((4,), (1,), dtype, "ub").item_bits == bits


@pytest.mark.parametrize(
    ("sizes", "shape", "kept"),
    [
        ((32, 16, 1), (32, 16), [0, 1]),
        ((1, 32, 1, 16), (32, 16), [1, 3]),
        ((1, 1), (1,), [0]),
        ((4, 1), (), []),
        ((1, 8, 1), (1, 8, 1), [0, 1, 2]),
    ],
)
def test_a_subview_keeps_all_dimensions_but_some_of_size_one(sizes, shape, kept):
    assert kept_dimensions(sizes, shape) == kept


def test_operations_are_numbered_in_the_order_of_the_text_from_one():
    ops = list(entry().body.walk())
    assert [op.number for op in ops] == list(range(1, len(ops) + 1))


def test_only_a_yield_at_its_end_is_what_a_block_yields():
    function = entry()
    (branch,) = [op for op in function.body.operations if op.name == "scf.if"]
    assert function.body.yielded() == branch.regions[0].yielded() == branch.regions[1].yielded() == ()
    yields = Op("scf.yield", (4, 5), (), {}, (), ())
    assert Block((), (yields,)).yielded() == (4, 5)
    assert Block((), (yields, Op("func.return", (4,), (), {}, (), ()))).yielded() == ()


def test_indices_are_known_numbers_or_values():
    static = {"static_offsets": (0, DYNAMIC), "static_sizes": (DYNAMIC, 8), "static_strides": (1, 1)}
    op = Op("memref.subview", (9, 11, 12), (), {"operandSegmentSizes": (1, 1, 1, 0), **static}, (), ())
    assert index_plan(op) == ([(0, -1), (None, 11)], [(None, 12), (8, -1)], [(1, -1), (1, -1)])
