"""Launches kept for a later tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.errors import StoreError
from tilewise.tuner.capture.calls import Call, CapturedKernel, TensorArgument, TritonDtype
from tilewise.tuner.capture.kept_launches import keep_launch, kept_launches

PROGRAM = Path("/programs/program.py")


def call(n, **more):
    tensor = TensorArgument((n, 4), (4, 1), "int32", low=0, high=9, values=(0, 9))
    arguments = {"x": tensor, "n": n, "dtype": TritonDtype("tl.float32"), "eps": 1e-6, "none": None, **more}
    return Call(arguments, ({"B": 32}, {"B": 64}), ((n // 32,), (n // 64,)), ({"EVEN": True}, {"EVEN": False}))


def kernel(*calls):
    given = {"key": ("n",), "imported": {"e": "m:e"}}
    found = CapturedKernel("kernel", PROGRAM, ("x", "n", "dtype"), frozenset({"dtype"}), **given)
    for one in calls:
        found.add(one)
    return found


def test_launches_are_read_as_they_were_kept(tmp_path):
    for count in (1, 2, 2):  # another process keeps the second one too
        keep_launch(kernel(*[call(n) for n in (128, 256)][:count]), tmp_path)
    found = kept_launches(PROGRAM, "kernel", tmp_path)
    assert found.calls == [call(128), call(256)] and found.counts == [1, 2]
    assert (found.parameters, found.constants, found.key) == (("x", "n", "dtype"), {"dtype"}, ("n",))
    assert found.imported == {"e": "m:e"}
    assert kept_launches(PROGRAM, "other", tmp_path) is None
    assert kept_launches(Path("/elsewhere/program.py"), "kernel", tmp_path) is None


def test_a_line_that_a_crash_cut_short_and_an_earlier_version_are_left_out(tmp_path):
    older = kernel(call(64))
    older.parameters = ("x",)
    keep_launch(older, tmp_path)
    (file,) = (tmp_path / "launches").iterdir()
    with file.open("a") as opened:
        opened.write('{"parameters": ["x"\n')
    keep_launch(kernel(call(128)), tmp_path)
    assert kept_launches(PROGRAM, "kernel", tmp_path).calls == [call(128)]


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "launches").write_text("a file")
    with pytest.raises(StoreError, match="set TILEWISE_DATA to another folder"):
        keep_launch(kernel(call(128)), tmp_path)
