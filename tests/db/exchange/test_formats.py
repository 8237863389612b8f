"""Tests of each export format, read as its target programs read it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import table_readers
import yaml

from tilewise.db.exchange.foreign.caches.triton_module import config_source, encode_module
from tilewise.db.exchange.foreign.landscapes.kernel_tuner_cache import encode_cache
from tilewise.db.exchange.foreign.tables.csv_parquet import COLUMNS, encode_csv, encode_parquet
from tilewise.db.exchange.foreign.tables.flaggems import encode_flaggems
from tilewise.db.exchange.foreign.tables.flaggems_operations import PARAMETERS
from tilewise.db.exchange.foreign.tables.read_table import read_table
from tilewise.db.exchange.foreign.tables.size_tables import LADDER, encode_tables
from tilewise.db.exchange.foreign.tables.vllm import VLLM_TABLES
from tilewise.db.exchange.import_file import About
from tilewise.db.exchange.selection import best_results
from tilewise.db.records import Clock, Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import NotFound, Unavailable, UsageError

H200 = {"device": "NVIDIA H200", "clock": Clock.MEASURED, "cores": 132}


@pytest.fixture
def store():
    with open_store("sqlite://") as opened:
        yield opened


def ladder_of(store, make_scope, make_trial, sizes, **scope: Any) -> None:
    for size in sizes:
        config = {"BLOCK_SIZE_M": size, "BLOCK_SIZE_N": 128, "num_warps": 8, "num_stages": 3}
        trials = [make_trial(5.0, config=config), make_trial(9.0, config=config | {"num_warps": 4})]
        store.record(make_scope(dims={"M": size, "N": 8192}, **H200 | scope), trials)


# The result that is exported for a problem


def test_a_measured_best_goes_before_a_modelled_one_and_a_newer_before_an_older(store, make_scope, make_trial):
    older = make_trial(40)
    newer = make_trial(45, created=older.created + timedelta(days=1))
    store.record(make_scope(), [make_trial(10, created=newer.created + timedelta(days=1))])
    store.record(make_scope(clock=Clock.MEASURED, toolchain="a"), [newer])
    store.record(make_scope(clock=Clock.MEASURED, toolchain="b"), [older])
    [result] = best_results(store, store.scopes())
    assert result.winner == newer
    assert result == store.lookup(make_scope().question)


def test_unverified_configs_are_exported_only_on_request(store, make_scope, make_trial):
    slow, fast = make_trial(50, verified=False), make_trial(40, verified=False)
    store.record(make_scope(), [slow, fast, make_trial(None, status=Status.COMPILE)])
    assert best_results(store, store.scopes()) == []
    [result] = best_results(store, store.scopes(), unverified=True)
    assert result.winner == fast


# triton


def module_of(text: bytes, folder: Path) -> ModuleType:
    path = folder / "configs.py"
    path.write_bytes(text)
    location = importlib.util.spec_from_file_location("exported_configs", path)
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


def test_the_triton_module_gives_configs_of_the_installed_triton(store, make_scope, make_trial, tmp_path):
    triton = pytest.importorskip("triton")
    ladder_of(store, make_scope, make_trial, (16, 32))
    store.record(make_scope(), [make_trial(47.5, config={"BLOCK_SIZE_M": 25, "multibuffer": True})])
    module = module_of(encode_module(best_results(store, store.scopes())), tmp_path)
    best = module.best("row_reduce", "NVIDIA H200", "float32", N=8192, M=32)
    assert isinstance(best, triton.Config)
    assert best.kwargs == {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 128}
    assert (best.num_warps, best.num_stages) == (8, 3)
    assert module.best("row_reduce", "Ascend910B4", "float32", M=1000, N=8192).kwargs["multibuffer"] is True
    assert [config.kwargs["BLOCK_SIZE_M"] for config in module.configs("row_reduce", "NVIDIA H200", "float32")] == [
        16,
        32,
    ]
    with pytest.raises(KeyError):
        module.best("row_reduce", "NVIDIA H200", "float32", M=33, N=8192)


def test_the_triton_module_keeps_problems_with_other_flags_apart(store, make_scope, make_trial, tmp_path):
    pytest.importorskip("triton")
    store.record(make_scope(), [make_trial(47.5, config={"BLOCK_SIZE_M": 25})])
    store.record(make_scope(flags={"causal": True}), [make_trial(47.5, config={"BLOCK_SIZE_M": 50})])
    module = module_of(encode_module(best_results(store, store.scopes())), tmp_path)
    for flags, block in (({}, 25), ({"causal": True}, 50)):
        best = module.best("row_reduce", "Ascend910B4", "float32", M=1000, N=8192, **flags)
        assert best.kwargs["BLOCK_SIZE_M"] == block


def test_the_triton_module_says_how_each_config_is_known(store, make_scope, make_trial):
    store.record(make_scope(), [make_trial(47.58, verified=False)])
    text = encode_module(best_results(store, store.scopes(), unverified=True)).decode()
    assert "# 47.58 us (modelled), NOT verified; 40 cores, source a1, triton-ascend 3.2.0\n" in text


def test_a_config_that_chooses_between_functions_is_no_triton_config(store, make_scope, make_trial):
    store.record(make_scope(kernel="softmax"), [make_trial(config={"VARIANT": "blocks", "BLOCK": 4})])
    with pytest.raises(
        UsageError, match=r"configs of softmax choose between functions \(VARIANT\), which triton.Config"
    ):
        encode_module(best_results(store, store.scopes()))


def test_an_option_of_0_is_not_given_to_triton():
    config = {"BLOCK": 4, "num_warps": 8, "maxnreg": 0, "num_ctas": 2}
    assert config_source(config) == "triton.Config({'BLOCK': 4}, num_warps=8, num_ctas=2)"


def test_hostile_names_stay_data_in_the_triton_module(store, make_scope, make_trial, tmp_path, monkeypatch):
    evil = 'x\n}\nimport os; os.hurt = 1\n#\'"""\u2028'
    store.record(make_scope(kernel=evil, toolchain=evil, source_hash=evil), [make_trial(config={evil: evil, "n": 1})])
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    sys.modules["triton"].Config = lambda kwargs, **options: kwargs
    module = module_of(encode_module(best_results(store, store.scopes())), tmp_path)
    assert module.best(evil, "Ascend910B4", "float32", M=1000, N=8192) == {evil: evil, "n": 1}
    assert not hasattr(__import__("os"), "hurt")


