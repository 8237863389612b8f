"""Results looked up in a file."""

from __future__ import annotations

from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.records import Problem, Question
from tilewise.kernels import registry
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
