"""Attention of one query per sequence over pages: spaces, the reference by hand, and values of any lengths."""

from __future__ import annotations

import importlib.util
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config, check_tilings, enumerate_space

DECODE = registry.load("decode_attention")
TARGETS = {
    "ascend": Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    "older": Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80),
    "hopper": Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
}

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(b=3, h=4, hkv=2, pages=7, page=16, d=64, dtype="bfloat16"):
    return make_problem(DECODE, {"B": b, "H": h, "HKV": hkv, "PAGES": pages, "PAGE": page, "D": d}, dtype)


# Spaces ----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_the_default_is_in_the_space_whatever_the_shape(name, data):
    kv = data.draw(st.integers(1, 9), "HKV")
    heads, width = kv * data.draw(st.integers(1, 64), "group"), data.draw(st.integers(1, 256), "D")
    sizes = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 5000), st.integers(1, 100)), "B, PAGES and PAGE")
    anything = problem(sizes[0], heads, kv, sizes[1], sizes[2], width)
    assert check_config(DECODE, anything, TARGETS[name], DECODE.default(anything, TARGETS[name])) == ""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sizes", [(64, 32, 8, 256, 16, 128), (1, 64, 8, 16384, 16, 128), (2, 5, 1, 1, 1, 7)])
def test_every_part_has_keys_and_all_programs_are_counted(name, sizes):
    anything = problem(*sizes)
    space = enumerate_space(DECODE, anything, TARGETS[name])
    assert 1 <= len(space) <= 300
    check_tilings(DECODE, anything, list(space.configs))
    for config in space.configs:
        paged, splits = config.get("VARIANT") == "paged", config["SPLITS"]
        assert paged == (name == "ascend")
        page = math.ceil(sizes[4] / config["BLOCK_N"]) * config["BLOCK_N"] if paged else sizes[4]
        keys = sizes[3] * page
        part = math.ceil(keys / splits / config["BLOCK_N"]) * config["BLOCK_N"]
        assert (splits - 1) * part < keys <= splits * part
        assert [launch.grid[0] for launch in DECODE.plan(config, anything)] == [
            sizes[0] * sizes[2] * splits,
            sizes[0] * (sizes[2] if paged else sizes[1]),
        ][: 2 if splits > 1 else 1]


def test_a_block_on_ascend_has_keys_of_one_page():
    domains = enumerate_space(DECODE, problem(2, 32, 8, 512, 40), TARGETS["ascend"]).domains
    assert domains["BLOCK_N"] == (32, 64)
    assert max(enumerate_space(DECODE, problem(1, 32, 8, 512, 7), TARGETS["ascend"]).domains["BLOCK_N"]) == 16


def test_keys_are_divided_only_where_sequences_are_few():
    few, many = (enumerate_space(DECODE, problem(b, 32, 8, 512), TARGETS["hopper"]).domains["SPLITS"] for b in (1, 128))
    assert max(few) == 64
    assert many == (1,)


# Values ----------------------------------------------------------------------------------------------------------


@needs_torch
def test_lengths_and_pages_are_drawn_within_the_tensors():
    import torch

    anything = problem(5, 4, 2, 7, 16)
    tensors = {"table_ptr": torch.empty(5, 7, dtype=torch.int32), "lengths_ptr": torch.empty(5, dtype=torch.int32)}
    DECODE.fill(tensors, anything, torch.Generator().manual_seed(1))
    assert sorted(tensors["table_ptr"].flatten().tolist()) == list(range(35))
    assert all(7 * 16 - 2 * 16 < length <= 7 * 16 for length in tensors["lengths_ptr"].tolist())


@needs_torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_rounded_for_their_product_agree_where_one_key_has_almost_all_of_it(dtype):
    import torch

    generator = torch.Generator().manual_seed(0)
    b, d, keys = 4096, 64, 512
    scores = torch.randn(b, keys, generator=generator)
    few = torch.rand(64, generator=generator) / 50  # weights just over 0.5 lose most when they are rounded
    scores[:64, 0] = scores[:64, 1:].logsumexp(-1) + few
    weights, values = scores.softmax(-1), torch.randn(keys, d, generator=generator)
    rounded = values.to(getattr(torch, dtype)).double()
    found = (weights.to(getattr(torch, dtype)).double() @ rounded).to(getattr(torch, dtype))
    buffers = {"out_ptr": DECODE.buffers(problem(b, 1, 1, 32, 16, d, dtype))["out_ptr"]}
    wanted = weights.double() @ rounded
    for right in (True, False):
        outputs = {"out_ptr": found if right else found * 1.02}
        verdict = compare(outputs, {"out_ptr": wanted}, inputs=100 * b * d, buffers=buffers)
        assert verdict.agreed is right, verdict.reason


