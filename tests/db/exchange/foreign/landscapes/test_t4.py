"""Tests of T4 files written by tilewise, and of landscapes that other tools recorded."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import pytest

from tilewise.db.exchange.foreign.landscapes.recording import read_recorded
from tilewise.db.exchange.foreign.landscapes.t4 import Row, export_t4, read_landscape
from tilewise.db.exchange.import_file import About
from tilewise.db.exchange.registry import FORMATS
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport, NotFound


@pytest.fixture
def document(make_scope, make_trial):
    with open_store("sqlite://") as store:
        store.record(
            make_scope(),
            [
                make_trial(47.58, p20_us=47.1, p80_us=48.3, seconds=1.5),
                make_trial(None, status=Status.COMPILE, reason="ub overflow", seconds=0.25),
                make_trial(53.3, status=Status.CORRECTNESS),
            ],
        )
        yield export_t4(store, make_scope())


def test_a_t4_file_follows_the_results_schema(document):
    assert document["schema_version"] == "1.0.0"
    for result in document["results"]:  # as results-schema.json 1.0.0 requires
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["timestamp"], str)
        assert isinstance(result["objectives"], list)
        assert all({"name", "value", "unit"} <= measurement.keys() for measurement in result["measurements"])
    first, second, third = document["results"]
    assert first["times"] == {"runtimes": [0.04758], "total": 1500.0}
    assert first["measurements"][0] == {"name": "time", "value": 0.04758, "unit": "ms"}
    assert [r["invalidity"] for r in (first, second, third)] == ["correct", "compile", "correctness"]
    assert [r["correctness"] for r in (first, second, third)] == [1, 0, 0]
    assert (second["times"]["runtimes"], second["measurements"]) == ([], [])


def test_what_a_model_cannot_judge_is_a_constraint_with_its_reason_and_comes_back(make_scope, make_trial, tmp_path):
    trial = make_trial(None, status=Status.UNMODELLED, reason="the model does not know vmystery")
    with open_store("sqlite://") as store:
        store.record(make_scope(), [trial, make_trial(47.5)])
        (first, second) = export_t4(store, make_scope())["results"]
        document = json.dumps(export_t4(store, make_scope()))
    assert (first["invalidity"], first["correctness"]) == ("constraints", 0)
    assert first["reason"] == "unmodelled: the model does not know vmystery"
    assert "reason" not in second
    (tmp_path / "landscape.json").write_text(document)
    row, _ = read_landscape(tmp_path / "landscape.json").rows
    assert (row.status, row.reason) == (Status.UNMODELLED, "the model does not know vmystery")


def test_a_t4_file_identifies_its_problem(document, make_scope):
    scope, metadata = make_scope(), document["metadata"]
    assert metadata.pop("parameters") == ["BLOCK_SIZE_M", "multibuffer"]
    assert metadata == {
        "kernel": scope.kernel,
        "source_hash": scope.source_hash,
        "dims": {"M": 1000, "N": 8192},
        "dtype": scope.dtype,
        "device": scope.device,
        "clock": "modelled",
        "cores": 40,
        "toolchain": scope.toolchain,
    }


def test_single_repetitions_and_compile_seconds_are_exported_and_read_back(make_scope, make_trial, tmp_path):
    kept = {"times_us": [47.5, 47.25, 51.0], "compile_s": 1.5}
    odd = {"times_us": "many", "compile_s": "long"}  # facts of an import may be anything
    with open_store("sqlite://") as store:
        store.record(make_scope(), [make_trial(47.5, facts=kept), make_trial(53.0, facts=odd)])
        document = export_t4(store, make_scope())
    assert document["results"][0]["times"]["compilation"] == 1500.0
    assert "compilation" not in document["results"][1]["times"]
    (tmp_path / "t4.json").write_text(json.dumps(document))
    rows = read_landscape(tmp_path / "t4.json").rows
    assert [(row.time_us, row.samples_us) for row in rows] == [(47.5, (47.5, 47.25, 51.0)), (53.0, (53.0,))]


def test_a_t4_file_reads_back_as_a_landscape(document, tmp_path):
    path = tmp_path / "landscape.json"
    path.write_text(json.dumps(document))
    landscape = read_landscape(path)
    assert landscape.parameters == ("BLOCK_SIZE_M", "multibuffer")
    assert landscape.metadata == document["metadata"]
    config = {"BLOCK_SIZE_M": 1, "multibuffer": True}
    made = [datetime(2026, 11, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2, 3)]
    assert landscape.rows == (
        Row(config, Status.CORRECT, 47.58, (47.58,), 1.5, 47.1, 48.3, verified=True, created=made[0]),
        Row(config | {"BLOCK_SIZE_M": 2}, Status.COMPILE, None, (), 0.25, created=made[1]),
        Row(config | {"BLOCK_SIZE_M": 3}, Status.CORRECTNESS, None, (), 0.0, created=made[2]),
    )


def test_a_scope_without_trials_has_no_t4_file(make_scope):
    with open_store("sqlite://") as store, pytest.raises(NotFound, match="row_reduce"):
        export_t4(store, make_scope())


def test_a_t4_file_of_kernel_tuner_is_read(tmp_path):
    result = {
        "configuration": {"threads": 64},
        "times": {
            "compilation": 100.0,
            "benchmark": 20.0,
            "validation": 0,
            "search_algorithm": 5000,
            "runtimes": [1, 3],
        },
        "invalidity": "correct",
        "correctness": 1,
    }
    named = result | {"measurements": [{"name": "GFLOP/s", "value": 9}, {"name": "time", "value": 2.5, "unit": "us"}]}
    path = tmp_path / "results.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schema_version": "1.0.0", "results": [result, named]}).encode()))
    landscape = read_landscape(path)
    assert (landscape.parameters, landscape.metadata) == (("threads",), {})
    assert landscape.rows[0] == Row({"threads": 64}, Status.CORRECT, 2000.0, (1000.0, 3000.0), 0.12)
    assert landscape.rows[1].time_us == 2.5


@pytest.mark.parametrize("indent", [None, 1])
def test_a_t4_file_cut_off_anywhere_is_read_up_to_its_last_whole_result(landscape_of, document, indent):
    text, whole = json.dumps(document, indent=indent), landscape_of(json.dumps(document)).rows
    ends = [len(text) - len(text.split(f'"{result["timestamp"]}"', 1)[1]) for result in document["results"]]
    ends = [text.index('"objectives"', end) for end in ends]
    ends = [text.index("}", end) + 1 for end in ends]
    for length in range(ends[0], len(text) + 1):
        assert landscape_of(text[:length]).rows == whole[: sum(end <= length for end in ends)], text[:length][-30:]


@pytest.mark.parametrize(
    ("unit", "us"), [("milliseconds", 2000.0), ("miliseconds", 2000.0), ("microseconds", 2.0), ("seconds", 2e6)]
)
def test_times_are_in_the_unit_that_the_t4_file_names(landscape_of, unit, us):
    times = {"compilation": 3, "runtimes": [1, 3]}
    result = {"configuration": {"threads": 64}, "times": times, "invalidity": "correct", "correctness": 1}
    named = result | {"measurements": [{"name": "time", "value": 2, "unit": ""}]}
    rows = landscape_of(json.dumps({"results": [result, named], "metadata": {"timeunit": unit}})).rows
    assert [row.time_us for row in rows] == [us, us]
    assert (rows[0].samples_us, rows[0].seconds) == ((us / 2, us * 1.5), pytest.approx(us * 1.5e-6))


# Kernel Tuner caches


def t4_of(*changes: dict) -> str:
    result = {"configuration": {"a": 1}, "times": {"runtimes": [1]}, "invalidity": "correct"}
    return json.dumps({"results": [result | change for change in changes]})


def record(threads: int, tile: int, time: object, **more: object) -> dict:
    return {"threads": threads, "tile": tile, "time": time, "strategy_time": 7e6, "timestamp": "2026"} | more


def cache(*records: dict) -> dict:
    return {
        "device_name": "A card",
        "kernel_name": "gemm",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["threads", "tile"],
        "tune_params": {"threads": [32, 64], "tile": [1, 2]},
        "cache": {f"{r['threads']},{r['tile']}": r for r in records},
    }


RECORDS = (
    record(32, 1, 1.25, times=[1.0, 1.5], compile_time=200.0, benchmark_time=50.0, verification_time=0),
    record(32, 2, "CompilationFailedConfig", compile_time=30.0),
    record(64, 1, "InvalidConfig"),
    record(64, 2, "RuntimeFailedConfig"),
)
ROWS = (
    Row({"threads": 32, "tile": 1}, Status.CORRECT, 1250.0, (1000.0, 1500.0), 0.25),
    Row({"threads": 32, "tile": 2}, Status.COMPILE, None, (), 0.03),
    Row({"threads": 64, "tile": 1}, Status.CONSTRAINTS, None, (), None),
    Row({"threads": 64, "tile": 2}, Status.RUNTIME, None, (), None),
)


@pytest.fixture
def landscape_of(tmp_path):
    def read(text: str | bytes):
        path = tmp_path / "cache.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_landscape(path)

    return read


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_a_cache_is_read_plain_and_gzipped(landscape_of, indent, pack):
    landscape = landscape_of(pack(json.dumps(cache(*RECORDS), indent=indent)))
    assert landscape.parameters == ("threads", "tile")
    assert landscape.metadata["kernel_name"] == "gemm"
    assert landscape.metadata["tune_params"] == {"threads": [32, 64], "tile": [1, 2]}
    assert "cache" not in landscape.metadata
    assert landscape.rows == ROWS


@pytest.mark.parametrize("time", ["", "out of memory", None, 0, -1, float("nan"), float("inf"), 1e20])
def test_an_invalid_time_is_a_failed_run(landscape_of, time):
    (row,) = landscape_of(json.dumps(cache(record(32, 1, time, times=[])))).rows
    assert (row.status, row.time_us, row.samples_us) == (Status.RUNTIME, None, ())


def test_an_error_in_a_field_of_its_own_is_read(landscape_of):
    """Kernel Tuner writes errors like this since version 1.5."""
    failed = [
        {name: value for name, value in r.items() if name != "time"} | {"__error__": r["time"]} for r in RECORDS[1:]
    ]
    assert landscape_of(json.dumps(cache(RECORDS[0], *failed))).rows == ROWS


def test_a_cache_whose_compressed_data_is_cut_off_is_read_as_far_as_it_goes(landscape_of):
    records = [record(n, 1, 1.0 + n / 1000) for n in range(1, 500)]
    packed = gzip.compress(json.dumps(cache(*records)).encode())
    rows = landscape_of(packed[: len(packed) // 2]).rows
    assert 100 < len(rows) < 400
    assert rows == landscape_of(packed).rows[: len(rows)]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_cache_cut_off_anywhere_is_read_up_to_its_last_whole_record(landscape_of, indent):
    """At every length that a recorder may leave, no whole record is lost, and none is invented."""
    text = json.dumps(cache(*RECORDS), indent=indent)
    ends = [text.index("}", text.index(f'"{r["threads"]},{r["tile"]}"')) + 1 for r in RECORDS]
    for length in range(ends[0], len(text) + 1):
        whole = sum(end <= length for end in ends)
        assert landscape_of(text[:length]).rows == ROWS[:whole], text[:length][-30:]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it is not JSON"),
        (b"no json", "it is not JSON"),
        (b"\xff\xff", "it is not UTF-8"),
        (b"\x1f\x8b and more", "its compressed data is damaged"),
        (b"[]", "expected an object, found a list"),
        (b"{}", "tune_params_keys is missing"),
        (b'{"results": []}', "its parameter names are missing"),
        (json.dumps(cache()), "it holds no configs"),
        (json.dumps(cache() | {"tune_params_keys": [1]}), "its parameter names are missing"),
        (json.dumps(cache() | {"cache": {"32,1": 5}}), "record '32,1': expected an object, found 5"),
        (json.dumps(cache() | {"cache": {"32,1": {"threads": 32, "tile": 1}}}), "record '32,1': time is missing"),
        (json.dumps(cache() | {"cache": {"32,1": {"threads": 32, "time": 1}}}), "record '32,1': it lacks tile"),
        (json.dumps(cache(record(32, 1, 1.0, times=["x"]))), "record '32,1': its repetitions are not all positive"),
        (json.dumps(cache(*RECORDS)).replace('"tile": 2', '"tile: 2', 1), "it is not JSON"),
        (json.dumps(cache(*RECORDS)).replace("}, ", "}} ", 1), "it is not JSON"),
        (b'{"results": [], "metadata": {"timeunit": "hours"}}', "its unit of time is 'hours'; expected ms, us, ns, s"),
        (
            b'{"results": [{"configuration": {"a": 1}, "times": {}, "invalidity": "odd"}]}',
            "result 1: invalidity is 'odd'",
        ),
        (
            b'{"results": [{"configuration": {"a": 1}, "times": {}, "invalidity": "correct"}]}',
            "result 1: it is correct but",
        ),
        (t4_of({}, {"configuration": {"b": 1}}), "result 2: its configuration names b; expected a"),
        (t4_of({"measurements": [{"name": "time", "value": 0}]}), "result 1: its time is 0.0; expected a positive"),
        (t4_of({"measurements": [{"name": "p80", "value": -1}]}), "result 1: its p80 is -1.0; expected a positive"),
    ],
)
def test_an_invalid_landscape_is_refused(landscape_of, content, complaint):
    with pytest.raises(BadImport) as caught:
        landscape_of(content)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_landscape_is_named(tmp_path):
    with pytest.raises(BadImport, match=r"gone\.json.*No such file"):
        read_landscape(tmp_path / "gone.json")


@pytest.mark.parametrize("name", ["t4", "kernel-tuner"])
def test_a_landscape_is_of_one_problem(make_scope, make_trial, name):
    with open_store("sqlite://") as store:
        store.record(make_scope(), [make_trial(), make_trial()])
        written = FORMATS[name].write(Selection(store, [make_scope()]))
    assert (written.problems, written.is_folder) == (1, False)


def test_repetitions_are_imported_where_there_are_several(make_scope, make_trial):
    repeated = [{"times_us": [47.5, 51.0]}, {"times_us": [47.5]}, {}]
    with open_store("sqlite://") as store:
        store.record(make_scope(), [make_trial(47.5, facts=facts) for facts in repeated])
        data = json.dumps(export_t4(store, make_scope())).encode()
    (offer,) = read_recorded(data, About(), written=datetime(2026, 11, 2, tzinfo=UTC)).offers
    assert [trial.facts for trial in offer.trials] == [{"times_us": [47.5, 51.0]}, {}, {}]
