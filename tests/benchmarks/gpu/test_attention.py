"""`bench attention`: its configs, which need no GPU, and the command, which does."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from tilewise.benchmarks.common.cases import SHAPES
from tilewise.benchmarks.gpu import attention
from tilewise.cli import main
from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import enumerate_space

HOPPER = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)


@pytest.mark.parametrize(
    ("kernel", "configs"), [("flash_attention", attention.FLASH), ("decode_attention", attention.DECODE)]
)
def test_every_shape_has_configs_to_be_timed(kernel, configs):
    spec = registry.load(kernel)
    met = set()
    for dims in SHAPES[kernel]:
        space = enumerate_space(spec, make_problem(spec, dims, "bfloat16"), HOPPER)
        found = [index for index, config in enumerate(configs) if space.index(config) is not None]
        assert found
        met.update(found)
    assert met == set(range(len(configs)))


@pytest.mark.needs_gpu
def test_the_command_times_every_shape_and_agrees_with_torch_on_a_gpu(tmp_path):
    file = tmp_path / "attention.json"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "attention", "--rounds", "1", "-o", str(file)])
    assert not ended.value.code
    rows = json.loads(file.read_text())["rows"]
    assert {row["kernel"] for row in rows} == {"flash_attention", "decode_attention"}
    assert all(0 < row["of_theirs"] < 2 for row in rows)
