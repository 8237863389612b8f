"""Compiled programs of cube cores give the products of float64; with a mistake, or a flag less, they are refused."""

import math
import random
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from places import HELPERS

from tilewise.benchmarks.model.mutations import compile_case, edited, try_change
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor import cube_ops
from tilewise.tuner.devices.ascend_model.executor.global_memory import GlobalMemory
from tilewise.tuner.devices.ascend_model.executor.groups import Group
from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import Fault, Layout, OnChip, View
from tilewise.tuner.devices.ascend_model.executor.verification import judge, verify_compiled
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

TILES = [(16, 16, 32), (64, 128, 64), (128, 64, 32), (32, 256, 64)]
ODD = {"M": 75, "N": 133, "K": 101}
EVENTS = ("EVENT_ID0", "EVENT_ID1", "EVENT_ID2", "EVENT_ID3", "EVENT_ID4", "EVENT_ID5")


def gemm(m, n, k, **more):
    config = {"VARIANT": "masked", "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 1, "SPLIT_K": 1}
    return config | {"PROGRAMS": 0, "multibuffer": True} | more


@pytest.fixture(scope="module")
def verdict(target, cache_folder):
    def verify(name, dims, dtype, config, **flags):
        spec = registry.load(name if name == "gemm" else f"{HELPERS / 'cube_kernels.py'}:{name}")
        problem = Problem(spec.name, dims, dtype, flags)
        return verify_compiled(spec, problem, config, target, cache_folder)

    return verify


@pytest.mark.in_part(4)
@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_a_compiled_product_agrees_with_float64_at_an_odd_size(verdict, dtype, column_major):
    flags = {"column_major": True} if column_major else {}
    found = verdict("gemm", ODD, dtype, gemm(*TILES[1]), **flags)
    assert found.agreed, found.reason


@pytest.mark.in_part(2)
@pytest.mark.parametrize("tile", TILES)
def test_so_it_does_with_tiles_of_any_form(verdict, tile):
    found = verdict("gemm", ODD, "float16", gemm(*tile, GROUP_M=2))
    assert found.agreed, found.reason


def test_programs_that_take_several_tiles_agree(verdict, target):
    found = verdict("gemm", {"M": 300, "N": 290, "K": 70}, "bfloat16", gemm(32, 64, 32, PROGRAMS=target.matrix_cores))
    assert found.agreed, found.reason


def test_a_single_element_is_a_product_too(verdict):
    found = verdict("gemm", {"M": 1, "N": 1, "K": 1}, "float32", gemm(16, 16, 16))
    assert found.agreed, found.reason


def test_a_depth_that_l0_holds_in_parts_only_is_added_up(verdict):
    found = verdict("gemm", {"M": 130, "N": 128, "K": 600}, "float32", gemm(128, 128, 256))
    assert found.agreed, found.reason


BATCH = {"BATCH": 3, "M": 75, "N": 70, "K": 101}
SQUARE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("name", ["BATCHED", "TRANSPOSED_A"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_batches_and_a_transposed_left_operand_agree(verdict, name, dtype):
    found = verdict(name, BATCH, dtype, SQUARE)
    assert found.agreed, found.reason


@pytest.mark.parametrize("name", ["WITHOUT_TAIL", "WITHOUT_ORIENTATION"])
def test_a_product_with_one_mistake_is_refused(verdict, name):
    found = verdict(name, BATCH, "float16", SQUARE)
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS)


# Flags --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case(target, cache_folder):
    spec = registry.load("gemm")
    config = gemm(32, 64, 32, PROGRAMS=target.matrix_cores)
    return compile_case(spec, Problem("gemm", {"M": 200, "N": 400, "K": 70}, "float16"), config, target, cache_folder)


def renumbered(op, function):
    """Yield the operation with another event: a flag's own, or one of those that a product is given."""
    if "static_event_id" in op.attributes:
        for event in EVENTS:
            if event != op.attributes["static_event_id"]:
                yield edited(function, op, [replace(op, attributes={**op.attributes, "static_event_id": event})])
    elif op.name == "hivm.hir.mmadL1":
        first = sum(op.attributes["operandSegmentSizes"][:7])
        for at in range(4):
            others = [op.operands[first + other] for other in range(4) if other != at]
            for number in others:
                operands = (*op.operands[: first + at], number, *op.operands[first + at + 1 :])
                yield edited(function, op, [replace(op, operands=operands)])


def changes(function):
    """Yield the function with each flag and barrier dropped, and with each flag renumbered."""
    for op in function.body.walk():
        if op.name in ("hivm.hir.set_flag", "hivm.hir.wait_flag", "hivm.hir.pipe_barrier"):
            yield f"{op.number} dropped", edited(function, op, [])
        for changed in renumbered(op, function):
            yield f"{op.number} renumbered", changed


def test_a_product_that_starts_its_sum_anew_in_each_trip_is_refused(case, target):
    (function,) = case.functions
    (product,) = (op for op in function.body.walk() if op.name == "hivm.hir.mmadL1")
    always = Op("arith.constant", (), (function.values,), {"value": 1}, (), ("i1",), (), product.number)
    anew = replace(product, operands=(*product.operands[:2], function.values, *product.operands[3:]))
    found = try_change(
        case, "sum", "", (edited(function, product, [always, anew], 1),), on_chip_bytes=target.on_chip_bytes
    )
    assert found.result_changed
    assert "of the RMS" in found.report


def test_flags_left_out_or_misnumbered_are_found(case, target):
    (function,) = case.functions
    found = [
        try_change(case, "flag", change, (changed,), on_chip_bytes=target.on_chip_bytes)
        for change, changed in random.Random(1).sample(list(changes(function)), 8)
    ]
    counting = [each for each in found if each.counts]
    assert len(counting) >= 4
    assert [each.change for each in counting if not each.report] == []


def test_a_release_of_l1_that_comes_too_early_is_a_race_on_named_bytes(case, target):
    (function,) = case.functions
    loads = [op for op in function.body.walk() if op.name == "hivm.hir.wait_flag" and op.operands]
    found = try_change(case, "flag", "", (edited(function, loads[0], []),), on_chip_bytes=target.on_chip_bytes)
    assert "of L1" in found.report or "never waited for" in found.report


# Forms that the compiler has not been seen to make ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attributes", "words"),
    [
        ("nd2nz", {"init_out_buffer": True}, "does not support nd2nz .* with an initial value"),
        ("nd2nz", {"odd": 1}, "does not support nd2nz .* with odd"),
        ("fixpipe", {"dma_mode": "nz2nz"}, "does not support fixpipe .* with dma_mode nz2nz"),
        ("fixpipe", {"pre_quant": "odd"}, "does not support fixpipe .* with pre_quant odd"),
        ("mmadL1", {"odd": 1, "other": 2}, "does not support hivm.hir.mmadL1 with odd, other"),
    ],
)
def test_an_unknown_form_is_named_and_no_wrong_result(case, target, name, attributes, words):
    (function,) = case.functions
    op = next(op for op in function.body.walk() if op.name == f"hivm.hir.{name}")
    other = edited(function, op, [replace(op, attributes={**op.attributes, **attributes})])
    found = judge(case.spec, case.problem, case.config, (other,), case.arguments, target.on_chip_bytes)
    assert (found.agreed, found.status) == (False, Status.UNMODELLED)
    assert re.search(words, found.reason), found.reason


def test_sums_that_are_stored_without_being_rounded_are_refused(case, target):
    (function,) = case.functions
    (op,) = (op for op in function.body.walk() if op.name == "hivm.hir.fixpipe")
    kept = {name: value for name, value in op.attributes.items() if name != "pre_quant"}
    other = edited(function, op, [replace(op, attributes=kept)])
    found = judge(case.spec, case.problem, case.config, (other,), case.arguments, target.on_chip_bytes)
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS)
    assert "stores f32 as f16 with pre_quant None" in found.reason


