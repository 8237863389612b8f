"""`bench hostile`, on a tiny case."""

import json

import pytest

from tilewise.cli import main


@pytest.mark.full
def test_stored_answers_come_beside_readers_who_ask_what_costs_most(tmp_path, capsys):
    file = tmp_path / "hostile.json"
    words = "hostile --clients 4 --half-open 200 --files 160 --seconds 2 --problems 200"
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words.split(), "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    assert body["command"] == f"tilewise bench {words}"
    alone, hostile, half_open = body["rows"]
    assert [(row["kind"], row["readers"]) for row in body["rows"]] == [
        ("hostile", 0),
        ("hostile", 4),
        ("half-open", 200),
    ]
    for row in body["rows"]:
        assert row["statuses"].keys() == {"200"}
        assert row["readyz_slowest_ms"] < 2000
    assert hostile["p50_ms"] < 10 * alone["p50_ms"]
    assert hostile["others"]["statuses"]
    assert half_open["others"]["connections"] > 200
    assert [row["added"] for row in body["imports"]] == [400, 0]
    assert all(row["process_mb"] < 300 for row in body["imports"])
    assert "4 hostile: p50" in capsys.readouterr().out
