"""The matrix product that judges repeatability."""

from __future__ import annotations

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.space.search_space import check_tilings, enumerate_space

SPEC = "benchmarks/gpu/matrix_product.py:SPEC"

SCRIPT = """
import json, sys
import torch
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import launch

spec = registry.load(sys.argv[1])
problem = Problem(spec.name, {"M": 70, "N": 45, "K": 50}, "float16")
random = torch.Generator().manual_seed(0)
a, b = torch.randn(70, 50, generator=random).half(), torch.randn(50, 45, generator=random).half()
errors = []
for group in (1, 8):
    out = torch.full((70, 45), float("nan"), dtype=torch.float16)
    config = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": group}
    launch(spec, problem, config, {"a_ptr": a, "b_ptr": b, "out_ptr": out})
    wanted = spec.reference({"a_ptr": a.double(), "b_ptr": b.double()})["out_ptr"]
    errors.append(float((out.double() - wanted).abs().max() / wanted.std()))
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def path(request):
    return str(request.config.rootpath / SPEC)


def test_it_agrees_with_float64_where_no_tile_fits_the_shape(interpreted, path):
    pytest.importorskip("triton")
    assert max(interpreted(SCRIPT, path)) < 2e-3


def test_every_tiling_has_the_programs_of_its_grid(path):
    pytest.importorskip("triton")
    spec, target = registry.load(path), known_target("NVIDIA H200", 132)
    problem = Problem(spec.name, {"M": 4096, "N": 1000, "K": 512}, "float16")
    check_tilings(spec, problem, enumerate_space(spec, problem, target).configs)