@pytest.mark.parametrize(("columns", "refused"), [(64, False), (63, True), (80, False)])
def test_a_bias_has_a_number_for_each_column_of_the_sums(columns, refused):
    """Four fractals of 16 columns; the bias is in L1."""
    op = Op("hivm.hir.mmadL1", (), (), {}, (), (), (), 7)
    sums = View(-1, 0, 0, (4, 2, 16, 16), (512, 256, 16, 1), "f32")
    bias = View(-1, 0, 0, (columns,), (1,), "f32")
    product = SimpleNamespace(bias=0)
    layout = Layout({"cbuf": 320, "cc": 8192})
    if refused:
        with pytest.raises(Fault, match=r"^mmadL1 \(operation 7\) adds a bias of 63 columns to 64$"):
            cube_ops._bias(layout, [bias], product, sums, op)
    else:
        assert cube_ops._bias(layout, [bias], product, sums, op) is bias
    assert cube_ops._bias(layout, [bias], SimpleNamespace(bias=None), sums, op) is None
    with pytest.raises(Fault, match="uses bytes 0 to 324 of L1, where 320 are planned"):
        cube_ops._bias(layout, [replace(bias, sizes=(81,))], product, sums, op)


class Cube:
    """A cube core with one program: its on-chip memories are full of ones, its global buffer of 4096 of zeros."""

    def __init__(self):
        self.layout = Layout({"cbuf": 1 << 16, "ca": 1 << 16, "cb": 1 << 16, "cc": 1 << 17})
        self.data = np.zeros(4096, np.float16)
        self.memory = GlobalMemory({0: self.data}, ["x"], [0], 0xFF)
        self.chip, self.order = OnChip(1, self.layout.size), Order(self.layout.size, self.layout.spot)

    def tile(self, space, sizes, dtype="f16", at=0):
        strides = tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
        view = View(-1, self.layout.starts[space] + at, 0, sizes, strides, dtype)
        self.chip.write(view, np.ones(sizes), Op("fill", (), (), {}, (), ()))
        return view

    def outside(self, *sizes, on_chip=False):
        strides = tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
        return View(-1 if on_chip else 0, 0, 0, sizes, strides, "f16")

    def run(self, name, values, segments, **attributes):
        """Run an operation of these values, of which each has the number of its place."""
        kinds = [MemRef(v.sizes, v.strides, v.dtype, "any") if isinstance(v, View) else "i64" for v in values]
        numbers = tuple(range(sum(segments)))
        attributes["operandSegmentSizes"] = segments
        op = Op(f"hivm.hir.{name}", numbers, (), attributes, tuple(kinds), (), (), 7)
        cube_ops.CUBE_STEPS[op.name](self, op)(Group(np.arange(1), [*values], self.chip, self.order, []))

    def read(self, view):
        return self.chip.read(view, Op("read", (), (), {}, (), ()))[0]

    def to_fractals(self, outside, inside):
        self.run("nd2nz", [outside, inside], (1, 1))

    def to_rows(self, inside, outside):
        self.run("fixpipe", [inside, outside], (1, 1), dma_mode="nz2nd", pre_quant="F322F16")


