"""Files for flash-linear-attention, found and read by its own code, and read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import table_readers
from scopes import changed

from tilewise.db.exchange.foreign.caches.fla import encode_fla, read_fla
from tilewise.db.exchange.import_file import About
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.errors import BadImport, UsageError

KEY = ("H", "D", "VARLEN", "dtype", "dtype", "torch.float32")


def result(h: int, d: int, config: dict[str, Any], **changes: Any) -> Result:
    problem = Problem("delta_fwd[VARLEN=False]", {"H": h, "D": d}, "bfloat16")
    scope = Scope(problem, "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132)
    winner = Trial(config, Status.CORRECT, time_us=9.0, verified=True)
    return Result(changed(scope, **changes), winner, None, {}, 0.0)


RESULTS = [
    result(8, 64, {"BK": 64, "BV": 32, "num_warps": 2, "num_stages": 4}),
    result(8, 128, {"BK": 64, "BV": 64, "num_warps": 4, "maxnreg": 0}),
    result(16, 128, {"BK": 64, "BV": 64, "num_warps": 4}),
]
DEFAULT = {"kwargs": {"BK": 64, "BV": 64}, "num_warps": 4, "num_stages": 3, "num_ctas": 1}


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, data in encode_fla(RESULTS, KEY).items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.fixture
def fla(folder, monkeypatch) -> Callable[[str], dict[str, Any]]:
    """A function that returns FLA's module of cached configs in a mode, with the exported folder as its own."""
    pytest.importorskip("triton")
    if (file := table_readers.wheel("fla_core")) is None:
        pytest.skip("no wheel of fla-core in build/readers: make wheels")

    def load(mode: str) -> dict[str, Any]:
        monkeypatch.setenv("FLA_CONFIG_DIR", str(folder))
        monkeypatch.setenv("FLA_CACHE_MODE", mode)
        return table_readers.fla(file)

    return load


def key_of(module: dict[str, Any], h: int, d: int, last: str = "torch.float32") -> Any:
    return module["AutotuneKey"]((h, d, False, "torch.bfloat16", "torch.bfloat16", last))


def test_fla_finds_the_config_of_each_key(fla):
    module = fla("strict")
    for one, expected in zip(RESULTS, ({**DEFAULT, "kwargs": {"BK": 64, "BV": 32}}, DEFAULT, DEFAULT), strict=True):
        if one is RESULTS[0]:
            expected |= {"num_warps": 2, "num_stages": 4}
        dims = one.scope.dims
        assert module["load_cached_config"]("delta_fwd", key_of(module, dims["H"], dims["D"])) == expected
    assert module["load_cached_config"]("delta_fwd", key_of(module, 32, 64)) is None
    assert module["load_cached_config"]("another", key_of(module, 8, 64)) is None


def test_fla_falls_back_to_the_most_frequent_config(fla):
    assert fla("default")["load_cached_config"]("delta_fwd") == DEFAULT
    module = fla("full")
    assert module["load_cached_config"]("delta_fwd", key_of(module, 8, 64, "torch.float16")) == DEFAULT


def test_flas_autotuner_takes_the_config_without_timing_any(fla):
    triton = pytest.importorskip("triton")
    module = fla("strict")

    def delta_fwd(q, k, o, H, D, VARLEN, BK, BV):  # noqa: N803
        pass

    configs = [triton.Config({"BK": 16, "BV": 16}), triton.Config({"BK": 32, "BV": 32})]
    function = triton.runtime.jit.JITFunction(delta_fwd)
    tuner = module["fla_cache_autotune"](
        configs, key=["H", "D", "VARLEN"], do_bench=lambda *words, **options: pytest.fail("it times a config")
    )(function)
    tensor = type("Tensor", (), {"dtype": "torch.bfloat16"})
    output = type("Tensor", (), {"dtype": "torch.float32"})
    key = module["AutotuneKey"].build(
        tuner.arg_names, ["H", "D", "VARLEN"], (tensor, tensor, output), {"H": 8, "D": 64, "VARLEN": False}
    )
    tuner.maybe_load_cached_config(key=key, nargs={}, runtime_kwargs={})
    [config] = tuner.cache.values()
    assert (config.kwargs, config.num_warps, config.num_stages) == ({"BK": 64, "BV": 32}, 2, 4)


