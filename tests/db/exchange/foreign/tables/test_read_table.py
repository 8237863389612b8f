"""Tables in vLLM's form: their sizes."""

from __future__ import annotations

import itertools
import json

import pytest

from tilewise.db.exchange.foreign.tables.read_table import read_table
from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.db.exchange.import_file import About

NAME = "N=64,device_name=NVIDIA_H200,dtype=float32.json"


def test_the_sizes_rise_and_none_is_more_than_twice_the_one_before():
    assert all(before < after <= 2 * before for before, after in itertools.pairwise(LADDER))


@pytest.mark.parametrize(
    ("size", "dims"), [("1", [{"N": 64, "M": 1}]), ("0", []), ("-1", []), ("1.0", []), ("one", []), ("9" * 19, [])]
)
def test_a_size_is_a_whole_number_of_1_or_more(size, dims):
    read = read_table(json.dumps({size: {"BLOCK": 2}}).encode(), NAME, About(kernel="row_reduce"))
    assert [suggestion.dims for suggestion in read.suggestions] == dims
    assert len(read.refusals) == 1 - len(dims)
