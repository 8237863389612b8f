"""Whole tunings of a recorded landscape, and their winners."""

import itertools
import json
import math
import random

import pytest
from places import LANDSCAPES

from tilewise.benchmarks.search.endings import bench_endings
from tilewise.benchmarks.search.judge import landscapes_used_for
from tilewise.tuner.tuning.loop import DEFAULT_TRIALS


@pytest.fixture
def recorded(tmp_path):
    """A row_reduce landscape of 240 configs, best at BLOCK_SIZE_N = 1024 with 8 warps; runs vary by 1%."""

    def write(clock):
        generator, results = random.Random(0), []
        for m, n, warps in itertools.product((1, 2, 4, 8), (128, 256, 512, 1024, 2048), (1, 2, 4, 8, 16, 32)):
            for evict in (False, True):
                config = {"BLOCK_SIZE_M": m, "SUB_BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "num_warps": warps}
                away = abs(math.log2(n) - 10) + abs(math.log2(warps) - 3) + 0.3 * math.log2(m) + 0.2 * evict
                ms = 0.02 * (1 + 0.1 * away)
                times = [ms * (1 + generator.gauss(0, 0.01)) for _ in range(32)]
                results.append(
                    {
                        "configuration": {**config, "num_stages": 1, "EVICT_FIRST": evict},
                        "times": {"runtimes": times if clock == "measured" else []},
                        "invalidity": "correct",
                        "measurements": [{"name": "time", "value": ms, "unit": "ms"}],
                    }
                )
        about = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "dtype": "float32", "cores": 132}
        path = tmp_path / f"{clock}.json"
        path.write_text(
            json.dumps({"metadata": {**about, "device": "NVIDIA H200", "clock": clock}, "results": results})
        )
        return str(path)

    return write


@pytest.mark.full
@pytest.mark.parametrize("clock", ["measured", "modelled"])
def test_tunings_are_judged_by_the_recorded_time_of_what_they_declared(recorded, clock):
    body = bench_endings([recorded(clock)], budgets=(8, 120), seeds=4)
    short, long = (body["budgets"][budget]["landscapes"][0] for budget in ("8", "120"))
    assert (short["tunings"], short["trials"], short["ended_alone"]) == (4, 8, 0)
    assert long["near"] == 4 and long["ended_alone"] == long["ended_alone_near"]
    assert long["ended_alone"] == (4 if clock == "modelled" else 0), "where times are noisy, 120 trials are too few"
    assert 20 <= long["trials"] <= 120 and long["left_worst"] < 0.01 <= short["left_worst"]
    assert body["budgets"]["120"]["all"]["near"] == 4


def test_without_the_prior_a_tuning_knows_the_configs_only(recorded):
    (with_prior, without) = (
        bench_endings([recorded("modelled")], budgets=(8,), seeds=2, prior=prior)["budgets"]["8"]["all"]
        for prior in (True, False)
    )
    assert with_prior["left_worst"] != without["left_worst"]


def test_whole_tunings_of_measured_landscapes_end_near_the_best():
    files = [str(LANDSCAPES / f"{name}-16384x1024-float32-H200.json.gz") for name in ("sum_rows", "layer_norm")]
    ended = bench_endings(files, budgets=(DEFAULT_TRIALS,), seeds=1)["budgets"][str(DEFAULT_TRIALS)]["all"]
    assert (ended["near"], ended["ended_alone"]) == (2, 2)
    assert ended["left_worst"] < 0.02


@pytest.mark.full
def test_whole_tunings_of_every_landscape_of_the_design_end_near_the_best():
    files = [str(file) for file in landscapes_used_for("design")]
    ended = bench_endings(files, budgets=(DEFAULT_TRIALS,), seeds=4)["budgets"][str(DEFAULT_TRIALS)]["all"]
    assert ended["near"] >= 0.97 * ended["tunings"]
    assert ended["ended_alone_near"] >= 0.97 * ended["ended_alone"]
    assert ended["left_worst"] < 0.03  # the modelled ones are of an earlier clock than the prior
