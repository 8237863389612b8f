"""Rows that are not contiguous: what their finding tells, and what to do about each kind of stride."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC
from tilewise.tuner.devices.ascend_model.lint.transfers import _inner_stride

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
