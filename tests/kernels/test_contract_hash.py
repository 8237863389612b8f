"""A kernel's source hash covers the arguments, launches and reference of its spec, but not its space."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from places import ROOT

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.source import registered, source_hash
from tilewise.kernels.vector.row_reduce import SPEC

PAGE = (ROOT / "docs" / "spec.md").read_text()
TEXT = re.findall(r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.fixture
def hash_of(tmp_path):
    def load(text: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "mine.py").write_text(text)
        return source_hash(registry.load(f"{folder / 'mine.py'}:SPEC"))

    return load


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('2 * inputs["x_ptr"]', '3 * inputs["x_ptr"]'),
        ('problem.dtype, role="out")', 'problem.dtype, role="inout")'),
        ("scalars=lambda problem: dict(problem.dims)", 'scalars=lambda problem: {"N": problem.dims["N"] - 1}'),
        ("scalars=", "constants=lambda problem: {}, scalars="),
        ("scalars=", "fill=lambda tensors, problem, generator: None, scalars="),
        ('(ceil_div(problem.dims["N"], config["BLOCK_SIZE"]),)', '(ceil_div(problem.dims["N"], 1024),)'),
    ],
)
def test_a_change_of_the_contract_makes_another_kernel(old, new, hash_of):
    assert old in TEXT
    assert hash_of(TEXT.replace(old, new)) != hash_of(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(10, 17)", "range(10, 18)"),
        ('{"BLOCK_SIZE": 1024, "SUB_BLOCK_SIZE": 1024}', '{"BLOCK_SIZE": 2048, "SUB_BLOCK_SIZE": 1024}'),
        ("reference=lambda inputs:", "# what is right\n    reference=lambda inputs:"),
    ],
)
def test_a_config_more_another_default_or_a_comment_does_not(old, new, hash_of):
    assert old in TEXT
    assert hash_of(TEXT.replace(old, new)) == hash_of(TEXT)


def test_a_spec_object_is_found_by_its_name_among_the_registered():
    assert registry.located(SPEC).origin == "row_reduce"


def test_a_spec_object_is_found_in_the_file_of_its_function(tmp_path):
    (tmp_path / "mine.py").write_text(TEXT)
    spec = registry.load(f"{tmp_path / 'mine.py'}:SPEC")
    module = sys.modules[spec.function.fn.__module__]
    assert registry.located(module.SPEC).origin == f"{tmp_path / 'mine.py'}:SPEC"


def test_a_spec_object_without_a_place_is_one_clear_line():
    with pytest.raises(BadSpec, match="cannot be found by other processes"):
        registry.located(dataclasses.replace(SPEC, name="nameless"))


@pytest.mark.parametrize("name", ["row_reduce", "layer_norm_backward", "relu_bias_scale"])
def test_the_contract_of_a_registered_kernel_counts_as_that_of_a_file(name):
    place = registered(name)
    assert Path(place.partition(":")[0]).is_file()
    assert source_hash(registry.load(name)) == source_hash(registry.load(place))
