"""Both sides of a question tuned separately on the modelled part; a row without one side has no ratio."""

import pytest

from tilewise.benchmarks.model.variants import QUESTIONS, Question, bench_variants
from tilewise.tuner.devices.ascend_model import toolchain


@pytest.fixture(scope="module")
def device():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    with ModelDevice("Ascend910B4") as opened:
        yield opened


def is_variant(name):
    return lambda config, problem: config["VARIANT"] == name


def question(sides, shapes, published=None):
    return Question("q", "log_softmax", "the claim", sides, shapes, published)


@pytest.mark.full
def test_each_side_wins_with_a_config_of_its_own(device):
    sides = {"online": is_variant("online"), "one_load": is_variant("one_load")}
    heard = []
    body = bench_variants(
        device, [question(sides, [{"M": 200, "N": 1000}], 2.0)], trials=4, progress=lambda text: heard.append(text)
    )
    (row,) = body["rows"]
    assert body["clock"] == "modelled"
    assert {name: side["config"]["VARIANT"] for name, side in row["sides"].items()} == {s: s for s in sides}
    assert row["ratio"] == pytest.approx(row["sides"]["online"]["time_us"] / row["sides"]["one_load"]["time_us"], 1e-3)
    assert (row["fastest"] == "one_load") == (row["ratio"] > 1)
    assert row["published_ratio"] == 2.0
    assert heard == ["log_softmax M=200, N=1000: online", "log_softmax M=200, N=1000: one_load"]


@pytest.mark.full
def test_a_side_that_no_config_is_on_is_absent(device):
    sides = {"online": is_variant("online"), "one_load": is_variant("one_load")}
    (row,) = bench_variants(device, [question(sides, [{"M": 8, "N": 200_000}])], trials=2)["rows"]
    assert set(row["sides"]) == {"online"}
    assert row["fastest"] == "online"
    assert "ratio" not in row


def test_the_projects_questions_name_kernels_and_sides_that_exist(device):
    from tilewise.kernels import registry
    from tilewise.kernels.spec import Problem
    from tilewise.tuner.space.search_space import enumerate_space

    for asked in QUESTIONS:
        spec = registry.load(asked.kernel)
        answered = set()
        for dims in asked.shapes:
            problem = Problem(spec.name, dims, "float32")
            configs = enumerate_space(spec, problem, device.target).configs
            answered |= {name for name, side in asked.sides.items() if any(side(c, problem) for c in configs)}
        assert answered == set(asked.sides)
