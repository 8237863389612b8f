"""The file of shapes that were launched without a tuned config."""

from __future__ import annotations

import json

import pytest

from tilewise.db.records import Problem, Question
from tilewise.errors import StoreError
from tilewise.tuner.runtime import untuned_shapes
from tilewise.tuner.runtime.untuned_shapes import UntunedShape, UntunedShapes


def question(kernel="k", **shape):
    return Question(Problem.of(kernel, shape, "float16"), "H")


def test_shapes_are_listed_by_the_number_of_processes_then_by_name(tmp_path):
    file = UntunedShapes(tmp_path / "deep" / "file.jsonl")
    assert file.all() == []
    for one, match in [
        (question("b", M=1), "nearest"),
        (question("a", M=2), "prior"),
        (question("a", M=1), "prior"),
        (question("b", M=1, causal=True), "prior"),
        (question("b", M=1), "portfolio"),
    ]:
        file.add(one, "file.py:SPEC", match)
    assert file.all() == [
        UntunedShape(question("b", M=1), "file.py:SPEC", "portfolio", 2),
        UntunedShape(question("a", M=1), "file.py:SPEC", "prior", 1),
        UntunedShape(question("a", M=2), "file.py:SPEC", "prior", 1),
        UntunedShape(question("b", M=1, causal=True), "file.py:SPEC", "prior", 1),
    ]
    assert file.all()[0].to_json() == {
        "kernel": "b", "dims": {"M": 1}, "dtype": "float16", "device": "H",
        "match": "portfolio", "processes": 2, "origin": "file.py:SPEC",
    }  # fmt: skip


def test_a_shape_that_was_tuned_is_listed_again_only_if_it_is_met_again(tmp_path):
    file = UntunedShapes(tmp_path / "file.jsonl")
    for _ in range(3):
        file.add(question(M=1), "", "prior")
    file.forget(question(M=2))
    file.forget(question(M=1))
    assert file.all() == []
    file.add(question(M=1), "", "nearest")
    assert [(one.match, one.processes) for one in file.all()] == [("nearest", 1)]


def test_lines_that_are_cut_short_or_mean_nothing_are_skipped(tmp_path):
    file = UntunedShapes(tmp_path / "file.jsonl")
    file.add(question(M=1), "", "prior")
    whole = file.path.read_bytes()
    wrong = json.dumps({**json.loads(whole), "dims": {"M": 0}}).encode()
    file.path.write_bytes(b"\n".join([b"[" * 100_000, whole[:20], b"{}", wrong, b"\xff", whole.rstrip(), b""]))
    assert [one.question for one in file.all()] == [question(M=1)]


def test_a_full_file_takes_nothing_more(tmp_path, monkeypatch):
    file = UntunedShapes(tmp_path / "file.jsonl")
    file.add(question(M=1), "", "prior")
    size = file.path.stat().st_size
    assert untuned_shapes._LIMIT_BYTES == 16 * 2**20
    for limit, count in ((size, 1), (size + 1, 2)):
        monkeypatch.setattr(untuned_shapes, "_LIMIT_BYTES", limit)
        file.add(question(M=2), "", "prior")
        assert len(file.all()) == count


def test_a_file_that_cannot_be_used_is_said_in_one_line(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*file: .*; check its permissions"):
        UntunedShapes(tmp_path / "file").add(question(M=1), "", "prior")
    with pytest.raises(StoreError, match=r"cannot read .*file: .*; check its permissions"):
        UntunedShapes(tmp_path / "file").all()
