"""`bench conform` and `bench memory`, on tiny cases."""

import json

import pytest

from tilewise.cli import main


def run(words, file):
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words.split(), "-o", str(file)])
    body = json.loads(file.read_text())
    assert body["command"] == f"tilewise bench {words}"
    return ended.value.code, body["rows"]


@pytest.mark.full
def test_generated_requests_are_answered_as_documented(tmp_path):
    code, rows = run("conform --cases 60 --seed 1", tmp_path / "conform.json")
    assert not code
    assert [row["caller"] for row in rows] == ["token", "worker", "stranger"]
    for row in rows:
        assert row["cases"] == sum(row["statuses"].values()) >= 60
        assert not row["faults"]


@pytest.mark.full
def test_memory_is_read_of_every_process_of_a_server(tmp_path):
    code, rows = run("memory --workers 1 --workers 2 --problems 100", tmp_path / "memory.json")
    assert not code
    assert [row["workers"] for row in rows] == [1, 2]
    one, two = rows
    assert two["idle"]["processes"] > one["idle"]["processes"] >= 1
    assert all(row[when]["all_mb"] >= row[when]["largest_mb"] / 2 > 0 for row in rows for when in ("idle", "asked"))