@pytest.fixture
def cube():
    return Cube()


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [((2, 2, 16, 16), True), ((1, 2, 16, 16), False), ((2, 1, 16, 16), False), ((2, 2, 8, 16), False)],
)
def test_rows_are_copied_to_as_many_fractals_as_they_fill(cube, sizes, fits):
    """20 rows of 30 numbers fill two times two fractals of 16 x 16; those beyond the last row stay."""
    outside, inside = cube.outside(20, 30), cube.tile("cbuf", sizes)
    if fits:
        cube.to_fractals(outside, inside)
        assert int(cube.read(inside).sum()) == (32 - 20) * 32
    else:
        shapes = re.escape(f"(20, 30) and {sizes}")
        with pytest.raises(Fault, match=rf"^nd2nz \(operation 7\) is between memory of shapes {shapes}, which differ$"):
            cube.to_fractals(outside, inside)


@pytest.mark.parametrize(("sizes", "fits"), [((2, 2, 16, 16), True), ((1, 2, 16, 16), False), ((2, 1, 16, 16), False)])
def test_sums_are_stored_in_as_many_rows_as_their_fractals_have(cube, sizes, fits):
    inside, outside = cube.tile("cc", sizes, "f32"), cube.outside(20, 30)
    if fits:
        cube.to_rows(inside, outside)
        assert cube.data.tolist() == [1] * 600 + [0] * 3496
    else:
        shapes = re.escape(f"{sizes} and (20, 30)")
        with pytest.raises(
            Fault, match=rf"^fixpipe \(operation 7\) is between memory of shapes {shapes}, which differ$"
        ):
            cube.to_rows(inside, outside)


