"""Tests of export files at run time: entries are parsed on request, and a file is used as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
import random
from datetime import UTC, datetime

import pytest

from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.exchange.native.runtime_file import WinnersFile, encode_winners
from tilewise.db.records import Clock
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport

MOMENT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def results(make_scope, make_trial):
    with open_store("sqlite://") as store:
        for m in (1, 2, 3):
            store.record(make_scope(dims={"M": m, "N": 8}), [make_trial(10.0 * m), make_trial(99.0, is_default=True)])
        store.record(make_scope(dims={"M": 1, "N": 8}, clock=Clock.MEASURED), [make_trial(7.0)])
        store.record(make_scope(dims={"M": 1, "N": 8}, toolchain="new"), [make_trial(70.0)])
        full = encode(export_native(store, store.scopes()))
        return [store.result(scope) for scope in store.scopes()], full


@pytest.fixture
def slim(results):
    return encode_winners((r.to_json() for r in results[0]), [{"a": 1}], created=MOMENT)


def test_the_file_is_the_export_document_with_one_entry_per_line(slim, results):
    document = json.loads(slim)
    assert (document["format"], document["version"], len(document["entries"])) == ("tilewise", 1, 5)
    assert len(slim.splitlines()) == 2 + 5
    assert all(entry.keys().isdisjoint({"evidence", "default", "trials"}) for entry in document["entries"])


@pytest.mark.parametrize("layout", ["slim", "full", "indented", "compressed"])
def test_every_layout_gives_the_same_answers(tmp_path, results, slim, layout):
    import gzip

    stored, full = results
    data = {"slim": slim, "full": full, "compressed": gzip.compress(full)}
    data["indented"] = json.dumps(json.loads(slim), indent=3).encode()
    path = tmp_path / "configs.json"
    path.write_bytes(data[layout])
    winners = WinnersFile(path)
    question = stored[0].scope.question
    found = winners.answers(question)
    assert [r.winner.time_us for r in found] == [7.0, 70.0, 10.0]  # measured, then the newest
    assert dict(found[0].winner.config) == dict(stored[3].winner.config)
    assert winners.answers(question, "another source") == []
    assert [r.scope.dims["M"] for r in winners.results()] == [1, 2, 3, 1, 1]
    assert sorted(d["M"] for _, d in winners.shapes("row_reduce", "float32", "Ascend910B4")) == [1, 1, 1, 2, 3]
    assert (winners.cores("Ascend910B4"), winners.cores("nothing")) == (40, None)
    assert [len(evidence) for _, evidence in winners.entries({"M": 2, "N": 8})] == [
        2 if "full" in layout or layout == "compressed" else 0
    ]


def test_an_impossible_entry_is_ignored(tmp_path, results):
    bodies = [r.to_json() for r in results[0]]
    for change in ({"config": {}}, {"time_us": -1.0}, {"verified": False}, {"clock": "guessed"}, {"tuned_at": "never"}):
        bodies[1] = {**results[0][1].to_json(), **change}
        path = tmp_path / "configs.json"
        path.write_bytes(encode_winners(bodies))
        winners = WinnersFile(path)
        question = results[0][1].scope.question
        assert (winners.answers(question) == []) == (change != {"config": {}})
        assert len(winners.answers(results[0][2].scope.question)) == 1


def test_a_damaged_file_is_refused_as_a_whole_and_never_half_used(tmp_path, slim):
    """Flip bits, and delete, insert and double bytes: a file is refused, or read exactly as it was written."""
    draw, path = random.Random(7), tmp_path / "configs.json"
    path.write_bytes(slim)
    whole = list(WinnersFile(path).results())
    refused = 0
    for _ in range(1500):
        data = bytearray(slim)
        at = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                del data[at : at + draw.randrange(1, 200)]
            case 2:
                data[at:at] = bytes(draw.choices(range(256), k=draw.randrange(1, 9)))
            case _:
                data[at:at] = data[max(0, at - draw.randrange(1, 600)) : at]
        path.write_bytes(data)
        found = None
        with contextlib.suppress(BadImport):
            found = WinnersFile(path)
        if found is None:
            refused += 1
            continue
        assert list(found.results()) == whole
    assert refused > 1200
