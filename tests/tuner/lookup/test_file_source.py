"""Results looked up in a file."""

from __future__ import annotations

import pytest
from scopes import changed
from service_fixtures import SCOPE

from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.records import Problem, Question, Status, Trial
from tilewise.kernels import registry
from tilewise.tuner.lookup import file_source
from tilewise.tuner.lookup.file_source import FileSource


def test_portfolios_built_for_one_flag_do_not_answer_for_another(store, tmp_path, monkeypatch):
    monkeypatch.setattr(FileSource, "_build", lambda self, question, source, spec: [dict(question.problem.flags)])
    file = tmp_path / "configs.json"
    file.write_bytes(encode(export_native(store, [])))
    source = FileSource(file)
    spec = registry.load("topk_gating")
    for flags in ({"renormalise": False}, {}, {"renormalise": False}):
        problem = Problem("topk_gating", {"M": 64, "E": 16, "TOPK": 2}, "float32", flags)
        assert source.portfolios(Question(problem, "NVIDIA H200"), None, spec) == [flags]


@pytest.mark.parametrize(
    ("shapes", "read"), [(3, [1, 2, 3]), (4, [1, 2, 3, 4]), (7, [1, 2, 3, 4, 5, 6, 7]), (8, [1, 3, 5, 7])]
)
def test_portfolios_are_built_from_all_shapes_or_from_some_spread_over_them(store, tmp_path, monkeypatch, shapes, read):
    scopes = [changed(SCOPE, dims={"M": size, "N": 8}) for size in range(1, shapes + 1)]
    for scope in scopes:
        store.record(scope, [Trial({"B": 1}, Status.CORRECT, time_us=5.0, verified=True)])
    file = tmp_path / "configs.json"
    file.write_bytes(encode(export_native(store, scopes)))
    built = []
    monkeypatch.setattr(file_source, "MOST_SHAPES", 4)
    monkeypatch.setattr(file_source, "portfolios", lambda evidence, spec: built.extend(s for s, _ in evidence) or [])
    FileSource(file).portfolios(scopes[0].question, None, registry.load("row_reduce"))
    assert sorted(scope.dims["M"] for scope in built) == read
