"""Bytes moved and the least possible, and the reason why a buffer moves more."""

import pytest

from tilewise.kernels.spec import Buffer, KernelSpec, Problem, Tiling
from tilewise.tuner.explain.memory_traffic import traffic

MB = 10**6
PROBLEM = Problem("twice", {"N": MB}, "float32")
SPEC = KernelSpec(
    name="twice",
    summary="",
    function="nowhere:kernel",
    dims=("N",),
    dtypes=("float32",),
    parameters=(),
    buffers=lambda problem: {
        "x": Buffer((MB,), "float32"),
        "w": Buffer((10_000,), "float32"),
        "out": Buffer((MB,), "float32", "out"),
    },
    scratch=lambda config, problem: {"part": Buffer((100_000,), "float32")},
    scalars=lambda problem: {},
    grid=lambda config, problem: (1,),
    tiling=lambda config, problem: Tiling((), 0, 0),
    reference=lambda inputs: {},
    flops=lambda problem: MB,
    default=lambda problem, target: {},
)
LEAST = {"x": (4 * MB, 0), "w": (40_000, 0), "out": (0, 4 * MB)}


def test_the_least_traffic_needs_no_reason():
    assert traffic(SPEC, PROBLEM, {}, LEAST) == {
        "bytes": 8_040_000,
        "least_bytes": 8_040_000,
        "ratio": 1.0,
        "reasons": [],
    }


@pytest.mark.parametrize(
    ("moved", "ratio", "reason"),
    [
        ({"x": (8 * MB, 0)}, 1.498, "x is read 2.0 times: the kernel passes over the data more than once (+50%)"),
        ({"x": (5 * MB, 0)}, 1.124, "x is read 1.25 times: tiles overlap or extend past the edge (+12%)"),
        ({"w": (4 * MB, 0)}, 1.493, "w is read 100 times: each program or sub-tile loads it again (+49%)"),
        ({"out": (4 * MB, 8 * MB)}, 1.995, "out is written 2.00 times and read 1.00 times (+100%)"),
        ({"part": (400_000, 400_000)}, 1.1, "part is scratch between launches, written and read again (+10%)"),
    ],
)
def test_a_buffer_that_moves_more_than_it_must_is_named_with_the_reason(moved, ratio, reason):
    found = traffic(SPEC, PROBLEM, {}, {**LEAST, **moved})
    assert found["ratio"] == pytest.approx(ratio, abs=1e-3)
    assert found["reasons"] == [reason]


def test_the_worst_is_named_first_and_a_trifle_not_at_all():
    found = traffic(SPEC, PROBLEM, {}, {**LEAST, "x": (4 * MB + 100, 0), "w": (MB, 0), "part": (4 * MB, 400_000)})
    assert [reason.split()[0] for reason in found["reasons"]] == ["part", "w"]
