"""Attention of many queries: spaces, references by hand, and values of any lengths, heads and masks."""

from __future__ import annotations

import importlib.util
import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from places import ROOT

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.attention.flash import _lengths
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.prior.penalties import penalties, score
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config, check_tilings, enumerate_space

FLASH = registry.load("flash_attention")
HOPPER = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
TARGETS = {
    "ascend": Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    "older": Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80),
    "hopper": HOPPER,
    "newer": Target("nvidia", "NVIDIA B200", 148, 233472, 16, 2**31 - 1, 100),
}

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(b=2, h=4, hkv=2, q=100, k=100, d=64, dtype="bfloat16", **flags):
    return make_problem(FLASH, {"B": b, "H": h, "HKV": hkv, "Q": q, "K": k, "D": d, **flags}, dtype)


def config(variant="plain", m=128, n=128, stages=2, warps=8):
    return {"VARIANT": variant, "BLOCK_M": m, "BLOCK_N": n, "NUM_STAGES": stages, "num_warps": warps}


# Spaces ----------------------------------------------------------------------------------------------------------

SIZE = st.one_of(st.integers(1, 300), st.sampled_from([512, 1000, 4096, 100_000]))


@settings(max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_the_default_is_in_the_space_whatever_the_shape(name, data):
    kv = data.draw(st.integers(1, 9), "HKV")
    heads, width = kv * data.draw(st.integers(1, 8), "group"), data.draw(st.integers(1, 256), "D")
    sizes = data.draw(st.tuples(st.integers(1, 40), SIZE, SIZE), "B, Q and K")
    flags = {flag: data.draw(st.booleans(), flag) for flag in ("causal", "packed")}
    anything = problem(sizes[0], heads, kv, sizes[1], sizes[2], width, **flags)
    config = FLASH.default(anything, TARGETS[name])
    assume(FLASH.tiling(config, anything).programs <= TARGETS[name].max_programs)
    assert check_config(FLASH, anything, TARGETS[name], config) == ""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_the_tiling_has_as_many_programs_as_a_launch(name, packed):
    for sizes in ((4, 32, 8, 4096, 4096, 128), (3, 5, 1, 37, 300, 40), (64, 8, 8, 1, 1, 256)):
        anything = problem(*sizes, packed=packed)
        space = enumerate_space(FLASH, anything, TARGETS[name])
        assert 1 <= len(space) <= 100
        check_tilings(FLASH, anything, list(space.configs))


@pytest.mark.parametrize(
    ("changes", "offered"),
    [
        ({}, True),
        ({"causal": True, "packed": True}, True),
        ({"d": 80}, True),
        ({"d": 68}, False),  # rows of the heads are not whole 16 bytes
        ({"d": 256}, False),
        ({"d": 32}, False),
        ({"q": 64}, False),
        ({"k": 64}, False),
    ],
)
def test_hopper_is_for_capability_9_0_alone_and_for_tiles_that_fill_it(changes, offered):
    anything = problem(**{"q": 1000, "k": 1000, "d": 128, **changes})
    for name, target in TARGETS.items():
        found = {each["VARIANT"] for each in enumerate_space(FLASH, anything, target).configs}
        usual = "masked" if name == "ascend" and "packed" not in changes else "plain"
        assert found == ({"plain", "hopper"} if offered and name == "hopper" else {usual})
        assert FLASH.default(anything, target)["VARIANT"] == usual


def test_configs_that_cannot_run_are_left_out():
    """Compiled for 9.0, these take 163,840 bytes and 254 registers, 164,128 and 168, 262,144, and more than 255."""
    usual = problem(4, 32, 8, 4096, 4096, 128)
    fits, hopper = config(), config("hopper", warps=4)
    too_large, spills = config(stages=4), config(warps=4)
    checked = [check_config(FLASH, usual, HOPPER, each) == "" for each in (fits, hopper, too_large, spills)]
    assert checked == [True, True, False, False]


def test_heads_that_share_keys_unevenly_are_refused_with_the_rule():
    with pytest.raises(NothingFeasible, match="H is a multiple of HKV"):
        enumerate_space(FLASH, problem(h=6, hkv=4), HOPPER)


@pytest.mark.parametrize("causal", [False, True])
def test_the_prior_orders_configs_as_they_were_measured(causal):
    """docs/results/h200-attention.json, 8192 queries and keys."""
    usual = problem(4, 32, 8, 8192, 8192, 128, causal=causal)
    measured = [config("hopper", warps=4), config("hopper", n=64, stages=3, warps=4), config()]
    assert all(check_config(FLASH, usual, HOPPER, each) == "" for each in measured)
    scores = [score(penalties(FLASH, usual, each, HOPPER)) for each in measured]
    assert scores == sorted(scores, reverse=True)


# Needs -----------------------------------------------------------------------------------------------------------


def test_bytes_and_operations_are_those_of_the_pairs_that_see_each_other():
    usual = problem(2, 4, 2, 30, 50, 64)
    assert FLASH.bytes(usual) == 2 * 64 * (2 * 2 * 4 * 30 + 2 * 2 * 2 * 50)
    assert FLASH.flops(usual) == 4 * 2 * 4 * 30 * 50 * 64
    for q, k in ((30, 50), (50, 30), (1, 7), (7, 7), (9, 1)):
        seen = sum(max(0, min(k, query + 1 + k - q)) for query in range(q))
        assert FLASH.flops(problem(1, 1, 1, q, k, 64, causal=True)) == 4 * 64 * seen


@pytest.mark.parametrize(("count", "mean"), [(1, 5), (2, 1), (5, 37), (64, 4096)])
def test_packed_lengths_are_uneven_and_add_up(count, mean):
    lengths = _lengths(count, mean)
    assert len(lengths) == count
    assert sum(lengths) == count * mean
    assert min(lengths) >= 1
    assert count == 1 or mean < 5 or len(set(lengths)) > 1


@needs_torch
def test_packed_starts_are_drawn_in_another_order_with_the_same_operations():
    import torch

    packed = problem(5, 4, 2, 37, 50, 64, packed=True)
    found = []
    for seed in range(2):
        starts = {f"{name}_starts_ptr": torch.empty(6, dtype=torch.int32) for name in "qk"}
        FLASH.fill(starts, packed, torch.Generator().manual_seed(seed))
        q, k = (starts[f"{name}_starts_ptr"].diff().tolist() for name in "qk")
        assert (sum(q), sum(k)) == (5 * 37, 5 * 50)
        assert FLASH.flops(packed) == 4 * 4 * 64 * sum(a * b for a, b in zip(q, k, strict=True))
        found.append(q)
    assert found[0] != found[1]
    assert sorted(found[0]) == sorted(found[1])


# Values ----------------------------------------------------------------------------------------------------------


def by_hand(inputs, b, q, k, h, hkv, d, causal, starts=None):
    """Return attention by loops over single queries."""
    import torch

    out = torch.zeros_like(inputs["q_ptr"]).view(-1, h, d)
    queries, keys, values = (inputs[f"{name}_ptr"].flatten(0, 1) for name in "qkv")
    q_starts, k_starts = starts or ([i * q for i in range(b + 1)], [i * k for i in range(b + 1)])
    for sequence, head in itertools.product(range(b), range(h)):
        asked, known = (range(each[sequence], each[sequence + 1]) for each in (q_starts, k_starts))
        for index, query in enumerate(asked):
            last = len(known) - len(asked) + index if causal else len(known) - 1
            weights = [
                math.exp(float(queries[query, head] @ keys[key, head * hkv // h]) / d**0.5)
                for key in known[: max(0, last + 1)]
            ]
            for key, weight in zip(known, weights, strict=False):
                out[query, head] += weight / sum(weights) * values[key, head * hkv // h]
    return out.view(b, q, h, d)


@needs_torch
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_the_reference_is_what_one_gets_by_hand(causal, packed):
    import torch

    b, h, hkv, q, k, d = 2, 4, 2, 5, 4, 3
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in (("q_ptr", (b, q, h, d)), ("k_ptr", (b, k, hkv, d)), ("v_ptr", (b, k, hkv, d)))
    }
    starts = ([0, 7, 10], [0, 3, 8]) if packed else None
    tensors = {f"{n}_starts_ptr": torch.tensor(s) for n, s in zip("qk", starts or (), strict=False)}
    found = FLASH.reference_of(problem(b, h, hkv, q, k, d, causal=causal, packed=packed))({**inputs, **tensors})
    wanted = by_hand(inputs, b, q, k, h, hkv, d, causal, starts)
    assert torch.allclose(found["out_ptr"], wanted, atol=1e-12)
    assert not causal or bool((found["out_ptr"].abs().sum((-1, -2)) == 0).any())  # the first query sees no key


def tiles(m, n):
    return {"VARIANT": "plain", "BLOCK_M": m, "BLOCK_N": n}


@pytest.mark.in_part(3)
@needs_torch
@pytest.mark.parametrize(
    ("sizes", "block", "dtype", "flags"),
    [
        ((2, 2, 1, 33, 70, 40), tiles(16, 32), "float16", {}),
        ((1, 4, 2, 32, 64, 64), tiles(32, 32), "bfloat16", {}),
        ((1, 2, 2, 50, 50, 16), tiles(16, 16), "bfloat16", {"causal": True}),
        ((2, 2, 1, 20, 45, 80), tiles(32, 16), "float16", {"causal": True}),
        ((1, 2, 1, 45, 20, 7), tiles(16, 16), "float16", {"causal": True}),  # queries that see nothing
        ((1, 2, 1, 45, 70, 7), {**tiles(16, 32), "VARIANT": "masked"}, "float16", {"causal": True}),
        ((2, 2, 1, 33, 70, 40), {**tiles(16, 32), "VARIANT": "masked"}, "float16", {}),
        ((5, 2, 1, 17, 21, 32), tiles(16, 16), "bfloat16", {"packed": True}),
        ((1, 1, 1, 1, 1, 1), tiles(16, 16), "float16", {"packed": True}),
        ((3, 1, 1, 1, 9, 24), tiles(16, 16), "bfloat16", {}),
        ((4, 2, 1, 18, 18, 24), tiles(16, 32), "float16", {"causal": True, "packed": True}),
    ],
)
def test_any_lengths_heads_and_masks_are_right(interpreter, sizes, block, dtype, flags):
    verdict = interpreter.verify(FLASH, problem(*sizes, dtype, **flags), block)
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


WRONG = {
    "a mask of keys beyond the end": ("seen = (keys < K)[None, :]", "seen = (keys < K + 1000)[None, :]"),
    "the causal mask": ("seen = seen & (keys[None, :] <= rows[:, None] + offset)", "seen = seen"),
    "the causal offset": ("rows[:, None] + offset)", "rows[:, None])"),
    "the rescaling of the values": ("v, acc * shrink[:, None])", "v, acc)"),
    "the rescaling of the sum": ("higher, total * shrink + tl.sum", "higher, total + tl.sum"),
    "the maximum": ("tl.exp2(scores * factor - higher[:, None])", "tl.exp2(scores * factor)"),
    "the scale": ("SCALE * LOG2_E", "SCALE"),
    "heads that share keys": ("head // (H // HKV)", "head % HKV"),
    "the end of a causal packed sequence": ("mask = (rows < q_size)", "mask = (rows < q_size + 1)"),
    "the search for the sequence": ("+ middle <= block", "+ middle < block"),
}
"""Mistakes: the right words of `flash.py`, and the wrong ones in their place."""


@pytest.mark.in_part(1)
@needs_torch
@pytest.mark.parametrize("mistake", WRONG)
def test_a_twin_with_one_mistake_is_refused(interpreter, tmp_path, mistake):
    right, wrong = WRONG[mistake]
    text = (ROOT / "kernels/jit/attention/flash.py").read_text()
    assert text.count(right) == 1
    module = f"wrong_flash_{list(WRONG).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(text.replace(right, wrong))
    spec = (ROOT / "kernels/attention/flash.py").read_text()
    spec = spec.replace("import itertools", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport itertools")
    file = tmp_path / "wrong.py"
    file.write_text(spec.replace("tilewise.kernels.jit.attention.flash:", f"{module}:"))
    anything = problem(4, 4, 2, 18, 37, 32, "float16", causal="causal" in mistake, packed=True)
    assert interpreter.verify(FLASH, anything, tiles(16, 16)).agreed
    assert not interpreter.verify(registry.load(f"{file}:SPEC"), anything, tiles(16, 16)).agreed


# Without Gluon ---------------------------------------------------------------------------------------------------


@needs_torch
def test_without_gluon_the_function_is_there_and_refuses_to_compile_in_one_clear_line():
    code = """
import sys
sys.modules["triton.experimental.gluon"] = None  # an import of it fails, as with Triton before 3.6
from tilewise.kernels import registry
from tilewise.tuner.measure.launch import resolve_functions

functions = resolve_functions(registry.load("flash_attention"))
print([type(function).__name__ for function in functions])
module = sys.modules["tilewise.kernels.jit.attention.flash_hopper"]
print(module.HAS_GLUON.value)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["['JITFunction', 'JITFunction', 'JITFunction']", "False"], done.stderr
    text = (ROOT / "kernels/jit/attention/flash_hopper.py").read_text()
    body = text[text.index("def flash_attention_hopper_kernel") :].split('"""', 2)[2].lstrip()
    assert body.startswith('gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer')


# On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.needs_gpu
@pytest.mark.parametrize("flags", [{}, {"causal": True}, {"packed": True}, {"causal": True, "packed": True}])
def test_both_variants_are_right_on_a_gpu(flags):
    shapes = [(2, 8, 2, 512, 512, 128), (1, 8, 8, 300, 130, 128), (5, 4, 1, 200, 333, 80), (2, 4, 2, 384, 384, 64)]
    with cuda.CudaDevice(jobs=4) as device:
        for sizes, dtype in itertools.product(shapes, FLASH.dtypes):
            anything = problem(*sizes, dtype, **flags)
            variants = {each["VARIANT"]: each for each in enumerate_space(FLASH, anything, device.target).configs}
            assert (device.target.capability != 90) == ("hopper" not in variants)
            for each in (FLASH.default(anything, device.target), *variants.values()):
                verdict = device.verify(FLASH, anything, each)
                assert verdict.agreed, f"{anything} {each}: {verdict.reason}"
