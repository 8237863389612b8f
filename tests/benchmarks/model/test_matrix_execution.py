"""Random configs of matrix kernels are executed as compiled, and an interrupted run goes on where it stopped."""

import pytest

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.benchmarks.model import matrix_execution
from tilewise.benchmarks.model.matrix_execution import CASES, Case, bench_matrix, matrix_body
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
