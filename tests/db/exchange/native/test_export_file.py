"""Tests of the export file: its content, lossless round trips, and the files that an import refuses."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.db.exchange.native import export_file
from tilewise.db.exchange.native.export_file import encode, export_native, read_native, stream_native
from tilewise.db.exchange.native.runtime_file import encode_winners
from tilewise.db.records import Clock, Problem, Scope, Status, Trial, digest
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import MergeReport
from tilewise.errors import BadImport

START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def source(make_scope, make_trial):
    """Yield a store with two bests, a scope without one, and history."""
    with open_store("sqlite://") as store:
        first = make_trial(80, is_default=True, ordinal=None)
        store.record(make_scope(), [first, make_trial(50, why="no tail rows"), make_trial(None, status=Status.COMPILE)])
        store.record(make_scope(), [make_trial(79, config=first.config, is_default=True, ordinal=None)])
        store.record(make_scope(clock=Clock.MEASURED, device="NVIDIA H200"), [make_trial(12.5, p20_us=12, p80_us=13)])
        store.record(make_scope(dtype="float16"), [make_trial(None, status=Status.TIMEOUT)])
        yield store


def exported(source) -> dict:
    return json.loads(encode(export_native(source, source.scopes())))


def import_native(store, data: bytes) -> MergeReport:
    reading = read_native(data)
    assert reading.refusals == ()
    return store.merge([(offer.scope, offer.trials) for offer in reading.offers])


def sealed(document: dict) -> bytes:
    """Return the document with its checksum corrected."""
    return json.dumps(document | {"sha256": digest(document["entries"])}).encode()


def test_an_export_holds_every_best_with_its_evidence(source, make_scope):
    document = exported(source)
    assert (document["format"], document["version"]) == ("tilewise", 1)
    assert document["sha256"] == digest(document["entries"])
    assert datetime.fromisoformat(document["created"]).tzinfo is not None
    entry, other = document["entries"]
    derived = {name: value for name, value in entry.items() if name != "evidence"}
    assert derived == json.loads(json.dumps(source.result(make_scope()).to_json()))
    assert (entry["source_hash"], entry["cores"]) == ("a1", 40)
    assert [trial["status"] for trial in entry["evidence"]] == ["correct", "compile", "correct"]
    assert (other["device"], other["clock"]) == ("NVIDIA H200", "measured")


def test_an_export_is_sent_in_pieces_of_64_kib(source, monkeypatch):
    def pieces():
        return [*stream_native(source, source.scopes(), created=datetime(2026, 11, 23, tzinfo=UTC))]

    (whole,) = pieces()
    monkeypatch.setattr(export_file, "_PIECE", 0)
    entries = pieces()
    assert len(entries) == 1 + len(json.loads(whole)["entries"])
    assert b"".join(entries) == whole
    monkeypatch.setattr(export_file, "_PIECE", len(entries[0]))
    assert len(pieces()[0]) == len(entries[0] + entries[1])


def test_a_file_has_a_value_a_line_in_utf_8():
    """Version control then shows what changed, and anybody can read it."""
    document = {"kernel": "größe_和", "dims": {"M": 1}, "entries": [1.5, True], "none": {}}
    text = '{\n "kernel": "größe_和",\n "dims": {\n  "M": 1\n },\n "entries": [\n  1.5,\n  true\n ],\n "none": {}\n}\n'
    assert encode(document).decode() == text
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"time_us": float("nan")})


def test_a_file_in_pieces_has_an_entry_a_line_in_utf_8(make_scope, make_trial):
    with open_store("sqlite://") as store:
        for kernel in ("größe_和", "other"):
            store.record(make_scope(kernel=kernel), [make_trial()])
        lines = b"".join(stream_native(store, store.scopes(), created=START)).decode().splitlines()
        document = export_native(store, store.scopes(), created=START)
    first, one, other, last = lines
    assert '"größe_和"' in one
    assert [json.loads(one.removesuffix(",")), json.loads(other)] == document["entries"]
    assert json.loads("".join(lines)) == document
    assert (first[-14:], last) == (', "entries": [', f'], "sha256": "{document["sha256"]}"}}')


def test_an_export_may_be_of_one_kernel_or_device(source):
    on_the_gpu = export_native(source, source.scopes(device="NVIDIA H200"))
    assert [entry["device"] for entry in on_the_gpu["entries"]] == ["NVIDIA H200"]
    assert len(export_native(source, source.scopes("row_reduce"))["entries"]) == 2
    assert export_native(source, source.scopes("softmax"))["entries"] == []


def test_importing_twice_changes_nothing(source):
    data = encode(export_native(source, source.scopes()))
    with open_store("sqlite://") as store:
        assert import_native(store, data) == MergeReport(scopes=2, added=4, updated=0, unchanged=0)
        assert import_native(store, data) == MergeReport(scopes=2, added=0, updated=0, unchanged=4)
        assert exported(store)["entries"] == exported(source)["entries"]


def test_every_entry_says_device_cores_source_and_toolchain(source):
    for entry in exported(source)["entries"]:
        assert (entry["cores"], entry["source_hash"], entry["toolchain"]) == (40, "a1", "triton-ascend 3.2.0")
        assert entry["device"] in ("Ascend910B4", "NVIDIA H200")


def test_a_file_of_winners_imports_and_does_not_replace_evidence(source, make_scope):
    entries = [store_result.to_json() for store_result in map(source.result, source.scopes()) if store_result.winner]
    data = encode_winners(entries)
    with open_store("sqlite://") as store:
        assert import_native(store, data).added == 2
        there, here = store.result(make_scope()).winner, source.result(make_scope()).winner
        assert (there.config, there.time_us, there.created) == (here.config, here.time_us, here.created)
    assert import_native(source, data) == MergeReport(scopes=2, added=0, updated=0, unchanged=2)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"config": None}, "config is null; expected an object"),
        ({"verified": False}, "it has neither evidence nor a verified winner with its time"),
        ({"time_us": None}, "it has neither evidence nor a verified winner with its time"),
        ({"tuned_at": None}, "tuned_at is missing"),
        ({"time_us": -1.0}, "time_us is -1.0; expected a positive number"),
    ],
)
def test_a_file_of_winners_holds_verified_ones_with_time_and_date(source, make_scope, changes, complaint):
    entry = source.result(make_scope()).to_json() | changes
    document = json.loads(encode_winners([entry]))
    [refused] = read_native(json.dumps(document).encode()).refusals
    assert (refused.place, complaint in refused.reason) == ("entry 1", True), refused.reason


def test_an_import_keeps_newer_trials_that_are_here_already(source, make_scope):
    data = encode(export_native(source, source.scopes()))
    newer = Trial({"BLOCK_SIZE_M": 2, "multibuffer": True}, Status.CORRECT, time_us=55.0, samples=1, verified=True)
    source.record(make_scope(), [newer])
    assert import_native(source, data).unchanged == 4
    assert source.result(make_scope()).winner == newer


def test_an_empty_export_imports(source):
    with open_store("sqlite://") as store:
        assert import_native(store, encode(export_native(store, store.scopes()))) == MergeReport(0, 0, 0, 0)


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
times = st.floats(1e-3, 1e9)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.timezones())
words = st.from_regex(r"[A-Za-z0-9_.+-]{1,8}", fullmatch=True)
problems = st.builds(
    Problem.of,
    kernel=names,
    shape=st.dictionaries(names, st.integers(1, 2**40) | st.booleans() | words, min_size=1, max_size=3),
    dtype=names,
)
scopes = st.builds(
    Scope,
    problem=problems,
    source_hash=names,
    device=names,
    clock=st.sampled_from(Clock),
    toolchain=names,
    cores=st.integers(1, 4096),
)
trials = st.builds(
    lambda status, time, p20, spread, verified, settled, **fields: Trial(
        status=status,
        time_us=time,
        p20_us=p20,
        p80_us=p20 * spread if p20 else None,
        low_us=p20,
        high_us=p20 * spread if p20 else None,
        time_to_beat_us=time if settled else None,
        verified=verified and status is Status.CORRECT,
        **fields,
    ),
    status=st.sampled_from(Status),
    time=times,
    p20=st.none() | times,
    spread=st.floats(1, 2),
    settled=st.booleans(),
    dropped=st.booleans(),
    method=st.sampled_from(["", "cupti", "events"]),
    l2=st.sampled_from(["", "cold", "warm"]),
    verified=st.booleans(),
    config=st.dictionaries(names, st.booleans() | st.integers(-9, 4096) | names | times, min_size=1, max_size=3),
    reason=names,
    samples=st.integers(0, 1000),
    is_default=st.booleans(),
    ordinal=st.none() | st.integers(1, 5000),
    search=names,
    seed=st.none() | st.integers(0, 2**63 - 1),
    facts=st.dictionaries(names, json_values, max_size=3),
    why=names,
    seconds=st.floats(0, 1e5),
    created=moments,
)


@settings(max_examples=20, deadline=None)
@given(evidence=st.lists(st.tuples(scopes, st.lists(trials, max_size=4)), max_size=3))
def test_a_round_trip_is_lossless(evidence):
    with open_store("sqlite://") as here, open_store("sqlite://") as there:
        for scope, offered in evidence:
            here.record(scope, offered)
        sent = exported(here)
        import_native(there, encode(sent))
        assert exported(there)["entries"] == sent["entries"]
        for scope in there.scopes():
            assert there.trials(scope) == here.trials(scope)
            assert there.lookup(scope.question) == here.lookup(scope.question)


# What is refused


def refusal(data: bytes) -> str:
    with open_store("sqlite://") as store:
        with pytest.raises(BadImport) as caught:
            import_native(store, data)
        assert list(store.scopes()) == []
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not UTF-8"),
        (b"\x1f\x8b\x08\x00", "its compressed data is damaged"),
        (gzip.compress(b"{}" * 999, mtime=0)[:-9], "its compressed data is damaged (it ends early)"),
        (b'{"format": "tilewise", "format": "tilewise"}', "an object holds 'format' twice"),
        (b'{"format": "tilewise", "version": ' + b"9" * 5000 + b"}", "not a usable tilewise export"),
        (b"[" * 100_000, "it is nested too deep"),
        (b"[]", "expected an object, found a list"),
        (b"{}", "its format is None; expected 'tilewise'"),
        (b'{"format": "tilewise"}', "version is missing"),
        (b'{"format": "tilewise", "version": "1"}', "version is '1'; expected a whole number"),
        (b'{"format": "tilewise", "version": true}', "version is True; expected a whole number"),
        (b'{"format": "tilewise", "version": 2}', "its version is 2; this tilewise reads 1: upgrade tilewise"),
        (b'{"format": "tilewise", "version": 1}', "entries is missing"),
        (b'{"format": "tilewise", "version": 1, "entries": {}}', "entries is an object; expected a list"),
        (b'{"format": "tilewise", "version": 1, "entries": []}', "sha256 is missing"),
        (b'{"format": "tilewise", "version": 1, "entries": [], "sha256": ""}', "its checksum does not match"),
        (b'{"format": "tilewise", "version": 1, "entries": [NaN], "sha256": ""}', "holds NaN"),
        (b'{"format": "tilewise", "version": 1, "entries": [1e999], "sha256": ""}', "not a usable tilewise export"),
        (b'{"format": "tilewise", "version": 1, "entries": ["\\ud800"], "sha256": ""}', "not a usable tilewise export"),
    ],
)
def test_an_invalid_export_is_refused(data, complaint):
    assert complaint in refusal(data)


def test_an_edited_export_is_refused(source):
    document = exported(source)
    document["entries"][0]["evidence"][0]["time_us"] = 1.0
    assert "its checksum does not match" in refusal(json.dumps(document).encode())


def test_an_export_cut_short_is_refused(source):
    data = encode(export_native(source, source.scopes()))
    for length in (len(data) // 2, len(data) - 3):
        assert "it is not JSON" in refusal(data[:length])


ABSENT = object()


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("kernel", ABSENT, "kernel is missing"),
        ("kernel", None, "kernel is null; expected a string"),
        ("source_hash", ABSENT, "source_hash is missing"),
        ("dims", [1], "dims is a list; expected an object"),
        ("dims", {"M": 0}, "M is 0; expected a whole number of 1 or more"),
        ("dims", {"M": 1.5}, "dims.M is 1.5; expected true or false, a whole number, a string"),
        ("clock", "guessed", "clock is 'guessed'; expected one of measured, modelled"),
        ("cores", 0, "cores is 0"),
        ("cores", 2**63, "below 2^63"),
        ("toolchain", 3, "toolchain is 3; expected a string"),
        ("evidence", [], "holds no correct and verified trial"),
        ("evidence", ["x"], "trial 1: expected an object, found 'x'"),
        ("config", {"BLOCK_SIZE_M": 7}, "its config is not the best of its evidence"),
        ("time_us", 1.0, "its config is not the best of its evidence"),
    ],
)
def test_an_impossible_entry_is_refused_by_its_number(source, name, value, complaint):
    document = exported(source)
    document["entries"][1][name] = value
    if value is ABSENT:
        del document["entries"][1][name]
    reading = read_native(sealed(document))
    [refused] = reading.refusals
    assert refused.place == "entry 2"
    assert complaint in refused.reason
    assert [offer.place for offer in reading.offers] == ["entry 1"]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("config", ABSENT, "config is missing"),
        ("config", {"BLOCK": [1]}, "config.BLOCK is a list"),
        ("config", {"BLOCK": None}, "config.BLOCK is null"),
        ("status", "won", "status is 'won'; expected one of correct, constraints"),
        ("time_us", -1.0, "time_us is -1.0; expected a positive number"),
        ("time_us", 0, "time_us is 0.0; expected a positive number"),
        ("time_us", None, "it is correct but has no time_us"),
        ("time_us", "fast", "time_us is 'fast'; expected a number"),
        ("time_us", 10**400, "expected a finite number"),
        ("time_us", True, "time_us is True; expected a number"),
        ("p20_us", -2, "p20_us is -2.0"),
        ("samples", -1, "samples is -1"),
        ("samples", 1.0, "samples is 1.0; expected a whole number"),
        ("verified", 1, "verified is 1; expected true or false"),
        ("status", "runtime", "it is verified but its status is runtime"),
        ("ordinal", "first", "ordinal is 'first'"),
        ("seed", 2**70, "below 2^63"),
        ("facts", [], "facts is a list; expected an object"),
        ("seconds", -0.5, "seconds is -0.5"),
        ("created", "yesterday", "created is 'yesterday'; expected an ISO 8601 time with a time zone"),
        ("created", "2026-11-20T15:41:00", "expected an ISO 8601 time with a time zone"),
        ("created", 5, "created is 5; expected an ISO 8601 time with a time zone"),
        ("created", "0001-01-01T00:00:00+14:00", "is out of range in UTC"),
    ],
)
def test_an_impossible_trial_is_refused_by_its_number(source, name, value, complaint):
    document = exported(source)
    trial = document["entries"][0]["evidence"][0]
    trial[name] = value
    if value is ABSENT:
        del trial[name]
    [refused] = read_native(sealed(document)).refusals
    assert refused.place == "entry 1"
    assert refused.reason.startswith("trial 1: ")
    assert complaint in refused.reason


def test_keys_of_a_later_minor_version_are_ignored(source):
    document = exported(source)
    document["entries"][0]["colour"] = "blue"
    document["entries"][0]["evidence"][0]["weather"] = {"rain": True}
    with open_store("sqlite://") as store:
        assert import_native(store, sealed(document)).added == 4
        assert exported(store)["entries"] == exported(source)["entries"]