@needs_torch
def test_the_reference_is_what_one_gets_by_hand():
    import torch

    b, h, hkv, pages, page, d = 2, 4, 2, 3, 2, 5
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((b, h, d), (b * pages, page, hkv, d), (b * pages, page, hkv, d))
    )
    table, lengths = torch.tensor([[5, 0, 3], [1, 2, 4]]), torch.tensor([5, 1])
    inputs = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "table_ptr": table, "lengths_ptr": lengths}
    found = DECODE.reference_of(problem(b, h, hkv, pages, page, d))(inputs)["out_ptr"]
    for sequence, head in itertools.product(range(b), range(h)):
        places = [(int(table[sequence, key // page]), key % page, head // 2) for key in range(int(lengths[sequence]))]
        weights = [math.exp(float(q[sequence, head] @ k[place]) / d**0.5) for place in places]
        wanted = sum(weight * v[place] for weight, place in zip(weights, places, strict=True)) / sum(weights)
        assert torch.allclose(found[sequence, head], wanted, atol=1e-12)


@pytest.mark.in_part(2)
@needs_torch
@pytest.mark.parametrize(
    ("sizes", "block", "splits", "dtype"),
    [
        ((3, 4, 2, 7, 40, 64), 32, 2, "paged bfloat16"),
        ((2, 6, 1, 3, 5, 80), 16, 1, "paged float16"),
        ((3, 4, 2, 7, 16, 64), 32, 1, "bfloat16"),
        ((3, 4, 2, 7, 16, 64), 32, 3, "float16"),
        ((2, 20, 1, 3, 7, 24), 16, 1, "float16"),
        ((4, 2, 2, 1, 40, 16), 16, 3, "float16"),  # lengths from 1 on: parts without keys
        ((1, 1, 1, 1, 1, 1), 16, 1, "bfloat16"),
        ((2, 6, 1, 9, 5, 80), 16, 2, "bfloat16"),
    ],
)
def test_any_lengths_pages_and_heads_are_right(interpreter, sizes, block, splits, dtype):
    *variant, dtype = dtype.split()
    config = {"BLOCK_N": block, "SPLITS": splits} | ({"VARIANT": variant[0]} if variant else {})
    verdict = interpreter.verify(DECODE, problem(*sizes, dtype), config)
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


WRONG = {
    "a mask of keys beyond the end": ("seen = keys < last", "seen = keys < last + 1"),
    "the rescaling of the values": ("v, acc * shrink[:, None])", "v, acc)"),
    "the rescaling of the sum": ("total = total * shrink + tl.sum", "total = total + tl.sum"),
    "the page table": ("(pages.to(tl.int64) * PAGE", "((keys // PAGE).to(tl.int64) * PAGE"),
    "the weights of parts": ("weights = tl.exp2(weights - tl.max(weights, axis=0))", "weights = tl.exp2(weights * 0)"),
}
"""Mistakes: the right words of `decode.py`, and the wrong ones in their place."""


@pytest.mark.in_part(1)
@needs_torch
@pytest.mark.parametrize("mistake", WRONG)
def test_a_twin_with_one_mistake_is_refused(interpreter, tmp_path, mistake):
    right, wrong = WRONG[mistake]
    text = (ROOT / "kernels/jit/attention/decode.py").read_text()
    assert text.count(right) == 1
    module = f"wrong_decode_{list(WRONG).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(text.replace(right, wrong))
    spec = (ROOT / "kernels/attention/decode.py").read_text()
    spec = spec.replace("import itertools", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport itertools")
    file = tmp_path / "wrong.py"
    file.write_text(spec.replace("tilewise.kernels.jit.attention.decode:", f"{module}:"))
    anything, config = problem(3, 4, 2, 7, 16, 32, "float16"), {"BLOCK_N": 16, "SPLITS": 3}
    assert interpreter.verify(DECODE, anything, config).agreed
    assert not interpreter.verify(registry.load(f"{file}:SPEC"), anything, config).agreed


# On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.needs_gpu
def test_one_part_and_several_are_right_on_a_gpu():
    with cuda.CudaDevice(jobs=4) as device:
        for sizes, dtype in itertools.product([(3, 32, 8, 64, 16, 128), (2, 6, 1, 33, 7, 80)], DECODE.dtypes):
            anything = problem(*sizes, dtype)
            splits = {each["SPLITS"]: each for each in enumerate_space(DECODE, anything, device.target).configs}
            assert len(splits) > 2
            few = [splits[count] for count in (min(splits), sorted(splits)[len(splits) // 2], max(splits))]
            for each in (DECODE.default(anything, device.target), *few):
                verdict = device.verify(DECODE, anything, each)
                assert verdict.agreed, f"{anything} {each}: {verdict.reason}"
