"""`bench model`: each published timing has a kernel of the described structure; disagreements count separately."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

from tilewise.benchmarks.model import published_kernels
from tilewise.benchmarks.model.interpreter import InterpreterVerifier
from tilewise.benchmarks.model.judge import judgement, programs
from tilewise.benchmarks.model.judge.cases import published_cases
from tilewise.benchmarks.model.judge.fit import Linear, changed, solve, with_changes
from tilewise.benchmarks.model.judge.judgement import judge
from tilewise.benchmarks.model.judge.pricing import recorded, timed_us
from tilewise.db.records import L2State
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.hardware.ascend_costs import INTERVAL, costs
from tilewise.tuner.measure.launch import resolve_function

CASES = published_cases()
SMALL = {
    "mean_rows": ({"M": 19, "N": 150}, {"BLOCK_SIZE_M": 8, "SUB_BLOCK_SIZE_M": 3, "BLOCK_SIZE_N": 64}),
    "min_all_small": ({"n": 150}, {"BLOCK_SIZE": 64}),
    "min_all_large": ({"n": 1000}, {"BLOCK_SIZE": 300, "SUB_BLOCK_SIZE": 64}),
    "sum_rows_tall": ({"M": 19, "N": 150}, {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 64}),
    "div_broadcast_rows": ({"M": 101, "N": 16}, {"NUM_BLOCKS": 4, "SUB_M": 8}),
}


@pytest.fixture(scope="module")
def verifier():
    verifier = InterpreterVerifier()
    yield verifier
    verifier.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache folder that keeps what the tests of this module compile."""
    return tmp_path_factory.mktemp("cache")


def of(*names):
    return [case for case in CASES if case.id in names]


@pytest.mark.parametrize("name", SMALL)
def test_a_published_kernel_computes_what_it_is_said_to(verifier, name):
    spec = registry.load(f"{Path(published_kernels.__file__)}:{name.upper()}")
    dims, config = SMALL[name]
    dtype = "float16" if name == "div_broadcast_rows" else "float32"
    verdict = verifier.verify(spec, Problem(name, dims, dtype), config)
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_published_config_is_one_of_its_kernels(case):
    spec = case.spec()
    taken = resolve_function(spec, spec.functions()[0]).params
    assert set(case.problem.dims) == set(spec.dims)
    assert case.problem.dtype in spec.dtypes
    assert case.source
    for row in case.rows:
        assert set(row.config) <= {parameter.name for parameter in spec.parameters}
        assert set(row.config) - spec.options() <= {p.name for p in taken if p.is_constexpr}
        assert case.best_us is not None or (row.us is None) == bool(row.failure)


def test_a_case_shown_beside_another_has_its_times():
    for case in CASES:
        if case.beside:
            (other,) = of(case.beside)
            assert [(row.config, row.us) for row in case.rows] == [(row.config, row.us) for row in other.rows]
            assert case.family == other.family


def test_a_program_is_compiled_once(folder, monkeypatch):
    (case,) = of("kb_19_relu")
    first = programs.record(case, case.rows[0].config, folder)
    monkeypatch.setattr(programs, "_compile", None)
    assert programs.record(case, case.rows[0].config, folder).time(costs()) == first.time(costs())


@pytest.mark.full
def test_disagreements_on_what_fits_are_not_timed(folder):
    """An older compiler accepted one and refused the other."""
    timed, disagreements = recorded(of("min_all_large", "div_broadcast_rows"), folder)
    found = {(case.id, *case.rows[index].config.values()): reason for case, index, reason in disagreements}
    assert set(found) == {("min_all_large", 65536, 32768), ("div_broadcast_rows", 40, 1024)}
    assert found["min_all_large", 65536, 32768].startswith("UB overflow")
    assert len(timed) == 7


def test_no_load_of_the_addition_waits_for_a_store(folder):
    """The vendor's example keeps the sum apart from the inputs."""
    (case,) = of("asc_add")
    (step,) = programs.record(case, case.rows[0].config, folder).steps
    flags = [op.attributes for op in step.function.body.walk() if op.name == "hivm.hir.set_flag"]
    assert {(flag["set_pipe"], flag["wait_pipe"]) for flag in flags} == {
        ("PIPE_MTE2", "PIPE_V"),
        ("PIPE_MTE3", "PIPE_V"),
        ("PIPE_V", "PIPE_MTE2"),
        ("PIPE_V", "PIPE_MTE3"),
    }


def test_of_several_configs_the_fastest_stands_beside_a_best_time(folder):
    (case,) = [case for case in CASES if case.best_us is not None][:1]
    (row,), _ = recorded([case], folder)
    alone = [program.time(costs()).time_us for program in row.programs]
    assert row.best == (len(row.programs) > 1)
    assert timed_us(row, costs()) == min(alone)


def test_shipped_figures_bring_two_kernels_near_the_published_times(folder, monkeypatch):
    """The model's docs state the errors of every case; here only a change of the model may not make these worse."""
    monkeypatch.setattr(judgement, "_judged_cases", lambda: of("sum_fused", "mean_rows", "min_all_large"))
    body = judge(folder, refit=False)
    assert body["fit_on_everything"] == {}
    assert len(body["feasibility_disagreements"]) == 1
    summary = body["summary"]
    assert summary["kernels"] == 3
    assert summary["mean_ln_error"] < 0.06
    assert summary["mean_ratio_error"] < 0.06
    assert summary["worst_pick_regret"] < 0.04
    assert summary["median_interval_factor"] == pytest.approx(INTERVAL[1] / INTERVAL[0], rel=1e-3)
    best = [row for row in body["rows"] if row["published_ratio"] == 1]
    assert {row["kernel"] for row in best} == {"sum_fused", "mean_rows", "min_all_large"}


def test_a_left_out_kernel_changes_no_figure(folder, monkeypatch):
    """Its published times may be anything."""

    def times(factor):
        cases = of("kb_19_relu", "kb_21_sigmoid", "mean_rows")
        timed, rest = recorded(cases, folder)
        for row in timed:
            if row.case.id == "kb_19_relu":
                object.__setattr__(row, "us", row.us * factor)
        monkeypatch.setattr(judgement, "recorded", lambda *_: (timed, rest))
        monkeypatch.setattr(judgement, "fitted_names", lambda: ["launch_us", "read_share"])
        return {row["id"]: row["left_out_us"] for row in judge(folder)["rows"]}

    straight, moved = times(1), times(1.5)
    assert moved["kb_19_relu"] == straight["kb_19_relu"]
    assert moved["kb_21_sigmoid"] != straight["kb_21_sigmoid"]


def test_a_fit_finds_planted_figures():
    """On times that depend on the figures as the linear model says."""
    names, slopes = ["launch_us", "l2_share"], np.array([[0.9, 0.0], [0.5, -0.4], [0.1, -0.9], [0.0, -1.0]])
    planted = np.array([0.2, -0.03])
    model = Linear(names, np.zeros(4), slopes, slopes @ planted, np.ones(4))
    found = changed(names, solve(model, np.zeros(2), [True] * 4))
    assert found["launch_us"].value == pytest.approx(with_changes(names, planted)["launch_us"], rel=0.03)
    assert found["l2_share"].value == pytest.approx(with_changes(names, planted)["l2_share"], rel=0.02)


def test_a_twin_that_only_transfers_computes_nothing(folder):
    case = next(case for case in CASES if case.transfers_only)
    program = programs.record(case, case.rows[0].config, folder)
    assert program.time(costs()).pipes_us["V"] == 0
    assert program.time(costs(), L2State.COLD).time_us >= program.time(costs(), L2State.WARM).time_us
