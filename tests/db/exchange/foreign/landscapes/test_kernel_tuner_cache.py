"""Kernel Tuner caches that tilewise writes, beside what Kernel Tuner expects of them."""

from __future__ import annotations

import itertools
import json

import pytest

from tilewise.db.exchange.foreign.landscapes.kernel_tuner_cache import encode_cache
from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def store():
    with open_store("sqlite://") as opened:
        yield opened


@pytest.fixture
def cache_of(store, make_scope):
    """A function that writes a cache of these trials."""

    def encode(*trials):
        scope = make_scope(source_hash=f"a{next(NUMBERS)}")
        store.record(scope, trials)
        return encode_cache(store, scope).decode()

    return encode


def test_a_cache_has_a_value_a_line_without_indent_and_ends_as_kernel_tuner_closes_one(cache_of, make_trial):
    """Kernel Tuner removes the last three characters to go on with a cache, if they are these."""
    text = cache_of(make_trial(47.5), make_trial(50.0))
    lines = text.split("\n")
    assert all(line == line.strip() for line in lines)
    assert lines.count('"BLOCK_SIZE_M": 1,') == lines.count('"multibuffer": true,') - 1 == 1
    assert text.endswith("}\n}")
    assert json.loads(text[:-3] + ', "3,True": {}}}')["cache"].keys() == {"1,True", "2,True", "3,True"}


def test_a_cache_names_device_kernel_and_sizes_and_each_value_of_a_parameter_once(cache_of, make_trial):
    configs = [{"BLOCK": block, "fast": fast} for block in (4, 1) for fast in (True, False)]
    cache = json.loads(cache_of(*(make_trial(config=config) for config in configs)))
    assert (cache["device_name"], cache["kernel_name"]) == ("Ascend910B4", "row_reduce")
    assert (cache["problem_size"], cache["objective"]) == ([1000, 8192], "time")
    assert cache["tune_params_keys"] == ["BLOCK", "fast"]
    assert cache["tune_params"] == {"BLOCK": [4, 1], "fast": [True, False]}
    assert list(cache["cache"]) == ["4,True", "4,False", "1,True", "1,False"]


@pytest.mark.parametrize(
    ("seconds", "facts", "compile_ms", "benchmark_ms"),
    [
        (2.5, {"compile_s": 1.5}, 1500.0, 1000.0),
        (2.5, {"compile_s": 2}, 2000.0, 500.0),
        (2.5, {"compile_s": "long"}, 0.0, 2500.0),
        (2.5, {}, 0.0, 2500.0),
        (1.0, {"compile_s": 1.5}, 1500.0, 0.0),  # compiled by another process meanwhile
    ],
)
def test_a_record_has_its_times_in_milliseconds(cache_of, make_trial, seconds, facts, compile_ms, benchmark_ms):
    trial = make_trial(2000.0, seconds=seconds, facts=facts)
    (record,) = json.loads(cache_of(trial))["cache"].values()
    assert (record["time"], record["times"]) == (2.0, [2.0])
    assert (record["compile_time"], record["benchmark_time"]) == (compile_ms, benchmark_ms)
    assert record["verification_time"] == record["strategy_time"] == record["framework_time"] == 0.0
    assert record["timestamp"] == trial.created.isoformat()


@pytest.mark.parametrize(
    ("kept", "times"), [([1500.0, 2500.0], [1.5, 2.5]), ([], [2.0]), ("many", [2.0]), (None, [2.0])]
)
def test_a_record_has_each_time_that_was_kept(cache_of, make_trial, kept, times):
    (record,) = json.loads(cache_of(make_trial(2000.0, facts={"times_us": kept})))["cache"].values()
    assert (record["time"], record["times"]) == (2.0, times)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (Status.CONSTRAINTS, "InvalidConfig"),
        (Status.UNMODELLED, "InvalidConfig"),
        (Status.COMPILE, "CompilationFailedConfig"),
        (Status.RUNTIME, "RuntimeFailedConfig"),
        (Status.TIMEOUT, "RuntimeFailedConfig"),
        (Status.CORRECTNESS, "RuntimeFailedConfig"),
    ],
)
def test_a_failure_is_a_word_in_place_of_its_time(cache_of, make_trial, status, word):
    cache = json.loads(cache_of(make_trial(), make_trial(None, status=status)))["cache"]
    assert (cache["2,True"]["time"], "times" in cache["2,True"]) == (word, False)
