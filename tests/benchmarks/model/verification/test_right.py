"""Right kernels at odd shapes: which configs are verified, what is counted, and a run that goes on."""

import pytest

from tilewise.benchmarks.model.verification import right
from tilewise.benchmarks.model.verification.right import (
    MATRIX_PROBLEMS,
    ODD_DIMS,
    bench_right,
    configs_of,
    problems_of,
    right_body,
)
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.measure.comparison import disagreement
from tilewise.tuner.measure.outcome import Verdict

PART = "Ascend910B4"


@pytest.fixture
def target(tmp_path):
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    return toolchain.target(PART, tmp_path)


def test_the_default_comes_first_and_no_config_twice(target):
    spec = registry.load("softmax")
    configs = configs_of(spec, Problem("softmax", {"M": 33, "N": 301}, "float32"), target)
    assert dict(configs[0]) == dict(spec.default(Problem("softmax", {"M": 33, "N": 301}, "float32"), target))
    assert len({str(sorted(config.items(), key=str)) for config in configs}) == len(configs) > 1


def test_matrix_kernels_are_verified_in_the_dtypes_that_cube_cores_have(target):
    assert set(MATRIX_PROBLEMS) == set(registry.names()) - set(registry.vector_names()) - {"block_fp8_gemm"}
    problems = [problem for name in MATRIX_PROBLEMS for problem in problems_of(registry.load(name))]
    assert {problem.dtype for problem in problems} == {"float32", "float16", "bfloat16", "int8"}
    assert all(configs_of(registry.load(problem.kernel), problem, target) for problem in problems)


def test_outcomes_are_counted_and_a_run_goes_on(target, tmp_path, monkeypatch):
    verdicts, calls = {1: disagreement("wrong"), 2: disagreement("too large", status=Status.COMPILE)}, []

    def verify(spec, problem, config, target, folder):
        calls.append(config)
        return verdicts.get(len(calls), Verdict(agreed=True, error=0.0, tolerance=1.0))

    monkeypatch.setattr(right, "verify_compiled", verify)
    rows = list(bench_right(PART, tmp_path, tmp_path / "journal.jsonl", ["vector_add"]))
    body = right_body(rows, "tilewise bench right", PART)
    outcomes = body["summary"]["outcomes"]
    assert (outcomes["refused"], outcomes["not compiled"], outcomes["accepted"]) == (1, 1, len(rows) - 2)
    assert [row["outcome"] for row in body["not_accepted"]] == ["refused", "not compiled"]
    assert body["summary"]["problems"] == 3 * len(ODD_DIMS["N",])
    done = len(calls)
    assert list(bench_right(PART, tmp_path, tmp_path / "journal.jsonl", ["vector_add"])) == rows
    assert len(calls) == done
