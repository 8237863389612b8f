"""`tilewise explain --server`: a server explains the best config that it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import httpx2
import pytest
from reports import REPORT

from tilewise.api.service import explanations
from tilewise.cli import main
from tilewise.client import Client

WORDS = ["explain", "row_reduce", "-s", "M=1000,N=8192", "--server", "http://testserver"]


@pytest.fixture
def server(client, tune, monkeypatch):
    """The application, which explains what it has stored by a report that is made up."""

    class Transport(httpx2.BaseTransport):
        def handle_request(self, request):
            answer = client.request(request.method, str(request.url), headers=dict(request.headers))
            return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def report(url, scope, config):
        known = {"kernel": scope.kernel, "dims": dict(scope.shape), "dtype": scope.dtype, "device": scope.device}
        rest = {"clock": "modelled", "toolchain": scope.toolchain, "feasible": True, "reason": "", "time_us": 31.5}
        prior = {"penalties": {"tail": 1.2}, "prior_score": 1.2}
        found = [{"rule": "masked-refill", "level": "warning", "message": "it fills", "remedy": "cut it"}]
        more = {"options": [], "suggestions": [], "findings": found, "config": dict(config)}
        return replace(REPORT, explanation={**REPORT.explanation, **known, **rest, **prior, **more})

    monkeypatch.setattr("tilewise.api.routes.explanations.unexplained_reason", lambda scope: "")
    monkeypatch.setattr(explanations, "report", report)
    monkeypatch.setattr("tilewise.client.Client", partial(Client, transport=Transport()))
    tune()


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([*WORDS, *words])
    return ended.value.code or 0


def test_a_server_s_explanation_is_shown_as_one_made_here(server, capsys):
    assert run("--device", "model:Ascend910B4") == 0
    shown = capsys.readouterr().out
    assert "row_reduce M=1000,N=8192 float32 on Ascend910B4 (modelled times)" in shown
    assert "BLOCK_SIZE_M=25" in shown
    assert "<- bound by" in shown
    assert "masked-refill" in shown
    assert run("--device", "Ascend910B4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["bound_by"] == "V"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--device", "A", "-s", "M=7,N=7"], 4, "no verified result is stored for this problem"),
        ([], 2, "--server needs --device"),
        (["--device", "A", "-c", "BLOCK_SIZE_M=1"], 2, "--config and --server exclude each other"),
        (["--device", "A", "--db", "sqlite://"], 2, "--db and --server exclude each other"),
    ],
)
def test_what_a_server_cannot_explain_is_one_line(server, capsys, words, code, said):
    assert run(*words) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
