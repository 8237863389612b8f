"""Storage of triton-dejavu, in the form that its source writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tilewise.db.exchange.foreign.caches.dejavu import _tuple
from tilewise.db.exchange.import_file import About
from tilewise.db.exchange.registry import detect, read
from tilewise.db.records import Status
from tilewise.errors import BadImport

WRITTEN = datetime(2026, 11, 23, tzinfo=UTC)
KEY = "(1024, 4096, True, 'torch.float16', 'torch.float16')"
CONFIG = "BLOCK_M: 64, BLOCK_N: 128, EVEN: True, MODE: fast, num_warps: 8, num_ctas: 1, num_stages: 2, maxnreg: None"
ABOUT = About(device="NVIDIA H200", cores=132, key=("M", "N", "CAUSAL"))


def storage(**changes):
    timings = {KEY: {"values": [0.0125, 0.012, 0.013], "lables": ["ms", "min_ms", "max_ms"], "rep_t_ms": 100}}
    return {
        "signature": "JITFunction(my.attention:attention_kernel)",
        "total_bench_time_s": 3.5,
        "evaluated_configs": 12,
        "cache": {KEY: CONFIG},
        "timings": timings,
    } | changes


def imported(about=ABOUT, **changes):
    return read(json.dumps(storage(**changes)).encode(), "cache.json", about, written=WRITTEN)


def test_a_winner_is_a_trial_of_its_key():
    assert detect(json.dumps(storage())).name == "dejavu"
    reading = imported()
    (offer,) = reading.offers
    assert not reading.refusals
    scope, (trial,) = offer.scope, offer.trials
    assert (scope.kernel, scope.dims, scope.problem.flags) == (
        "attention_kernel",
        {"M": 1024, "N": 4096},
        {"CAUSAL": True},
    )
    assert (scope.dtype, scope.device, scope.cores, scope.toolchain) == (
        "float16",
        "NVIDIA H200",
        132,
        "triton-dejavu storage",
    )
    tiles = {"BLOCK_M": 64, "BLOCK_N": 128, "EVEN": True, "MODE": "fast"}
    assert trial.config == {**tiles, "num_warps": 8, "num_stages": 2}
    assert (trial.status, trial.time_us, trial.verified, trial.created) == (Status.CORRECT, 12.5, False, WRITTEN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timings": {}}, "it has no times"),
        ({"timings": {KEY: {"values": ["fast"]}}}, "its times are not numbers"),
        ({"cache": {"1024": CONFIG}}, "its key is not a tuple of values"),
        ({"cache": {KEY: "BLOCK_M"}}, "its config has 'BLOCK_M' where a name and a value were expected"),
        ({"cache": {"(1,)": CONFIG}}, "its key has 1 values (1); name them in order with --key"),
    ],
)
def test_a_bad_entry_is_refused_alone(changes, message):
    good = "(1, 2, False, 'torch.float16')"
    body = storage(**changes)
    body["cache"] = {**body["cache"], good: CONFIG}
    body["timings"] = {**body["timings"], good: {"values": [1.0], "lables": ["ms"]}}
    reading = imported(**body)
    assert len(reading.offers) == 1
    (refusal,) = reading.refusals
    assert message in refusal.reason


def test_a_file_without_its_parts_is_unusable():
    with pytest.raises(BadImport, match="not a usable file of triton-dejavu"):
        imported(cache=[])


@pytest.mark.parametrize(("text", "values"), [("(1, 'x', True)", [1, "x", True]), ("()", []), (" (None,)", [None])])
def test_a_key_is_a_tuple_of_values(text, values):
    assert _tuple(text) == values


@pytest.mark.parametrize("text", ["(", "f(1)", "('a', -'b')", "[1]", "1", "1\0", "{[]: 1}"])
def test_any_other_key_is_refused(text):
    with pytest.raises(ValueError, match=r"^its key is not a tuple of values$"):
        _tuple(text)
