"""Tables in vLLM's form: their sizes."""

from __future__ import annotations

import itertools
import json

import pytest

from tilewise.db.exchange.foreign.tables.read_table import read_table
from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.db.exchange.import_file import About
from tilewise.errors import BadImport

NAME = "N=64,device_name=NVIDIA_H200,dtype=float32.json"


def test_the_sizes_rise_and_none_is_more_than_twice_the_one_before():
    assert all(before < after <= 2 * before for before, after in itertools.pairwise(LADDER))


def test_the_sizes_are_those_of_vllms_benchmark_of_experts():
    """Its default batch sizes: powers of two up to 4096, and those halfway between some of them."""
    powers, halfway = {2**power for power in range(13)}, {24, 48, 96, 1536, 3072}
    assert tuple(sorted(powers | halfway)) == LADDER


@pytest.mark.parametrize(
    ("size", "dims"), [("1", [{"N": 64, "M": 1}]), ("0", []), ("-1", []), ("1.0", []), ("one", []), ("9" * 19, [])]
)
def test_a_size_is_a_whole_number_of_1_or_more(size, dims):
    read = read_table(json.dumps({size: {"BLOCK": 2}}).encode(), NAME, About(kernel="row_reduce"))
    assert [suggestion.dims for suggestion in read.suggestions] == dims
    assert len(read.refusals) == 1 - len(dims)


def read(name, body=None, **about):
    return read_table(json.dumps(body or {"8": {"BLOCK": 2}}).encode(), name, About(kernel="moe", **about))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("E=8,N=14336,device_name=H,dtype=float16.json", {"E": 8, "N": 14336, "M": 8}),
        ("E=8,device_name=H,dtype=fp8_w8a8.json", {"E": 8, "quant": "fp8_w8a8", "M": 8}),
        ("E=8,device_name=H,dtype=fp8_w8a8,block_shape=[128, 64].json", {"E": 8, "quant": "fp8_w8a8_128x64", "M": 8}),
        ("E=8,device_name=H,dtype=fp8_w8a8,block_shape=[128,64].json", {"E": 8, "quant": "fp8_w8a8_128x64", "M": 8}),
        ("E=8,device_name=H,dtype=w4,block_shape=[128]_down.json", {"E": 8, "down": True, "quant": "w4", "M": 8}),
        ("E=8,device_name=H,per_channel_quant=True,alone.json", {"E": 8, "per_channel_quant": True, "M": 8}),
        ("E=8,K=1e3,device_name=H.json", {"E": 8, "M": 8}),
    ],
)
def test_a_name_holds_dimensions_flags_and_quantisations(name, shape):
    (found,) = read(name, dtype="bfloat16").suggestions
    assert dict(found.shape) == shape
    assert (found.dtype, found.device) == ("float16" if "float16" in name else "bfloat16", "H")
    assert found.origin == f"table {name}"


def test_what_is_said_of_a_file_counts_for_dimensions_and_its_name_for_the_device():
    about = {"dims": {"N": 8, "K": 4}, "device": "mine", "rung": "B"}
    (found,) = read("N=64,device_name=NVIDIA_H200,dtype=float32.json", **about).suggestions
    assert (dict(found.dims), found.device) == ({"N": 8, "K": 4, "B": 8}, "NVIDIA H200")
    assert read("x.json", dtype="int8", device="mine").suggestions[0].device == "mine"


def test_what_identifies_no_problem_says_what_to_give():
    with pytest.raises(BadImport) as refused:
        read_table(b"{}", "x.json", About(kernel=""))
    assert str(refused.value).endswith(
        "neither the file nor its name identifies its problems; give --kernel, --dtype, --device"
    )


def test_a_version_is_no_size_and_long_sizes_are_cut():
    found = read("device_name=H,dtype=int8.json", {"triton_version": "3", "x" * 50: {}, "2": [1]})
    assert [(one.place, one.reason) for one in found.refusals] == [
        (f"size {'x' * 20}", f"its size is {'x' * 20!r}; expected a whole number of 1 or more"),
        ("size 2", "expected an object, found a list"),
    ]
