"""Tests of importing other tools' files: what is imported, what is refused, and what the caller must give."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tilewise.db.exchange.foreign.landscapes.kernel_tuner_cache import encode_cache
from tilewise.db.exchange.foreign.landscapes.t4 import export_t4
from tilewise.db.exchange.import_file import UNKNOWN_SOURCE, About, Refusal
from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.exchange.registry import detect, read
from tilewise.db.records import Clock, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport, NotFound

WRITTEN = datetime(2026, 11, 21, tzinfo=UTC)
GEMM = About(kernel="gemm", device="NVIDIA H200", dtype="float16", dims={"M": 64, "N": 32}, cores=132)


def reading_of(document, about=GEMM, name="file.json", **options):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read(data, name, about, written=WRITTEN, **options)


def complaint(document, about=GEMM, name="file.json", **options) -> str:
    with pytest.raises(BadImport) as caught:
        reading_of(document, about, name, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# T4 and Kernel Tuner


def test_a_t4_file_written_by_tilewise_reads_back_as_the_same_trials(make_scope, make_trial):
    trials = [
        make_trial(47.58, p20_us=47.1, p80_us=48.3, seconds=1.5, facts={"times_us": [47.5, 47.58, 48.0]}, samples=3),
        make_trial(None, status=Status.COMPILE, seconds=0.25, samples=0),
        make_trial(60.0, verified=False),
        make_trial(61.0, facts={"verified_by": "self"}),
    ]
    with open_store("sqlite://") as store:
        store.record(make_scope(), trials)
        [offer] = reading_of(export_t4(store, make_scope()), About()).offers
    assert offer.scope == make_scope()
    kept = [(t.config, t.status, t.time_us, t.p20_us, t.p80_us, t.verified_by, t.seconds, t.created) for t in trials]
    assert [
        (t.config, t.status, t.time_us, t.p20_us, t.p80_us, t.verified_by, t.seconds, t.created) for t in offer.trials
    ] == kept
    assert [t.verified_by for t in offer.trials] == ["reference", None, None, "self"]


def cache(*records: dict) -> dict:
    return {
        "device_name": "NVIDIA H100",
        "kernel_name": "gemm",
        "problem_size": [64, 32],
        "tune_params_keys": ["threads", "tile"],
        "tune_params": {"threads": [32, 64], "tile": [1, 2]},
        "cache": {f"{record['threads']},{record['tile']}": record for record in records},
    }


@pytest.mark.parametrize("unit", ["milliseconds", "miliseconds"])
def test_trials_of_a_foreign_t4_file_are_unverified_whatever_it_says(unit):
    result = {
        "configuration": {"threads": 32},
        "times": {"runtimes": [1.25]},
        "invalidity": "correct",
        "correctness": 1,
    }
    document = {"schema_version": "1.0.0", "results": [result | {"verified": True}], "metadata": {"timeunit": unit}}
    [offer] = reading_of(document).offers
    assert (offer.scope.source_hash, offer.scope.toolchain) == (UNKNOWN_SOURCE, "T4 file")
    assert [(trial.status, trial.time_us, trial.verified) for trial in offer.trials] == [
        (Status.CORRECT, 1250.0, False)
    ]


def test_a_kernel_tuner_cache_gives_measured_unverified_trials():
    good = {"threads": 32, "tile": 1, "time": 1.25, "times": [1.0, 1.5], "timestamp": "2026-10-01 08:00:00+00:00"}
    failed = {"threads": 64, "tile": 1, "time": "CompilationFailedConfig"}
    [offer] = reading_of(cache(good, failed), About(**{**vars_of(GEMM), "device": ""})).offers
    assert (offer.scope.device, offer.scope.clock, offer.scope.toolchain) == (
        "NVIDIA H100",
        Clock.MEASURED,
        "Kernel Tuner cache",
    )
    assert (offer.scope.source_hash, offer.scope.dims) == (UNKNOWN_SOURCE, {"M": 64, "N": 32})
    first, second = offer.trials
    assert (first.time_us, first.samples, first.verified) == (1250.0, 2, False)
    assert first.created == datetime(2026, 10, 1, 8, tzinfo=UTC)
    assert (second.status, second.created) == (Status.COMPILE, WRITTEN)


def vars_of(about: About) -> dict:
    return {name: getattr(about, name) for name in about.__dataclass_fields__}


def test_a_kernel_tuner_cache_written_by_tilewise_reads_back_with_its_times(make_scope, make_trial):
    trials = [make_trial(47.5, facts={"times_us": [47.5, 48.0]}), make_trial(None, status=Status.COMPILE)]
    with open_store("sqlite://") as store:
        store.record(make_scope(), trials)
        data = encode_cache(store, make_scope())
        with pytest.raises(NotFound, match="has a time"):
            encode_cache(store, make_scope(dtype="float16"))
    assert list(json.loads(data)["cache"]) == ["1,True", "2,True"]  # as Kernel Tuner's simulation mode spells a config
    [offer] = reading_of(data).offers
    read_back = [(trial.config, trial.status, trial.time_us) for trial in offer.trials]
    assert read_back == [(trial.config, trial.status, trial.time_us) for trial in trials]


def test_a_bad_record_is_refused_and_the_others_are_read():
    good, bad = {"threads": 32, "tile": 1, "time": 1.25}, {"threads": 64, "tile": [], "time": 1.0}
    reading = reading_of({**cache(good), "cache": {"32,1": good, "64,1": bad}})
    assert [trial.time_us for trial in reading.offers[0].trials] == [1250.0]
    assert reading.refusals == (
        Refusal("record '64,1'", "config.tile is a list; expected true or false, a whole number, a number, a string"),
    )


@pytest.mark.parametrize(
    ("less", "more", "count", "lost"), [(0, "", 2, 0), (1, "", 2, 0), (2, ",\n", 2, 0), (4, "", 1, 1)]
)
def test_a_cut_cache_loses_its_last_record_and_one_left_open_loses_nothing(less, more, count, lost):
    """Kernel Tuner appends records, and closes a cache when it is done."""
    text = json.dumps(cache(*({"threads": n, "tile": 1, "time": 1.25} for n in (32, 64))))
    reading = reading_of((text[: len(text) - less] + more).encode())
    assert len(reading.offers[0].trials) == count
    assert reading.refusals == (Refusal("after the last whole record", "the file was cut off"),) * lost


@pytest.mark.parametrize(
    ("missing", "option"), [("kernel", "--kernel"), ("dtype", "--dtype"), ("dims", "-s"), ("cores", "--cores")]
)
def test_facts_missing_from_a_foreign_file_must_be_given(missing, option):
    about = About(**{**vars_of(GEMM), missing: type(getattr(GEMM, missing))()})
    assert option in complaint(cache({"threads": 32, "tile": 1, "time": 1.25}), about)


# triton's autotuner


def autotuned(*timings, key=(64, 32, "torch.float16", "torch.float16")) -> dict:
    """Return a cache as `check_disk_cache` of triton 3.6 to 3.9 writes it: config attributes and three times in ms."""
    attributes = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None}
    return {
        "key": list(key),
        "configs_timings": [
            [{"kwargs": kwargs, **attributes, "ir_override": None}, times] for kwargs, times in timings
        ],
    }


def test_a_triton_cache_gives_its_configs_and_times():
    inf = float("inf")
    document = autotuned(({"TILE": 16}, [0.0125, 0.012, 0.013]), ({"TILE": 512}, [inf, inf, inf]))
    about = About(kernel="gemm", device="NVIDIA H200", key=("M", "N"), cores=132)
    [offer] = reading_of(document, about).offers
    assert (offer.scope.dims, offer.scope.dtype) == ({"M": 64, "N": 32}, "float16")
    good, failed = offer.trials
    assert good == Trial(
        {"TILE": 16, "num_warps": 4, "num_stages": 3},
        Status.CORRECT,
        time_us=12.5,
        p20_us=12.0,
        p80_us=13.0,
        created=WRITTEN,
    )
    assert (failed.status, failed.time_us) == (Status.RUNTIME, None)


def test_a_triton_key_must_be_named_in_full():
    about = About(kernel="gemm", device="NVIDIA H200", cores=132)
    assert "its key has 2 values (64, 32); name them in order with --key" in complaint(autotuned(), about)
    named = About(**{**vars_of(about), "key": ("M", "TRANS")})
    message = complaint(autotuned(key=(64, 1.5, "torch.float16")), named)
    assert "its key holds TRANS, which is neither a size nor a flag" in message
    assert "TRANS" in complaint(autotuned(key=(64, "two words", "torch.float16")), named)


def test_truth_values_and_words_of_a_triton_key_are_flags():
    about = About(kernel="gemm", device="NVIDIA H200", cores=132, key=("M", "TRANS", "KIND"))
    document = autotuned(({"TILE": 16}, [0.0125, 0.012, 0.013]), key=(64, True, "wide", "torch.float16"))
    [offer] = reading_of(document, about).offers
    assert (offer.scope.dims, offer.scope.problem.flags) == ({"M": 64}, {"TRANS": True, "KIND": "wide"})


def test_a_bad_config_of_a_triton_cache_is_refused_alone():
    document = autotuned(
        ({"TILE": 16}, [0.0125, 0.012, 0.013]), ({"TILE": [1]}, [1.0, 1.0, 1.0]), ({"TILE": 8}, "fast")
    )
    reading = reading_of(document, About(kernel="gemm", device="NVIDIA H200", key=("M", "N"), cores=132))
    assert len(reading.offers[0].trials) == 1
    assert [refusal.place for refusal in reading.refusals] == ["config 2", "config 3"]


# vLLM and SGLang


def test_a_vllm_table_gives_suggestions_for_the_sizes_of_its_name():
    table = {"triton_version": "3.6.0", "1": {"BLOCK_SIZE_M": 16, "num_warps": 4}, "64": {"BLOCK_SIZE_M": 64}}
    name = "E=8,N=14336,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    about = About(kernel="fused_moe", dtype="bfloat16", dims={"K": 4096})
    reading = reading_of(table, about, name)
    expected = {"E": 8, "N": 14336, "K": 4096, "quant": "fp8_w8a8_128x128"}
    assert [dict(s.shape) for s in reading.suggestions] == [expected | {"M": 1}, expected | {"M": 64}]
    assert {(s.device, s.dtype, s.origin) for s in reading.suggestions} == {
        ("NVIDIA H200", "bfloat16", f"table {name}")
    }
    assert reading.offers == ()
    assert "give --dtype" in complaint(table, About(kernel="fused_moe"), name)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("E=8,N=64,device_name=NVIDIA_H200.json", {}),
        ("E=8,N=64,device_name=NVIDIA_H200_down.json", {"down": True}),
        ("E=8,N=64,device_name=NVIDIA_H200,dtype=int8_w8a16.json", {"quant": "int8_w8a16"}),
        (
            "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 64]_down.json",
            {"quant": "fp8_w8a8_128x64", "down": True},
        ),
        (
            "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True.json",
            {"quant": "fp8_w8a8", "per_channel_quant": True},
        ),
    ],
)
def test_what_a_tables_name_says_beside_sizes_becomes_flags(name, flags):
    [suggestion] = reading_of({"8": {"BLOCK": 16}}, About(kernel="fused_moe", dtype="float16"), name).suggestions
    assert suggestion.problem.flags == flags
    assert (suggestion.dims, suggestion.dtype) == ({"E": 8, "N": 64, "M": 8}, "float16")
    assert suggestion.device == "NVIDIA H200"


def test_bad_rungs_of_a_table_are_refused_alone():
    table = {"1": {"BLOCK": 16}, "0": {"BLOCK": 1}, "many": {"BLOCK": 1}, "64": {"BLOCK": None}, "8": [1]}
    reading = reading_of(table, About(kernel="gemm", dtype="float16"), "N=8,device_name=NVIDIA_H200.json")
    assert len(reading.suggestions) == 1
    assert [refusal.place for refusal in reading.refusals] == ["size 0", "size many", "size 64", "size 8"]


# Detecting the format


def test_formats_are_detected_from_the_text(make_scope, make_trial):
    with open_store("sqlite://") as store:
        store.record(make_scope(), [make_trial()])
        native, t4 = encode(export_native(store, store.scopes())), json.dumps(export_t4(store, make_scope()))
    assert detect(native.decode()).name == "json"
    assert detect(t4).name == "t4"
    assert detect(json.dumps(cache({"threads": 32, "tile": 1, "time": 1.0}))[:-5]).name == "kernel-tuner"
    assert detect(json.dumps(autotuned())).name == "triton"
    assert detect(json.dumps({"16": {"BLOCK": 1}}, indent=4)).name == "vllm"
    for text in ("", "[]", "hello", '{"a": 1}', "!!python/object:os.system"):
        with pytest.raises(BadImport, match="is not recognized; give it with --format"):
            detect(text)


def test_a_pickle_is_refused(tmp_path):
    assert "not a usable file: it is not UTF-8 text" in complaint(b"\x80\x05\x95\x1e\x00\x00\x00")
