"""`/v1/explain`: the report on a stored winner, or why there is none."""

from __future__ import annotations

import pytest
from reports import REPORT

from tilewise.api.service import explanations

ASKED = "/v1/explain/row_reduce?M=1000&N=8192&device=Ascend910B4"


def test_a_winner_is_explained_once(client, tune, monkeypatch):
    made = []
    monkeypatch.setattr("tilewise.api.routes.explanations.unexplained_reason", lambda scope: "")
    monkeypatch.setattr(explanations, "report", lambda url, scope, config: made.append(dict(config)) or REPORT)
    tune()
    first, again = client.get(ASKED), client.get(ASKED)
    assert first.json() == again.json() == REPORT.explanation
    assert [config["BLOCK_SIZE_M"] for config in made] == [25]
    assert client.get(ASKED, headers={"if-none-match": first.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        (ASKED, 404, "the result cannot be explained: it was tuned with model-1, but the server has"),
        (ASKED.replace("1000", "7"), 404, "no verified result is stored for this problem"),
        (ASKED.replace("M=1000", "M=0"), 400, "M is '0'"),
    ],
)
def test_why_there_is_no_explanation_is_said(client, tune, problem_of, path, status, detail):
    tune()
    assert problem_of(client.get(path), status)["detail"].startswith(detail)