# vLLM and SGLang


def vllm_choice(folder: Path, name: str, m: int) -> dict[str, Any]:
    """Choose by vLLM's documented rule (get_moe_configs): the file of that name, and in it the nearest integer key."""
    table = json.loads((folder / name).read_text())
    table.pop("triton_version", None)
    configs = {int(key): value for key, value in table.items()}
    return configs[min(configs, key=lambda size: abs(size - m))]


def test_tables_answer_by_vllms_rule_with_what_was_tuned(store, make_scope, make_trial, tmp_path):
    ladder_of(store, make_scope, make_trial, LADDER)
    ladder_of(store, make_scope, make_trial, LADDER, dtype="float16")
    files = encode_tables(best_results(store, store.scopes()), VLLM_TABLES, "M")
    assert sorted(files) == [f"N=8192,device_name=NVIDIA_H200{dtype}.json" for dtype in (",dtype=float32", "")]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    name = "N=8192,device_name=NVIDIA_H200,dtype=float32.json"
    for m, rung in ((1, 1), (20, 16), (21, 24), (100, 96), (1025, 1024), (10**6, 4096)):
        won = store.result(make_scope(dims={"M": rung, "N": 8192}, **H200)).winner
        assert vllm_choice(tmp_path, name, m) == dict(won.config)


def test_a_table_with_a_gap_is_not_written(store, make_scope, make_trial):
    ladder_of(store, make_scope, make_trial, (1, 16, 4096))
    results = best_results(store, store.scopes())
    with pytest.raises(NotFound, match=r"would lack M=2, 4, 8, 24, 32, 48, \.\.\., for which its readers"):
        encode_tables(results, VLLM_TABLES, "M")
    assert list(json.loads(next(iter(encode_tables(results, VLLM_TABLES, "M", (1, 16, 4096)).values())))) == [
        "1",
        "16",
        "4096",
    ]


def test_a_table_comes_back_as_suggestions(store, make_scope, make_trial):
    ladder_of(store, make_scope, make_trial, (16, 32))
    [(name, data)] = encode_tables(best_results(store, store.scopes()), VLLM_TABLES, "M", (16, 32)).items()
    reading = read_table(data, name, About(kernel="row_reduce"))
    assert (reading.offers, reading.refusals) == ((), ())
    first, second = reading.suggestions
    assert (first.kernel, first.dims, first.dtype, first.device) == (
        "row_reduce",
        {"N": 8192, "M": 16},
        "float32",
        "NVIDIA H200",
    )
    assert second.config == {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 128, "num_warps": 8, "num_stages": 3}


