"""The source of a kernel's functions with the time of each line."""

from __future__ import annotations

from types import SimpleNamespace

from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.explain.listing import SourceLine, listing

TEXT = """import torch

@jit
@other
def first(x):
    y = x + 1

    return y


def unused():
    pass

async def never(): pass


def last(z): return z
"""


def line(file, number, path_us=1.0, **pipes_us):
    return SimpleNamespace(place=Place(str(file), number), path_us=path_us, pipes_us=pipes_us)


def test_functions_that_take_time_are_listed_whole_with_their_decorators(tmp_path):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text(TEXT)
    two.write_text(TEXT)
    found = listing([line(two, 17, 2.5, V=1.0, S=0.0), line(one, 6, 4.0, V=2.0, MTE2=3.0), line(two, 8, 0.0)])
    assert [(each.file, each.number) for each in found] == [
        *(("two.py", number) for number in (3, 4, 5, 6, 7, 8, 17)),
        *(("one.py", number) for number in (3, 4, 5, 6, 7, 8)),
    ]
    assert found[0] == SourceLine("two.py", 3, "@jit") and found[4].text == ""
    assert found[5] == SourceLine("two.py", 8, "    return y", 0.0, {})
    assert found[6] == SourceLine("two.py", 17, "def last(z): return z", 2.5, {"V": 1.0})
    assert found[10] == SourceLine("one.py", 6, "    y = x + 1", 4.0, {"V": 2.0, "MTE2": 3.0})


def test_lines_outside_of_functions_list_nothing(tmp_path):
    file = tmp_path / "one.py"
    file.write_text(TEXT)
    assert listing([line(file, 1), line(file, 2), line(file, 9), line(file, 14)]) == []
