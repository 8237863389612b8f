"""A database written at commit e37392d still gives the results that it gave to that version.

`golden/tiles.db.gz` holds tunings on modelled parts, H200 times from the recorded landscapes, a user's kernel and a
replay. `answers.jsonl.gz` holds the results of `tilewise.Cache`. `identity.json.gz` holds the REST answers, every
kernel's source hash, the modelled parts' fingerprints, and the keys of all stored records. Fingerprints, and the five
answers that rest on the modelled part's costs, are of version 9 of its clock.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import tilewise
from tilewise.api.app import create_app
from tilewise.api.service.service import Options
from tilewise.db.exchange.native.export_file import export_native
from tilewise.db.records import digest
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.calibrated_costs import model_fingerprint

GOLDEN = Path(__file__).parent / "golden"
IDENTITY = json.loads(gzip.decompress((GOLDEN / "identity.json.gz").read_bytes()))
OWN_KERNEL = f"{GOLDEN / 'scaled_add.py'}:SPEC"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("golden") / "tiles.db"
    file.write_bytes(gzip.decompress((GOLDEN / "tiles.db.gz").read_bytes()))
    with open_store(f"sqlite:///{file}"):  # brings its schema up, which readers cannot
        return f"sqlite:///{file}"


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))


def test_every_kernel_has_the_source_hash_that_its_results_are_stored_under():
    places = {name: OWN_KERNEL if name == "scaled_add" else name for name in IDENTITY["source_hashes"]}
    assert {name: source_hash(registry.load(place)) for name, place in places.items()} == IDENTITY["source_hashes"]


def test_every_modelled_part_has_the_fingerprint_that_its_results_are_stored_under():
    fingerprints = IDENTITY["model_fingerprints"]
    assert {name: model_fingerprint(part(name)) for name in fingerprints} == fingerprints


def test_stored_keys_are_made_as_they_were(database):
    with open_store(database) as store:
        scopes = list(store.scopes())
    assert sorted(scope.key for scope in scopes) == IDENTITY["scope_keys"]
    assert sorted({scope.question.key for scope in scopes}) == IDENTITY["question_keys"]


def test_an_export_of_the_database_is_the_same_export(database):
    with open_store(database) as store:
        entries = export_native(store, store.scopes())["entries"]
    assert digest([_as_then(entry) for entry in entries]) == IDENTITY["export_sha256"]


@pytest.mark.in_part(1)
@pytest.mark.parametrize("part", range(4))
def test_every_look_up_is_answered_as_it_was(database, part):
    lines = gzip.decompress((GOLDEN / "answers.jsonl.gz").read_bytes()).splitlines()[part::4]
    with tilewise.Cache(database) as cache:
        different = [
            (asked, found, expected)
            for asked, expected in (json.loads(line).values() for line in lines)
            if (found := _answer(cache, *asked)) != expected
        ]
    assert not different, different[:3]


def test_the_service_answers_as_it_did(database):
    with TestClient(create_app(database, Options(run_jobs=False))) as client:
        for asked in IDENTITY["rest"]:
            answer = client.get(f"/v1/configs/{asked['kernel']}", params=asked["given"])
            body = answer.json()
            body = _as_then(body) if answer.status_code == 200 else {"nearest": body.get("nearest")}
            assert (answer.status_code, body) == (asked["status"], asked["body"])


def _as_then(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out what no result had then: the count of a status, and the proof, which was always the reference."""
    counts = result["trials"]
    assert counts["unmodelled"] == 0 and result.get("verified_by", "reference") == "reference"
    known = {name: value for name, value in result.items() if name != "verified_by"}
    return {**known, "trials": {status: count for status, count in counts.items() if status != "unmodelled"}}


def _answer(cache: tilewise.Cache, kernel: str, dims: dict[str, int], dtype: str, device: str, match: str) -> Any:
    spec = OWN_KERNEL if kernel == "scaled_add" else kernel
    try:
        return _as_then(cache.lookup(spec, dims, dtype=dtype, device=device, match=match).to_json())
    except tilewise.NotTuned as error:
        return {"miss": "NotTuned", "nearest": [dict(shape) for shape in error.nearest]}
    except tilewise.TilewiseError as error:
        return {"miss": type(error).__name__}
