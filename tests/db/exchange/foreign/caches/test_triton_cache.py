"""The key of a tuning by triton's autotuner: which of its values are sizes."""

import pytest

from tilewise.db.exchange.foreign.caches.triton_cache import Key, split_key


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