INDENTED = """\
{
  "kernel_name": "größe",
  "default_config": {
    "kwargs": {
      "BK": 64
    },
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1
  },
  "autotune_entries": {
    "1704085a3e1ee10d8d141adea0ae7413": {
      "autotune_key": [
        8,
        "torch.bfloat16"
      ],
      "config": {
        "kwargs": {
          "BK": 64
        },
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1
      }
    }
  }
}
"""


def test_a_file_is_indented_text_that_people_can_read_and_compare():
    [data] = encode_fla([result(8, 64, {"BK": 64}, kernel="größe")], ("H", "dtype")).values()
    assert data.decode() == INDENTED


def test_a_file_comes_back_as_suggestions(folder):
    about = About(device="NVIDIA H200", key=KEY[:3])
    reading = read_fla((folder / "delta_fwd.json").read_bytes(), "delta_fwd.json", about)
    assert reading.refusals == ()
    first, *_ = reading.suggestions
    assert (first.kernel, first.shape, first.dtype) == (
        "delta_fwd",
        {"H": 8, "D": 64, "VARLEN": False},
        "bfloat16,float32",
    )
    assert first.config == {"BK": 64, "BV": 32, "num_warps": 2, "num_stages": 4}
    with pytest.raises(BadImport, match="it does not name its device; give --device"):
        read_fla((folder / "delta_fwd.json").read_bytes(), "delta_fwd.json", About(key=KEY[:3]))


def test_a_bad_entry_is_refused_alone():
    good = {"autotune_key": [8, "torch.float16"], "config": {"kwargs": {"BK": 16}, "num_warps": 4}}
    bad = {"autotune_key": [None, "torch.float16"], "config": {"kwargs": {}}}
    document = {
        "autotune_entries": {"a": good, "b": bad, "c": {"autotune_key": []}, "d": good | {"autotune_key": [1, 2]}}
    }
    reading = read_fla(json.dumps(document).encode(), "f.json", About(device="NVIDIA H200", key=("D",)))
    assert [suggestion.kernel for suggestion in reading.suggestions] == ["f"]
    assert [(refusal.place, refusal.reason[:40]) for refusal in reading.refusals] == [
        ("entry b", "its key holds D, which is neither a size"),
        ("entry c", "config is missing"),
        ("entry d", "its key has 2 values (1, 2); name them i"),
    ]


@pytest.mark.parametrize(
    ("results", "key", "message"),
    [
        (RESULTS, ("H", "T"), r"--key names T, which .* does not have; expected H, D, VARLEN, dtype, torch.float32"),
        (RESULTS, ("H", "dtype"), r'delta_fwd.json would hold two configs for the key \[8, "torch.bfloat16"\]'),
        ([*RESULTS, result(8, 64, {"BK": 1}, device="NVIDIA B200")], KEY, "would mix NVIDIA H200 and NVIDIA B200"),
        ([result(8, 64, {"VARIANT": "a"})], KEY, r"choose between functions \(VARIANT\), which a file of FLA"),
        ([result(8, 64, {}, dtype="bfloat16,float32")], KEY, "--key names dtype, which"),
    ],
)
def test_what_fla_could_not_find_is_refused(results, key, message):
    with pytest.raises(UsageError, match=message):
        encode_fla(results, key)


def test_each_device_may_have_a_folder():
    results = [*RESULTS, result(8, 64, {"BK": 1}, device="NVIDIA B200")]
    assert list(encode_fla(results, KEY, "{device}/{kernel}.json")) == [
        "NVIDIA_H200/delta_fwd.json",
        "NVIDIA_B200/delta_fwd.json",
    ]


def test_a_name_that_is_no_part_of_a_path_makes_no_folder():
    one = result(8, 64, {"BK": 1}, kernel="../ops/delta fwd[VARLEN=False]")
    assert list(encode_fla([one], KEY)) == [".._ops_delta_fwd.json"]


def test_a_flag_that_a_problem_leaves_out_has_its_default_in_the_key():
    plain_one, causal = (result(8, 64, {"BK": 1}, kernel="attention", flags=f) for f in ({}, {"causal": True}))
    flags = {"attention": {"causal": False}, "another": {"causal": "never"}}
    [data] = encode_fla([plain_one, causal], ("H", "causal", "dtype"), defaults=flags).values()
    keys = [entry["autotune_key"] for entry in json.loads(data)["autotune_entries"].values()]
    assert keys == [[8, False, "torch.bfloat16"], [8, True, "torch.bfloat16"]]
    with pytest.raises(UsageError, match="--key names causal, which"):
        encode_fla([plain_one], ("H", "causal", "dtype"))
