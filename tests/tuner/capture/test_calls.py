"""Recorded launches as plain values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.tuner.capture.calls import Call, CapturedKernel, TensorArgument, TritonDtype


@pytest.mark.parametrize(
    ("shape", "strides", "memory", "elements", "span", "dense"),
    [
        ((3, 5), (5, 1), 0, 15, 15, True),
        ((3, 5), (1, 3), 0, 15, 15, True),
        ((3, 5), (8, 1), 0, 15, 21, False),
        ((3, 5), (0, 1), 0, 15, 5, False),
        ((3, 5), (0, 1), 40, 15, 40, False),
        ((3, 5), (0, 1), 15, 15, 15, True),
        ((1, 5), (99, 1), 0, 5, 5, True),
        ((), (), 0, 1, 1, True),
    ],
)
def test_a_tensor_spans_what_lies_between_its_ends(shape, strides, memory, elements, span, dense):
    tensor = TensorArgument(shape, strides, "float32", memory=memory)
    assert (tensor.elements, tensor.span, tensor.is_dense) == (elements, span, dense)


TENSOR = TensorArgument((3, 5), (5, 1), "float16")
CALL = Call({"x": TENSOR, "n": 3, "kind": TritonDtype("tl.float32"), "b": None}, ({"B": 1},), ((4, 2),), ({},))


def test_a_launch_is_told_in_one_line_and_as_json():
    assert str(CALL) == "x float16 3x5, n=3, kind=tl.float32, b=None"
    assert str(TensorArgument((), (), "int8")) == "int8 scalar"
    assert CALL.to_json() == {
        "arguments": {
            "x": {"shape": [3, 5], "strides": [5, 1], "dtype": "float16"},
            "n": 3,
            "kind": "tl.float32",
            "b": None,
        },
        "grid": [4, 2],
    }
    assert CALL.tensors == {"x": TENSOR}


def test_equal_launches_are_counted_and_configs_listed_once():
    other = Call({"x": TENSOR, "n": 4}, ({"B": 2, "num_warps": 4}, {"B": 1}), ((1,), (1,)), ({}, {}))
    kernel = CapturedKernel("k", Path("p.py"), ("x", "n", "B"), frozenset(["B"]), key=("n",), obstacles=["one"])
    for call in (CALL, other, CALL, CALL):
        kernel.add(call)
    assert (kernel.calls, kernel.counts) == ([CALL, other], [3, 1])
    assert kernel.configs == [{"B": 1}, {"B": 2, "num_warps": 4}]
    assert kernel.options == {"num_warps"}
    body = kernel.to_json()
    assert [call["count"] for call in body["calls"]] == [3, 1]
    assert body == {
        "kernel": "k",
        "file": "p.py",
        "configs": [{"B": 1}, {"B": 2, "num_warps": 4}],
        "key": ["n"],
        "calls": [{**CALL.to_json(), "count": 3}, {**other.to_json(), "count": 1}],
        "obstacles": ["one"],
        "left_out": [],
    }