@pytest.mark.parametrize("empty", [(0, 30), (20, 0)])
def test_a_transfer_of_nothing_uses_no_memory(cube, empty):
    """Its tile on chip may have any shape."""
    cube.to_fractals(cube.outside(*empty), cube.tile("cbuf", (2, 2, 16, 16)))
    cube.to_rows(cube.tile("cc", (2, 2, 16, 16), "f32"), cube.outside(*empty))
    assert cube.order.now == 0 and not cube.data.any()


def test_rows_lie_in_global_memory_and_have_two_dimensions(cube):
    inside = cube.tile("cbuf", (2, 2, 16, 16))
    with pytest.raises(Fault, match=r"^nd2nz \(operation 7\) uses on-chip memory as if it were global$"):
        cube.to_fractals(cube.outside(20, 30, on_chip=True), inside)
    with pytest.raises(UnknownOperation, match=r"^the model does not support nd2nz \(operation 7\) of 3 dimensions$"):
        cube.to_fractals(cube.outside(1, 20, 30), inside)


@pytest.mark.parametrize(
    ("depth", "cols", "across", "down", "refused"),
    [
        (32, 48, 3, 2, ""),
        (20, 40, 3, 1, ""),
        (33, 48, 3, 2, "32 x 33 x 48"),
        (32, 49, 4, 2, "32 x 32 x 49"),  # B has 48 columns
        (32, 33, 2, 2, "32 x 32 x 33"),  # the sums have 32
        (32, 48, 3, 3, "48 x 32 x 48"),  # A has 32 rows
    ],
)
def test_a_product_is_no_larger_than_its_operands_and_its_sums(cube, depth, cols, across, down, refused):
    """A has 32 rows and B 48 columns, both a depth of 32."""
    a, b = cube.tile("cbuf", (2, 2, 16, 16)), cube.tile("cbuf", (3, 2, 16, 16), at=1 << 15)
    out = cube.tile("cc", (across, down, 16, 16), "f32")
    given = ([a, b, True, depth, cols, out], (1, 1, 1, 0, 1, 1, 1, 0, 0, 0))
    if refused:
        with pytest.raises(Fault, match=rf"^mmadL1 \(operation 7\) multiplies {refused} elements of smaller tiles$"):
            cube.run("mmadL1", *given)
    else:
        cube.run("mmadL1", *given)
        assert np.unique(cube.read(out)).tolist() == [32]  # to the end of the last fractal, as on the chip


@pytest.mark.parametrize(
    ("segments", "shape", "words"),
    [
        ((1, 1, 1, 0, 1, 1, 1, 0, 1, 0), (2, 2, 16, 16), "with these operands"),  # a flag of the unit
        ((1, 1, 1, 0, 1, 1, 1, 1, 0, 0), (2, 2, 16, 16), "with these operands"),  # one event of seven
        ((1, 1, 1, 0, 1, 1, 1, 0, 0, 0), (32, 32), "of tiles that do not lie in fractals"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 5])
def test_a_product_of_a_form_that_was_never_seen_is_unknown(cube, segments, shape, words, at):
    values = [*(cube.tile("cbuf", (2, 2, 16, 16)) for _ in range(2)), True, 32, 32, cube.tile("cc", (2, 2, 16, 16)), 0]
    values[at] = cube.tile("cc", shape)
    with pytest.raises(UnknownOperation, match=rf"^the model does not support hivm\.hir\.mmadL1 {words}$"):
        cube.run("mmadL1", values, segments)
