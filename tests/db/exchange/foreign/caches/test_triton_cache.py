"""A tuning by triton's autotuner: which values of its key are sizes, and what its configs and times become."""

import math
from datetime import UTC, datetime

import pytest

from tilewise.db.exchange.foreign.caches.triton_cache import Key, _read, split_key
from tilewise.db.records import Status, Trial

WRITTEN = datetime(2026, 11, 23, tzinfo=UTC)
FIELDS = {"kwargs": {"BLOCK": 64}, "num_warps": 8, "num_stages": 3}
CONFIG = {"BLOCK": 64, "num_warps": 8, "num_stages": 3}


@pytest.mark.parametrize("size", [1, 8192, 2**63 - 1])
def test_whole_numbers_that_a_dimension_may_have_are_sizes(size):
    assert split_key([size, "torch.float32", "torch.float32"], ["N"]) == Key({"N": size}, "float32", {})


@pytest.mark.parametrize("value", [0, -1, 2**63, True, False, 1.5, "wide", None])
def test_other_values_of_a_key_are_kept_apart(value):
    key = split_key([8, value, "torch.float16", "torch.float32"], ["N", "OTHER"])
    assert key == Key({"N": 8}, "float16,float32", {"OTHER": value})


def test_of_each_value_of_a_key_without_names_twenty_characters_are_shown():
    with pytest.raises(ValueError, match=f"its key has 2 values \\(8, {'x' * 20}\\); name them in order with --key"):
        split_key([8, "x" * 21, "torch.float32"], ["N"])


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        (0.5, {"time_us": 500.0}),
        (2, {"time_us": 2000.0}),
        ([0.001], {"time_us": 1.0}),
        ([0.5, 0.4, 0.7], {"time_us": 500.0, "p20_us": 400.0, "p80_us": 700.0}),
        ([0.5, 0.4], {"time_us": 500.0}),
        ([0.5, 0.4, 0.7, 0.9], {"time_us": 500.0}),
        ([math.inf, math.inf, math.inf], {"status": Status.RUNTIME, "reason": "triton's autotuner could not run it"}),
    ],
)
def test_times_in_milliseconds_are_a_median_and_two_percentiles_or_the_first_alone(times, kept):
    assert _read([FIELDS, times], WRITTEN) == Trial(CONFIG, **{"status": Status.CORRECT, "created": WRITTEN} | kept)


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"num_ctas": 2, "maxnreg": 128, "ir_override": "a"}, {"num_ctas": 2, "maxnreg": 128, "ir_override": "a"}),
        ({"num_ctas": 1, "maxnreg": None, "ir_override": None, "other": 5}, {}),
        ({"num_warps": 2}, {"num_warps": 2}),
    ],
)
def test_options_of_a_config_are_kept_where_they_are_set(more, kept):
    assert _read([FIELDS | more, 0.5], WRITTEN).config == CONFIG | kept


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ([FIELDS], "expected a config and its times"),
        ([FIELDS, 0.5, 0.6], "expected a config and its times"),
        (FIELDS, "expected a config and its times"),
        (["text", 0.5], "expected an object, found 'text'"),
        ([{}, 0.5], "kwargs is missing"),
        ([FIELDS, []], "its times are not numbers"),
        ([FIELDS, [0.5, "0.6"]], "its times are not numbers"),
        ([FIELDS, True], "its times are not numbers"),
        ([FIELDS, 0.0], "time_us is 0.0; expected a positive number"),
        ([FIELDS, [0.5, 0.4, -1]], "p80_us is -1000.0; expected a positive number"),
        ([FIELDS, [0.5, 10**400]], "too large"),
    ],
)
def test_an_impossible_item_says_what_is_wrong_with_it(item, complaint):
    refused = _read(item, WRITTEN)
    assert isinstance(refused, ValueError) and complaint in str(refused)
