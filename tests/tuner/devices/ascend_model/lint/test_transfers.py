"""Rows that are not contiguous: what their finding tells, and what to do about each kind of stride."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC, MemRef
from tilewise.tuner.devices.ascend_model.lint.transfers import _inner_stride, inner_strides

CODE, COSTS = SimpleNamespace(place=lambda op: "k.py:1"), SimpleNamespace(of=lambda operations: 3.0)


@pytest.mark.parametrize(
    ("told", "known", "message", "remedy"),
    [
        ((1, 64), [1, 64], "a stride of 64", "load the tile with its contiguous axis last"),
        ((64, DYNAMIC), [64, 1], "a stride known only at run time (here 1)", "leave the stride out, or pass it as"),
        ((64, DYNAMIC), [64, 2], "a stride known only at run time (here 2)", "let neighbouring elements"),
        ((DYNAMIC, DYNAMIC), [None, None], "a stride known only at run time", "let neighbouring elements"),
        ((2,), [2], "a stride of 2", "let neighbouring elements"),
        ((1,), [1], "a stride of 1", "leave the stride out"),  # the row's own stride is no other axis's
    ],
)
def test_each_kind_of_inner_stride_has_its_words_and_its_remedy(told, known, message, remedy):
    found = _inner_stride(CODE, COSTS, None, "x_ptr", SimpleNamespace(strides=told), known, 0)
    assert found.message == f"x_ptr is addressed with {message} between the elements of a row"
    assert found.remedy.startswith(remedy)
    assert (found.rule.id, found.place, found.cost_us) == ("inner-stride", "k.py:1", 3.0)


def test_waits_between_cores_are_told_where_vector_cores_copy():
    found = _inner_stride(CODE, COSTS, None, "x_ptr", SimpleNamespace(strides=(64, 2)), [64, 2], 6)
    assert "vector cores copy the tile to workspace for the cube core" in found.message
    assert found.message.endswith("the compiled code has 6 waits between cores")


def transfers(told, known, *, shape=None, name="x_ptr", verb="load", copied=False, cost_us=3.0):
    outside = MemRef(shape or (64,) * len(told), told, "f32", "gm")
    inside = MemRef((64,), (1,), "f32", "ub")
    types = (outside, inside) if verb == "load" else (inside, outside)
    operands = ("outside", "inside") if verb == "load" else ("inside", "outside")
    op = SimpleNamespace(name=f"hivm.hir.{verb}", types=types, operands=operands)
    code = SimpleNamespace(
        walk=lambda: iter([op, SimpleNamespace(name="hivm.hir.vexp")]),
        strides=lambda number: known if number == "outside" else [1],
        argument=lambda number: name if number == "outside" else "",
        is_copied_to_workspace=lambda op: copied,
        place=lambda op: "k.py:1",
    )
    half = SimpleNamespace(walk=lambda: iter([SimpleNamespace(name="hivm.hir.sync_block_wait")] * 3))
    return list(inner_strides(code, SimpleNamespace(of=lambda operations: cost_us), [half, half]))


@pytest.mark.parametrize("verb", ["load", "store"])
@pytest.mark.parametrize(("told", "known"), [((2,), [2]), ((64, 2), [64, 2]), ((1, 64, DYNAMIC), [1, 64, 7])])
def test_a_transfer_of_elements_that_are_no_neighbours_is_a_finding(told, known, verb):
    (found,) = transfers(told, known, verb=verb)
    assert "waits between cores" not in found.message


@pytest.mark.parametrize(
    ("told", "known", "more"),
    [
        ((64, 1), [64, 1], {}),
        ((64, DYNAMIC), [64, 1], {}),  # it costs nothing where no vector core copies
        ((64, DYNAMIC), [64, None], {}),
        ((64, 2), [64, 2], {"shape": (64, 1)}),  # rows of one element
        ((64, 2), [64, 2], {"name": ""}),
        ((64, 2), [64, 2], {"cost_us": None}),
        ((64, DYNAMIC), [64, 1], {"copied": True, "verb": "store"}),
    ],
)
def test_other_transfers_are_none(told, known, more):
    assert transfers(told, known, **more) == []


def test_a_tile_that_is_copied_to_workspace_is_a_finding_whatever_its_stride():
    (found,) = transfers((64, DYNAMIC), [64, 1], copied=True, cost_us=None)
    assert found.message.endswith("has 6 waits between cores")
