"""Samples of every kernel's configs with the real Ascend compiler: each is compiled and timed, or has a reason."""

import importlib.util
import math
import random

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

from tilewise.db.records import Status
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.prior.penalties import rank_by_prior
from tilewise.tuner.space.search_space import enumerate_space

SAMPLE = {"float32": 2, "bfloat16": 1}
"""Configs per kernel and dtype, if there are not more variants."""
TRIED = 5
SIZES = {"M": 1000, "N": 4096, "C": 128, "HW": 3136, "H": 32, "HALF": 64, "E": 256, "TOPK": 8}


@pytest.fixture(scope="module")
def device():
    with ModelDevice("Ascend910B4") as opened:
        yield opened


def problem_of(spec, dtype):
    sizes = SIZES | ({"N": 2**20} if spec.dims == ("N",) else {"N": 32} if "HW" in spec.dims else {})
    return Problem(spec.name, {name: sizes[name] for name in spec.dims}, dtype)


def sample(spec, problem, target, count):
    """Draw configs from the whole space, at least one of each variant."""
    configs = list(enumerate_space(spec, problem, target).configs)
    random.Random(spec.name).shuffle(configs)
    one_each = {config.get("VARIANT"): config for config in configs}
    rest = [config for config in configs if config not in one_each.values()]
    return [*one_each.values(), *rest][: max(count, len(one_each))]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", registry.vector_names())
def test_a_config_of_the_space_compiles_or_is_refused_with_its_reason(device, name, dtype):
    spec = registry.load(name)
    problem = problem_of(spec, dtype)
    configs = sample(spec, problem, device.target, SAMPLE[dtype])
    for config, outcome in zip(configs, device.evaluate(spec, problem, configs), strict=True):
        if outcome.status is Status.CORRECT:
            assert 0 < outcome.timing.time_us < 1e5
            assert outcome.facts["on_chip_bits"]["required"] <= outcome.facts["on_chip_bits"]["available"]
        else:
            assert outcome.status is Status.COMPILE, f"{config}: {outcome.status}, {outcome.reason}"
            assert outcome.reason.startswith("UB overflow: "), f"{config}: {outcome.reason}"


@pytest.mark.in_part(1)
@pytest.mark.parametrize("name", registry.vector_names())
def test_transfers_are_the_rooflines_bytes_times_the_traffic_that_the_spec_admits(device, tmp_path, name):
    """A kernel that moves over a tenth more than its least bytes declares this in its tiling, with the reason. Rows in
    the tail of a program's last step count once or twice: some kernels compute them twice, to the same values."""
    spec = registry.load(name)
    problem = problem_of(spec, "float32")
    for config, machines in best_of_each_variant(spec, problem, device.target, tmp_path):
        timed = machines.time("value")
        tiling = spec.tiling(config, problem)
        admitted = tiling.traffic * spec.bytes(problem)
        tails = math.prod(axis.trips * axis.step / min(axis.block, axis.size) for axis in tiling.axes[:-1])
        assert 0.9 * admitted <= timed.bytes_in + timed.bytes_out <= 1.1 * tails * admitted, config


def best_of_each_variant(spec, problem, target, folder):
    """Yield the prior's best config of each variant that compiles, and its machines."""
    configs = rank_by_prior(spec, problem, enumerate_space(spec, problem, target).configs, target)
    for variant in sorted({str(config.get("VARIANT")) for config in configs}):
        mine = [config for config in configs if str(config.get("VARIANT")) == variant]
        made = ((config, *model_config(spec, problem, config, target, folder)) for config in mine[:TRIED])
        yield next((config, machines) for config, outcome, machines in made if outcome.status is Status.CORRECT)