def test_a_table_by_another_dimension_comes_back_by_it(store, make_scope, make_trial):
    ladder_of(store, make_scope, make_trial, (16, 32))
    results = best_results(store, store.scopes())
    [data] = [
        data for name, data in encode_tables(results, VLLM_TABLES, "N", (8192,)).items() if name.startswith("M=16,")
    ]
    reading = read_table(data, "M=16,device_name=NVIDIA_H200,dtype=float32.json", About(kernel="row_reduce", rung="N"))
    assert [suggestion.dims for suggestion in reading.suggestions] == [{"M": 16, "N": 8192}]


def test_a_hostile_name_does_not_leave_the_folder(store, make_scope, make_trial):
    store.record(make_scope(dims={"M": 1, "../../N": 2}, device="../a/b c", dtype="..\\f\0"), [make_trial()])
    [name] = encode_tables(best_results(store, store.scopes()), VLLM_TABLES, "M", (1,))
    assert not set(name) & set("/\\\0")


# FlagGems


@pytest.fixture
def flag_gems() -> Path:
    if (file := table_readers.wheel("flag_gems")) is None:
        pytest.skip("no wheel of flag-gems in build/readers: make wheels")
    return file


def test_flaggems_own_loader_reads_the_configs_it_would_time(store, make_scope, make_trial, flag_gems):
    triton = pytest.importorskip("triton")
    ladder_of(store, make_scope, make_trial, (16, 32))
    ladder_of(store, make_scope, make_trial, (16,), kernel="own")
    store.record(make_scope(kernel="own", **H200), [make_trial(config={"TILE": 4, "fast": True, "layout": "nz: 1"})])
    loaded = yaml.safe_load(encode_flaggems(best_results(store, store.scopes())))
    assert list(loaded) == ["row_reduce", "own"]
    configs = table_readers.flaggems(flag_gems, loaded, "row_reduce", triton)
    read = [(config.kwargs, config.num_warps, config.num_stages) for config in configs]
    assert read == [({"BLOCK_SIZE_M": size, "BLOCK_SIZE_N": 128}, 8, 3) for size in (16, 32)]
    *_, last = table_readers.flaggems(flag_gems, loaded, "own", triton)
    assert last.kwargs == {"TILE": 4, "fast": True, "layout": "nz: 1"}


@pytest.mark.parametrize(
    ("operation", "config", "meta"),
    [
        (
            "mm",
            {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 16},
            {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16},
        ),
        ("bmm", {"BLOCK_M": 1, "BLOCK_N": 2, "BLOCK_K": 3, "GROUP_SIZE_M": 4}, "TILE_M TILE_N TILE_K GROUP_M"),
        ("addmm", {"TILE_K": 3, "TILE_M": 1, "TILE_N": 2}, "BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K"),
        ("softmax_inner", {"TILE_N": 1, "multibuffer": True}, {"TILE_N": 1, "multibuffer": True}),
        ("masked_fill", {"BLOCK_SIZE": 1, "BLOCK_SIZE_SUB": 2}, "BLOCK_SIZE BLOCK_SIZE_SUB"),
        ("batch_norm", {}, {}),
        ("my_own", {"BLOCK_SIZE_M": 64}, {"BLOCK_SIZE_M": 64}),
    ],
)
def test_parameters_get_the_names_that_flaggems_has_for_them(store, make_scope, make_trial, operation, config, meta):
    store.record(make_scope(kernel="mine"), [make_trial(config=config | {"num_warps": 8})])
    loaded = yaml.safe_load(encode_flaggems(best_results(store, store.scopes()), operation))
    expected = meta if isinstance(meta, dict) else {name: place for place, name in enumerate(meta.split(), 1)}
    assert loaded == {operation: [{"META": expected, "num_warps": 8, "num_stages": 3}]}


