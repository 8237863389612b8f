"""Every kernel under Triton's interpreter at small odd sizes: right outputs, and no access outside the tensors.

A right result does not show a load outside a tensor whose value is thrown away; on a device it may be a fault.
"""

import importlib.util
import itertools
import os
import sys
from random import Random

import pytest
from places import HELPERS

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.space.search_space import _rules, domains
from tilewise.tuner.workers.worker import Worker

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

TARGETS = (
    Target("ascend", "Ascend910B4", 4, 196608, 32, 65535),
    Target("nvidia", "NVIDIA H200", 4, 233472, 16, 2**31 - 1, 90),
)
SIZES = {
    "M": (1, 3, 7, 16, 37),
    "N": (1, 5, 33, 64, 200, 321, 1100),
    "K": (16, 64, 100, 128, 256),
    "C": (1, 3, 5),
    "HW": (1, 7, 50),
    "H": (1, 3, 4),
    "HKV": (1, 2),
    "HALF": (1, 5, 16, 33),
    "E": (2, 7, 16),
    "G": (1, 3, 5),
    "TOPK": (1, 2),
    "B": (1, 2),
    "Q": (1, 17, 40),
    "D": (16, 20),
    "PAGES": (1, 5),
    "PAGE": (1, 16),
}
CASES, DRAWN = 3, 1000
MOST_TRIPS = 24


@pytest.fixture(scope="module")
def watched():
    path = os.pathsep.join([str(HELPERS), *sys.path])
    worker = Worker("watched_kernels:call", env={"TRITON_INTERPRET": "1", "PYTHONPATH": path})
    yield lambda *given: worker.call(*given, timeout=120.0)
    worker.close()


def cases(spec):
    """Draw problems and configs of few trips, of each variant, branch (tiles fit, or do not) and flag in turns."""
    random, found = Random(spec.name), {}
    for _ in range(DRAWN):
        target = random.choice(TARGETS)
        dims = {dim: random.choice(SIZES["M" if dim == "N" and "C" in spec.dims else dim]) for dim in spec.dims}
        flags = {flag.name: random.choice(flag.values) for flag in spec.flags}
        set_flags = {flag.name: flags[flag.name] for flag in spec.flags if flags[flag.name] != flag.values[0]}
        problem = Problem(spec.name, dims, random.choice(spec.dtypes), set_flags)
        config = {name: random.choice(values) for name, values in domains(spec, problem, target).items()}
        if all(rule.holds(config, problem, target) for rule in _rules(spec)) and interpretable(spec, problem, config):
            constants = [value for launch in spec.plan(config, problem) for value in launch.constants.values()]
            branches = [value for value in constants if isinstance(value, bool)]
            alike = found.setdefault((config.get("VARIANT"), *branches), {})
            alike.setdefault((*set_flags.items(),), []).append((problem, config))
    return in_turns([in_turns(alike.values()) for alike in found.values()])[:CASES]


def in_turns(lists):
    return list(filter(None, itertools.chain.from_iterable(itertools.zip_longest(*lists))))


def interpretable(spec, problem, config):
    """Return whether the interpreter runs the config, and soon: it has no Gluon, and fills no tile of 8-bit floats."""
    tiling, variant = spec.tiling(config, problem), config.get("VARIANT")
    eight = any(buffer.dtype.startswith("float8") for buffer in spec.buffers(problem).values() if buffer.role == "in")
    if eight and (spec.name == "fused_moe" or variant == "descriptors" or problem.dims["K"] % config["BLOCK_K"]):
        return False
    return tiling.programs * tiling.trips <= MOST_TRIPS and variant != "hopper"


@pytest.mark.in_part(7)
@pytest.mark.parametrize("name", registry.names())
def test_kernels_are_right_and_touch_nothing_outside_their_tensors(watched, name):
    spec = registry.load(name)
    chosen = cases(spec)
    assert chosen
    for problem, config in chosen:
        assert watched(name, problem, config) == ("", {}), f"{problem} {config}"


@pytest.mark.in_part(2)
@pytest.mark.parametrize("sizes", [(40, 64, 48), (16, 96, 64)])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("flags", [{}, {"column_major": True, "bias": True, "scaled": True, "activation": "gelu"}])
def test_gemm_tiles_are_stored_whole_or_in_two_parts_by_descriptors(watched, sizes, parts, flags):
    problem = Problem("gemm", dict(zip("MNK", sizes, strict=True)), "float16", flags)
    config = {"VARIANT": "descriptors", "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 4, "SPLIT_K": 1}
    config |= {"PROGRAMS": 4, "PARTS_N": parts, "WARP_SPECIALIZE": False, "num_warps": 4, "num_stages": 3}
    assert watched("gemm", problem, config) == ("", {})


def test_an_odd_number_of_pairs_is_sorted_within_its_tensor(watched):
    spec = registry.load("fused_moe")
    problem = Problem("fused_moe", {"M": 3, "E": 2, "N": 16, "K": 16, "TOPK": 1}, "float16")
    config = spec.default(problem, TARGETS[0])
    assert config["VARIANT"] == "sorted"
    assert watched("fused_moe", problem, config) == ("", {})


@pytest.mark.parametrize(
    ("sizes", "block"),
    [
        ((20, 300, 128), 256),  # the last tile has columns of a block of scales beyond the last one
        ((20, 130, 256), 256),
        ((16, 384, 128), 256),
        ((32, 256, 128), 256),
        ((20, 140, 128), 128),  # all columns of a tile share a scale
    ],
)
def test_scales_of_blocks_are_read_within_their_tensors(watched, sizes, block):
    problem = Problem("block_fp8_gemm", dict(zip("MNK", sizes, strict=True)), "float8_e4m3fn")
    config = {"VARIANT": "plain", "BLOCK_M": 16, "BLOCK_N": block, "BLOCK_K": 128, "GROUP_M": 1}
    assert watched("block_fp8_gemm", problem, config) == ("", {})
