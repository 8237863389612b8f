"""Random configs of matrix kernels are executed as compiled, and an interrupted run goes on where it stopped."""

import random

import pytest

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.benchmarks.model import matrix_execution
from tilewise.benchmarks.model.matrix_execution import CASES, Case, bench_matrix, matrix_body
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.settings import read_settings

PART = "Ascend910B4"


@pytest.fixture
def rows(tmp_path):
    """A function that executes one config of a case; later calls find it in the journal."""

    def execute(case, seed=0):
        folder = read_settings().cache_folder
        return list(bench_matrix(PART, folder, tmp_path / "rows.jsonl", count=1, seed=seed, cases=[case]))

    return execute


def test_five_kernels_are_executed_in_three_dtypes_each():
    dtypes = {name: {case.dtype for case in CASES if case.kernel == name} for name in {case.kernel for case in CASES}}
    assert len(dtypes) == 5
    assert all({"float16", "bfloat16", "float32"} <= each for each in dtypes.values())


def test_a_row_that_the_journal_holds_is_not_executed_again(rows, monkeypatch):
    case = Case("gemm", "float16", {})
    found = rows(case)
    body = matrix_body(found, PART, 0, 1)
    assert (body["summary"]["configs"], body["summary"]["agree_with_float64"]) == (1, 1)
    assert body["summary"]["not_compiled"] == len(found) - 1
    monkeypatch.setattr(matrix_execution, "_row", lambda *unused: pytest.fail("executed again"))
    assert rows(case) == found
    with pytest.raises(pytest.fail.Exception):
        rows(case, seed=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.dtype}")
def test_every_case_has_arguments(case):
    spec = registry.load(case.kernel)
    problem = Problem(case.kernel, matrix_execution.SIZES[case.kernel](random.Random(0)), case.dtype, case.flags)
    assert spec.bytes(problem) > 0


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A function that lists the draws of two cases, every first of which the compiler refuses."""

    def row(spec, case, draw, target, folder):
        refused = case.dtype not in seen
        seen.add(case.dtype)
        return {"kernel": spec.name, "dtype": case.dtype, "flags": {}} | ({"refused": "too large"} if refused else {})

    def draws(count, minutes=None):
        cases = [Case("gemm", dtype, {}) for dtype in ("float16", "bfloat16")]
        options = {"count": count, "seed": 0, "cases": cases, "minutes": minutes}
        return list(bench_matrix(PART, read_settings().cache_folder, tmp_path / "rows.jsonl", **options)), cases

    seen = set()
    monkeypatch.setattr(matrix_execution, "_row", row)
    return draws


def test_cases_take_turns(listed):
    rows, _ = listed(2)
    assert [row["dtype"] for row in rows] == ["float16", "bfloat16"] * 3
    assert ["refused" in row for row in rows] == [True, True, False, False, False, False]


def test_after_its_time_a_run_has_what_the_journal_holds(listed):
    kept, _ = listed(1)
    rows, cases = listed(3, minutes=0)
    assert rows == kept
    executed = [row | {"verdict": {"agreed": True}} for row in rows if "refused" not in row]
    body = matrix_body(executed, PART, 0, 3, cases)
    assert (body["summary"]["configs"], body["summary"]["configs_asked"]) == (2, 6)
    assert [case["configs"] for case in body["summary"]["cases"]] == [1, 1]
