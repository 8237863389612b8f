"""`tilewise retune`, on a database of an older modelled part."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace

import pytest
from places import ROOT

from tilewise.cli import main
from tilewise.cli.commands.tuning import retune
from tilewise.tuner.tuning.retune import Stale

MODEL = ("--device", "model:Ascend910B4")


@pytest.fixture
def older(tmp_path):
    file = tmp_path / "tiles.db"
    file.write_bytes(gzip.decompress((ROOT / "tests" / "golden" / "tiles.db.gz").read_bytes()))
    return ("--db", f"sqlite:///{file}", *MODEL)


@pytest.fixture
def run(capsys):
    """Run the command and return its exit code, stdout and stderr."""

    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main(["retune", *words])
        return ended.value.code, *capsys.readouterr()

    return call


def test_stale_problems_are_listed_and_nothing_is_timed(run, older):
    code, out, err = run("sum_all", "vector_add", *older)
    first, second, last = out.splitlines()
    assert code == 0 and err == ""
    assert first.startswith("vector_add N=1000000 float32: the toolchain was triton-ascend 3.2.0, ")
    assert second.startswith("sum_all N=1000000 float32: ")
    assert last == "2 problems are stale on Ascend910B4; --stale times their best configs again"
    assert json.loads(run("vector_add", *older, "--json")[1])["stale"][0]["moved"] == ["toolchain"]


def test_a_kernel_of_a_users_file_is_named(run, older):
    code, out, err = run(*older)
    assert code == 0 and "row_reduce M=1000,N=8192 float32" in out
    assert "scaled_add is left out: its spec is in a file of your own; name it as path/to/file.py:SPEC" in err


def test_a_budget_leaves_problems_for_the_next_time(run, older):
    code, out, _ = run("sum_all", "vector_add", "--stale", *older, "--budget", "0.01")
    first, last = out.splitlines()
    assert code == 0 and first.startswith("vector_add N=1000000 float32: VARIANT=")
    assert last.startswith("1 problem timed again, ")
    assert last.endswith("; 1 problem left, which the same command times")


def test_the_bests_are_timed_again_once(run, older):
    words = ("sum_all", "--stale", *older)
    code, out, err = run(*words)
    assert code == 0 and "retune search, 9 trials of" in err
    assert out.splitlines()[0].startswith("sum_all N=1000000 float32: VARIANT=")
    assert out.splitlines()[1].startswith("1 problem timed again, ")
    assert run(*words)[1] == "0 problems timed again, 0 with another best\n"
    assert run("sum_all", *older)[1] == "0 problems are stale on Ascend910B4\n"


def test_words_that_make_no_sense_are_refused(run, older):
    for words, said in (
        (("--budget", "3", *older), "--budget limits what is timed; give --stale too"),
        (("--device", "replay:file.json", *older[:2]), "a recorded landscape has no newer toolchain"),
        (("no_such_kernel", *older), "unknown kernel 'no_such_kernel'"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, "") and said in err


def test_of_a_source_that_moved_the_earlier_one_is_named(capsys):
    before = SimpleNamespace(scope=SimpleNamespace(toolchain="model-1", source_hash="4a1391ac0e53b215"))
    device = SimpleNamespace(target=SimpleNamespace(name="Ascend910B4"))
    retune._list([Stale(None, "sum_all N=8", before, ("source",))], device, as_json=False)
    assert capsys.readouterr().out.splitlines()[0] == "sum_all N=8: the source was 4a1391ac"
