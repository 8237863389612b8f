"""Tests of the package's public names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tilewise
from tilewise.errors import UsageError
from tilewise.tuner.lookup.resolve import NotTuned


def test_these_names_are_public_and_no_others():
    companions = ["Axis", "Buffer", "Constraint", "Dot", "Flag", "Launch", "Parameter", "Problem", "Target", "Tiling"]
    names = ["Cache", "Client", "KernelSpec", "Match", "NotTuned", "Operator", "Result", "TilewiseError"]
    functions = ["autotune", "harvesting", "lookup", "tune", "tuned"]
    assert tilewise.__all__ == sorted([*companions, "ceil_div", *names, "__version__", *functions])
    assert len(names) + len(functions) <= 15
    for name in tilewise.__all__:
        assert getattr(tilewise, name) is not None
        assert name == "__version__" or getattr(tilewise, name).__doc__
    assert set(tilewise.__all__) <= set(dir(tilewise))


def test_tune_and_tuned_are_the_tuners_too():
    from tilewise.tuner import tune, tuned

    assert (tune, tuned) == (tilewise.tune, tilewise.tuned)


def test_a_result_is_read_as_the_command_line_prints_it(stored):
    scope, trial = stored
    result = tilewise.Result(scope, trial, None, {}, 1.0)
    assert dict(result) == result.to_json()
    assert result["config"] == dict(trial.config)
    assert "time_us" in result and "p20_us" not in result
    with pytest.raises(KeyError, match="nothing"):
        result["nothing"]


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tilewise.nothing


@pytest.mark.parametrize(
    ("code", "kept_out"),
    [
        ("import tilewise; dir(tilewise)", ["click", "numpy", "optuna", "sqlalchemy", "tilewise.errors"]),
        ("import tilewise; tilewise.tuned, tilewise.Operator, tilewise.Cache", ["optuna", "sqlalchemy", "fastapi"]),
    ],
)
def test_importing_brings_in_only_what_is_used(code, kept_out):
    check = f"{code}\nimport sys\nprint([n for n in {[*kept_out, 'torch', 'triton']} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("variables", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_the_command_line_keeps_numpy_to_one_thread_by_default(variables, threads):
    code = """
import os, sys
from tilewise.cli import main
assert "numpy" not in sys.modules
try:
    main(["--version"])
finally:
    print(os.environ["OPENBLAS_NUM_THREADS"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | variables
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[-1] == threads


def test_a_look_up_reads_a_database_and_reports_errors(tmp_path, stored):
    scope, trial = stored
    from tilewise.db.sql.sql_store import open_store

    with open_store(f"sqlite:///{tmp_path / 'tiles.db'}") as store:
        store.record(scope, [trial])
        found = tilewise.lookup("row_reduce", {"M": 1000, "N": 8192}, device="model:Ascend910B4", source=store)
        assert (found.match, dict(found.winner.config)) == ("exact", dict(trial.config))
        with tilewise.Cache(store) as cache:
            assert cache.lookup("row_reduce", {"M": 1001, "N": 8192}, device="Ascend910B4", match="nearest").distance
            with pytest.raises(NotTuned, match="match=exact; tune it, or relax further"):
                cache.lookup("row_reduce", {"M": 1001, "N": 8192}, device="Ascend910B4")
            with pytest.raises(UsageError, match="expected one of exact, older, nearest"):
                cache.lookup("row_reduce", {"M": 1001, "N": 8192}, device="Ascend910B4", match="close")


def test_a_cache_cannot_be_a_server():
    with pytest.raises(UsageError, match="is a server"):
        tilewise.Cache("http://localhost:1")


@pytest.fixture
def stored():
    from tilewise.db.records import Clock, Problem, Scope, Status, Trial
    from tilewise.kernels import registry
    from tilewise.kernels.source import source_hash

    config = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
    known = source_hash(registry.load("row_reduce"))
    scope = Scope(
        Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), known, "Ascend910B4", Clock.MODELLED, "model-1", 40
    )
    return scope, Trial(config, Status.CORRECT, time_us=31.5, samples=1, verified=True)
