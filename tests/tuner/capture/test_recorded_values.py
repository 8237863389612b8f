"""The values that a recorder reads from a launch: tensors, plain arguments, grids, options and hooks."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from tilewise.tuner.capture import recorder  # noqa: E402


def integers(*values, dtype="int64"):
    found = recorder._tensor("x", torch.tensor(values, dtype=getattr(torch, dtype)))
    return found.low, found.high, found.values


def test_few_integers_are_kept_and_more_if_they_rise_or_all_differ():
    assert integers(3, 1, 2) == (1, 3, (3, 1, 2))
    assert integers(7, 7) == (7, 7, None)  # a draw between the bounds is as good
    mixed = [1, 0] * 32
    assert integers(*mixed) == (0, 1, tuple(mixed))
    assert integers(*mixed, 1) == (0, 1, None)
    rising = [*range(1 << 16)]
    assert integers(*rising) == (0, (1 << 16) - 1, tuple(rising))
    assert integers(*rising, 1 << 16) == (0, 1 << 16, None)
    assert integers(*rising[::-1])[2] == tuple(rising[::-1])
    assert integers(*[0] * 4095, 1)[2] is not None
    assert integers(1, 65535, dtype="uint16") == (1, 65535, (1, 65535))
    assert integers(1, 2, dtype="uint64") == (1, 2, (1, 2))
    masked = recorder._tensor("x", torch.tensor([True] * 70))
    assert (masked.low, masked.high, masked.values) == (1, 1, None)
    assert recorder._tensor("x", torch.tensor([True, False] * 70)).values == (1, 0) * 70
    assert recorder._tensor("x", torch.zeros(3, dtype=torch.bool)).high is None
    assert recorder._tensor("x", torch.ones(3)).low is None


def test_memory_is_counted_where_elements_overlap():
    base = torch.zeros(40)
    assert recorder._tensor("x", base[8:13].expand(3, 5)).memory == 32
    assert recorder._tensor("x", base[:5].reshape(1, 5).as_strided((1, 5), (0, 1))).memory == 0
    assert recorder._tensor("x", base.reshape(8, 5)).memory == 0


REVERSED = SimpleNamespace(
    shape=(3,), stride=lambda: (-1,), dtype="float32", data_ptr=lambda: 0, element_size=lambda: 4
)
"""A view of another library than torch, which has none of this kind."""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (REVERSED, "x has a negative stride"),
        (torch.zeros(0), "x is empty in a launch, which is left out"),
        ([1], "x is a list; a spec takes tensors, numbers, words and truth values"),
    ],
)
def test_an_argument_that_a_spec_cannot_hold_is_named(value, reason):
    with pytest.raises(recorder._Unreadable) as refused:
        recorder._read("x", value)
    assert str(refused.value) == reason


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "word"])
def test_plain_arguments_are_read_as_they_are(value):
    assert recorder._read("x", value) is value


def test_a_constant_of_triton_is_read_as_its_value():
    constexpr = pytest.importorskip("triton.language").constexpr
    assert recorder._read("x", constexpr(3)) == 3
    with pytest.raises(recorder._Unreadable, match=r"^x is a tuple; a spec takes"):
        recorder._read("x", constexpr((1, 2)))


@pytest.mark.parametrize(
    ("grid", "sizes"), [(5, (5,)), ((5, 6), (5, 6)), ([7], (7,)), (lambda given: (given["n"], 1), (9, 1))]
)
def test_a_grid_is_a_number_a_list_or_a_function(grid, sizes):
    assert recorder._grid(grid, {"n": 9}) == sizes


def test_options_that_ask_for_nothing_are_left_out():
    options = {"num_warps": 4, "num_ctas": 1, "maxnreg": None, "force_simt_template": False, "num_stages": 0}
    assert recorder._without_defaults(options) == {"num_warps": 4, "num_stages": 0}
    assert recorder._without_defaults({"num_ctas": 2, "reg_inc_consumer": 8}) == {"num_ctas": 2, "reg_inc_consumer": 8}


@pytest.mark.parametrize(
    ("hook", "zeroed"),
    [
        (lambda given: given["x"].zero_(), {"x"}),
        (lambda given: None, set()),
        (lambda given: given["x"].fill_(2), None),
        (lambda given: given["x"][:1].zero_(), None),  # the rest is as it was
        (lambda given: given.update(more=1), None),
        (lambda given: given.update(n=4), None),
        (lambda given: given["missing"].zero_(), None),
    ],
)
def test_a_hook_sets_whole_tensors_to_zero_or_does_more(hook, zeroed):
    given = {"x": torch.zeros(3), "y": torch.ones(2), "n": 3}
    assert recorder._zeroed(hook, given) == zeroed
    assert given["y"].tolist() == [1, 1]


def test_a_value_is_placed_where_its_module_has_it():
    assert recorder._place("anything", math) == "math"
    assert recorder._place("here", Path) == "pathlib:Path"
    assert recorder._place("nowhere", object()) == ""