@pytest.mark.parametrize(
    ("operation", "config", "message"),
    [
        (
            "mm",
            {"BLOCK_M": 1, "BLOCK_N": 1, "BLOCK_K": 1, "GROUP_M": 8},
            "mm takes BLOCK_M, BLOCK_N, BLOCK_K, not BLOCK_M",
        ),
        ("batch_norm", {"BLOCK": 1}, "batch_norm takes no parameters, not BLOCK"),
        ("masked_fill", {"TILE": 1}, "takes BLOCK_SIZE or BLOCK_SIZE, BLOCK_SIZE_SUB, not TILE"),
        ("{kernel}", {"VARIANT": "a"}, r"choose between functions \(VARIANT\), which FlagGems cannot"),
    ],
)
def test_what_flaggems_could_not_launch_is_refused(store, make_scope, make_trial, operation, config, message):
    store.record(make_scope(), [make_trial(config=config)])
    with pytest.raises(UsageError, match=message):
        encode_flaggems(best_results(store, store.scopes()), operation)


def test_the_known_parameters_are_those_of_flaggems_own_files(flag_gems):
    found: dict[str, set[tuple[str, ...]]] = {}
    for vendor in ("nvidia", "ascend"):
        text = table_readers.source(flag_gems, f"flag_gems/runtime/backend/_{vendor}/tune_configs.yaml")
        for operation, entries in yaml.safe_load(text).items():
            for entry in entries:
                metas = entry["param_map"]["META"] if entry.get("gen") else entry["META"]
                for meta in entry[metas] if isinstance(metas, str) else [metas]:
                    found.setdefault(operation, set()).add(tuple(meta))
    found.pop("test_libentry")  # of its tests
    assert {name: set(parameters) for name, parameters in PARAMETERS.items()} == found


# Tables of trials


def trials_of_every_kind(store, make_scope, make_trial) -> None:
    store.record(make_scope(), [make_trial(47.5, why='a "why",\nof two lines', facts={"waves": 2})])
    store.record(make_scope(**H200), [make_trial(None, status=Status.TIMEOUT, ordinal=None)])


def test_csv_has_one_row_per_trial_with_every_field(store, make_scope, make_trial):
    trials_of_every_kind(store, make_scope, make_trial)
    text = b"".join(encode_csv(store, store.scopes())).decode()
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert tuple(first) == COLUMNS
    assert (first["kernel"], first["clock"], first["cores"], first["status"]) == (
        "row_reduce",
        "modelled",
        "40",
        "correct",
    )
    assert json.loads(first["dims"]) == {"M": 1000, "N": 8192}
    assert json.loads(first["facts"]) == {"waves": 2}
    assert (first["time_us"], first["why"]) == ("47.5", 'a "why",\nof two lines')
    assert (second["time_us"], second["status"], second["device"], second["ordinal"]) == (
        "",
        "timeout",
        "NVIDIA H200",
        "",
    )


def test_parquet_has_typed_columns_and_the_same_rows(store, make_scope, make_trial):
    parquet = pytest.importorskip("pyarrow.parquet")
    trials_of_every_kind(store, make_scope, make_trial)
    table = parquet.read_table(io.BytesIO(encode_parquet(store, store.scopes())))
    assert tuple(table.column_names) == COLUMNS
    assert table.column("time_us").to_pylist() == [47.5, None]
    assert table.column("verified").to_pylist() == [True, False]
    assert table.column("created").to_pylist()[0] == store.trials(make_scope())[0].created
    assert [json.loads(config) for config in table.column("config").to_pylist()] == [
        dict(trial.config) for scope in store.scopes() for trial in store.trials(scope)
    ]
    assert str(table.schema.field("cores").type) == "int64"


def test_parquet_of_nothing_is_a_table_without_rows(store):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(io.BytesIO(encode_parquet(store, []))).num_rows == 0


def test_parquet_without_pyarrow_is_unavailable(store, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'tilewise\[parquet\]'"):
        encode_parquet(store, [])


# Kernel Tuner


def test_kernel_tuners_simulation_mode_finds_the_fastest(store, make_scope, make_trial, tmp_path):
    interface = pytest.importorskip("kernel_tuner.interface")
    configs = [{"BLOCK": block, "fast": fast} for block in (1, 2, 4) for fast in (True, False)]
    trials = [make_trial(10.0 + index, config=config) for index, config in enumerate(configs[:-1])]
    store.record(make_scope(), [*trials, make_trial(None, config=configs[-1], status=Status.COMPILE)])
    path = tmp_path / "cache.json"
    path.write_bytes(encode_cache(store, make_scope()))
    results, environment = interface.tune_cache(str(path), strategy="brute_force", quiet=True)
    times = [result["time"] for result in results if "__error__" not in result]
    assert (len(times), min(times), environment["simulation"]) == (5, 0.01, True)
