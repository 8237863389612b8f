"""Findings about on-chip memory: what does not fit, lost double buffers, and tiles that masks fill."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.lint.buffers import lost_double_buffers, masked_refills, overflow

L1 = MemRef((64, 128), (128, 1), "f16", "cbuf")
"""A tile of 16 KiB."""

LARGE = MemRef((256, 128), (128, 1), "f16", "cbuf")
GM = MemRef((64, 128), (128, 1), "f16", "gm")
COSTS = SimpleNamespace(
    of=lambda operations: float(sum(op.number for op in operations)),
    hidden_at_most=lambda operations: float(sum(op.number for op in operations)),
)


def op(name, number, operands=(), results=(), types=(), result_types=(), **attributes):
    return Op(name, tuple(operands), tuple(results), attributes, tuple(types), tuple(result_types), (), number)


def code(*operations, loops=("loop",), names=None):
    definitions = {result: each for each in operations for result in each.results}
    return SimpleNamespace(
        walk=lambda: iter(operations),
        loops=loops if callable(loops) else lambda each: list(loops),
        definition=definitions.get,
        root=lambda number: number,
        argument=lambda number: (names or {}).get(number, ""),
        place=lambda each: None if each.number == 99 else f"k.py:{each.number}",
    )


def launch(*, wanted=None, had=None, memory="L1", dropped=("auto-multi-buffer",)):
    compiled = SimpleNamespace(required_bits=wanted, available_bits=had, overflowed=memory, dropped=dropped)
    return SimpleNamespace(compiled=compiled, name="product_kernel", place="k.py:1")


# What does not fit


@pytest.mark.parametrize(
    ("memory", "remedy"),
    [
        ("L0C", "take fewer rows or columns per tile: L0C holds the sums of rows x columns, 4 bytes each"),
        ("L1", "take a smaller depth per trip, or a smaller tile: L1 holds the operands of a trip"),
        ("UB", "take smaller tiles, or go through the same tile in smaller steps"),
        ("L0A", "take smaller tiles"),
    ],
)
def test_what_does_not_fit_is_told_in_kib_with_a_remedy_by_memory(memory, remedy):
    (found,) = overflow(launch(wanted=300 * 8192, had=192 * 8192, memory=memory))
    assert found.message == f"product_kernel needs 300 KiB of {memory}, which has 192 KiB"
    assert (found.rule.id, found.remedy, found.place) == ("on-chip-overflow", remedy, "k.py:1")


@pytest.mark.parametrize(("wanted", "had"), [(None, None), (8192, None), (None, 8192)])
def test_a_launch_that_fits_or_fails_otherwise_is_no_finding(wanted, had):
    assert list(overflow(launch(wanted=wanted, had=had))) == []


# Lost double buffers


def cast(number, result, kind, addresses=(5,)):
    sizes = (len(addresses), 0)
    return op("hivm.hir.pointer_cast", number, addresses, [result], (), [kind], operandSegmentSizes=sizes)


def load(number, buffer, source=1, name="nd2nz"):
    return op(f"hivm.hir.{name}", number, [source, buffer], (), (GM, L1))


def lost(code, on_chip_bytes=196_608, **more):
    return list(lost_double_buffers(code, COSTS, launch(**more), SimpleNamespace(on_chip_bytes=on_chip_bytes)))


SMALL_AND_LARGE = (cast(1, 20, L1), cast(2, 21, LARGE), load(3, 20, 7), load(4, 21, 8))


def test_the_largest_buffers_that_are_loaded_again_are_named_first():
    (found,) = lost(code(*SMALL_AND_LARGE, names={7: "a_ptr"}))
    assert found.message == (
        "two buffers each do not fit the 512 KiB of L1, so the compiler turned double buffering off; loads into "
        "the tile of workspace (64 KiB) on k.py:4, the tile of a_ptr (16 KiB) on k.py:3 wait until the tile before is "
        "used up"
    )
    assert (found.rule.id, found.place, found.cost_us) == ("double-buffering-lost", "k.py:4", 7.0)
    assert found.remedy.startswith("take a smaller depth per trip")


def test_a_load_without_a_line_is_told_at_the_kernel():
    (found,) = lost(code(cast(1, 20, L1), load(99, 20)))
    assert found.place == "k.py:1"


def test_the_unified_buffer_is_as_large_as_the_target_says():
    tile = MemRef((33,), (1,), "f32", "ub")
    (found,) = lost(code(cast(1, 20, tile), load(3, 20, name="load")), 100 * 1024, memory="UB")
    assert "do not fit the 100 KiB of UB" in found.message
    assert "the tile of workspace (0 KiB)" in found.message


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (code(*SMALL_AND_LARGE), {"dropped": ()}),
        (code(*SMALL_AND_LARGE, loops=()), {}),
        (code(*SMALL_AND_LARGE), {"memory": "L0C"}),
        (code(cast(1, 20, L1, addresses=(5, 6)), load(3, 20)), {}),  # it has two addresses
        (code(cast(1, 20, L1), op("hivm.hir.copy", 3, [1, 20])), {}),
        (code(load(3, 20)), {}),
        (code(op("memref_ext.alloc_workspace", 1, [5], [20]), load(3, 20)), {}),
    ],
)
def test_other_loads_lost_no_second_buffer(made, more):
    assert lost(made, **more) == []


# Tiles that masks fill


def fill(number, buffer, kind="f16"):
    return op("hivm.hir.vbrc", number, [9, buffer], (), (kind, L1))


def test_a_tile_that_is_filled_before_its_masked_load_is_told_once_a_line():
    """Of two fills, the load on each line is the next one into the same buffer."""
    found = list(
        masked_refills(code(fill(1, 20), fill(2, 21), load(3, 20, 7), load(4, 21, 8), names={7: "a_ptr"}), COSTS)
    )
    assert [(each.place, each.cost_us) for each in found] == [("k.py:3", 1.0), ("k.py:4", 2.0)]
    assert found[0].message == "the masked load of a_ptr first fills its tile in L1, then loads over it"
    assert found[0].rule.id == "masked-refill"
    assert found[0].remedy.startswith("choose tiles that divide the sizes")


def test_fills_of_one_load_cost_together():
    (found,) = masked_refills(code(fill(1, 20), fill(2, 20), load(3, 20, 7)), COSTS)
    assert (found.place, found.cost_us) == ("k.py:3", 3.0)


@pytest.mark.parametrize(
    "made",
    [
        code(load(1, 20), fill(3, 20)),  # the load comes first
        code(fill(1, 20), load(3, 21)),
        code(fill(1, 20), op("hivm.hir.vadd", 3, [20, 20])),
        code(fill(1, 20, GM), load(3, 20)),  # it copies a row to many
        code(fill(1, 20), load(3, 20), loops=lambda each: [each.number]),
        code(op("hivm.hir.vexp", 1, [9, 20], (), ("f16", L1)), load(3, 20)),
    ],
)
def test_other_fills_are_none_of_a_mask(made):
    assert list(masked_refills(made, COSTS)) == []


def test_a_fill_whose_cost_is_not_known_is_left_out():
    costs = SimpleNamespace(of=lambda operations: None)
    assert list(masked_refills(code(fill(1, 20), load(3, 20)), costs)) == []
