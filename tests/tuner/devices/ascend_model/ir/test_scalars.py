"""Comparisons of floats by MLIR's numbers of their predicates."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model.ir.scalars import _float_comparison

PAIRS = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)]
ORDERED = [operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne]


def expected(predicate, a, b):
    """Return MLIR's result: 1-6 are false for NaN, 8-13 true."""
    with_nan = math.isnan(a) or math.isnan(b)
    if predicate in (0, 7, 14, 15):
        return {0: False, 7: not with_nan, 14: with_nan, 15: True}[predicate]
    return predicate > 7 if with_nan else ORDERED[(predicate - 1) % 7](a, b)


@pytest.mark.parametrize("predicate", range(16))
def test_each_comparison_is_mlirs_also_for_nan(predicate):
    compare = _float_comparison(predicate)
    for a, b in PAIRS:
        assert bool(compare(np.float32(a), np.float32(b))) is expected(predicate, a, b), (a, b)
