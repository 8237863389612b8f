"""The study of mutants: what is refused, what the oracle separates, its journal, and its summary."""

import json
from concurrent.futures import Future
from typing import ClassVar

import pytest

from tilewise.benchmarks.model.mutants import study
from tilewise.benchmarks.model.mutants.source import all_mutants, sample
from tilewise.benchmarks.model.mutants.study import mutants_body, try_mutants
from tilewise.benchmarks.model.mutants.trial import (
    DRAWS_PER_PROBLEM,
    LARGE_DIMS,
    ORACLE_DIMS,
    VERIFIED_DIMS,
    try_mutant,
    users,
)
from tilewise.cli import main
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain

DEVICE = "model:Ascend910B4"


def found(module, function, change):
    (mutant,) = [m for m in all_mutants() if (m.module, m.function, m.change) == (module, function, change)][:1]
    return mutant


@pytest.fixture
def tried():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)

    def call(mutant, agreed=()):
        return try_mutant(mutant, DEVICE, read_settings().cache_folder, 0, agreed)

    return call


def test_the_oracle_uses_problems_of_its_own_and_enough_of_them():
    for names, dims in ORACLE_DIMS.items():
        assert len({tuple(d.items()) for d in dims}) == len(dims) >= 20
        assert len(dims) * DRAWS_PER_PROBLEM >= 50
        assert not any(d in VERIFIED_DIMS[names] for d in dims)


@pytest.mark.full
def test_a_mutant_of_a_helper_is_tried_in_the_kernels_that_use_it():
    assert set(users(found("reduce", "_add", "+ -> -"))) >= {"sum_all", "sum_rows"}
    assert users(found("row_reduce", "row_reduce_kernel", "int64 -> int16")) == ["row_reduce"]


def test_a_wrong_mutant_is_refused(tried):
    row = tried(found("row_reduce", "row_reduce_kernel", '"-inf" -> 0.0'))
    assert row["outcome"] == "refused"
    assert row["kernel"] == "row_reduce"


@pytest.mark.full
def test_a_mutant_without_effect_agrees_and_the_oracle_cannot_separate_it(tried, monkeypatch):
    mutant = found("layer_norm", "layer_norm_backward_atomic_kernel", "cols < N -> None")
    row = tried(mutant)
    assert row["outcome"] == "agreed"
    assert LARGE_DIMS["M", "N"] in [at["dims"] for at in row["verified"]]
    monkeypatch.setitem(ORACLE_DIMS, ("M", "N"), ORACLE_DIMS["M", "N"][4:7])
    judged = tried(mutant, row["verified"])
    assert (judged["outcome"], judged["problems"], judged["draws"]) == ("equivalent", 3, 9)


@pytest.mark.full
def test_a_mutant_that_is_wrong_on_a_large_problem_only_is_refused_there(tried):
    row = tried(found("row_reduce", "row_reduce_kernel", "int64 -> int16"))
    assert (row["outcome"], row["dims"]) == ("refused", LARGE_DIMS["M", "N"])
    assert "uses element -" in row["reason"]


@pytest.mark.full
def test_the_oracle_separates_a_mutant_that_verification_is_said_to_have_missed(tried, monkeypatch):
    mutant = found("row_reduce", "row_reduce_kernel", '"-inf" -> 0.0')
    row = tried(mutant)
    at = {name: row[name] for name in ("kernel", "dims", "dtype", "config")}
    monkeypatch.setitem(ORACLE_DIMS, ("M", "N"), ORACLE_DIMS["M", "N"][4:7])
    judged = tried(mutant, [at])
    assert judged["outcome"] == "survived"
    assert judged["oracle"].startswith("out_ptr: off by")
    assert judged["refused_there"]


class Scripted:
    """A pool of workers that answer without trying anything."""

    calls: ClassVar[list[str]] = []

    def __init__(self, entry, size, **options):
        self.compares = entry.endswith(":compare")

    def submit(self, mutant, device, folder, seed, agreed=(), different=(), **limits):
        self.calls.append(mutant.name)
        future = Future()
        future.set_result({"seconds": 1.0} | self.found(int(mutant.name[-2:], 16), agreed))
        return future

    def found(self, number, agreed):
        if self.compares:
            same = {"outcome": "proven the same", "compared": 9}
            return same if number % 2 else {"outcome": "agreed", "compared": 9, "different": []}
        outcome = "equivalent" if agreed else ("refused", "same code", "agreed", "agreed")[number // 2 % 4]
        return {"outcome": outcome, "verified": [{"kernel": "softmax"}]}

    def close(self):
        pass


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(study, "WorkerPool", Scripted)
    monkeypatch.setattr(Scripted, "calls", [])
    return Scripted


def test_changes_without_effect_are_replaced_by_the_next_that_are_drawn(tmp_path, scripted):
    rows = {row["name"]: row for row in try_mutants(12, 0, DEVICE, tmp_path, tmp_path / "journal.jsonl")}
    body = mutants_body(list(rows.values()), "tilewise bench mutants", DEVICE, 0)
    assert {row["outcome"] for row in body["mutants"]} == {"refused", "equivalent"}
    assert body["summary"]["mutants"] == len(body["mutants"]) == 12
    assert set(body["summary"]["dropped"]) == {"same code", "proven the same"}
    assert sum(body["summary"]["dropped"].values()) == len(body["dropped"]) == len(rows) - 12
    assert set(rows) == {mutant.name for mutant in sample(len(rows), 0)}  # no later one is tried


@pytest.mark.full
def test_a_run_goes_on_where_it_was_interrupted(tmp_path, scripted):
    journal = tmp_path / "journal.jsonl"
    stopped = try_mutants(9, 0, DEVICE, tmp_path, journal)
    for _ in range(4):
        next(stopped)
    stopped.close()
    first = len(scripted.calls)
    with journal.open("a") as file:
        file.write('{"name": "cut o')
    rows = {row["name"]: row for row in try_mutants(9, 0, DEVICE, tmp_path, journal)}
    again = len(scripted.calls) - first
    assert sum(row["outcome"] in ("refused", "equivalent") for row in rows.values()) == 9
    fresh = {row["name"]: row for row in try_mutants(9, 0, DEVICE, tmp_path, tmp_path / "other.jsonl")}
    assert fresh == rows
    assert again < len(scripted.calls) - first - again
    assert not list(try_mutants(0, 0, DEVICE, tmp_path, journal))


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("model:Ascend910B9", "unknown Ascend part 'Ascend910B9'"),
        ("modle:Ascend910B4", "unknown device 'modle:Ascend910B4'"),
        ("cuda", "no device cuda: "),
    ],
)
def test_a_device_that_is_none_is_refused_before_any_mutant_is_tried(device, line, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tilewise.tuner.devices.cuda.device.unavailable_reason", lambda: "none is here")
    journal = tmp_path / "mutants.jsonl"
    with pytest.raises(SystemExit) as ended:
        main(("bench", "mutants", "--device", device, "--journal", str(journal)))
    assert ended.value.code in (1, 2)
    assert line in capsys.readouterr().err
    assert not journal.exists()


def test_equivalents_above_a_tenth_count_as_survivors():
    outcomes = ["refused"] * 80 + ["equivalent"] * 20 + ["survived"] * 2 + ["same code"] * 9 + ["not compiled"] * 9
    rows = [{"outcome": outcome, "kind": "mask", "name": str(n)} for n, outcome in enumerate(outcomes)]
    summary = mutants_body(rows, "tilewise bench mutants", DEVICE, 0)["summary"]
    told = summary["told_apart_by_the_oracle"]
    assert (told["refused"], told["survived"], told["share_refused"]) == (80, 2, round(80 / 82, 4))
    assert told["of_these_refused_where_the_oracle_looked"] == 0
    above = summary["counting_equivalents_above_a_tenth"]
    assert above == {"survived": 2 + 10, "share_refused": round(80 / 92, 4)}  # 10 of 102 may be equivalent
    assert json.dumps(summary)


def test_a_device_that_mutants_cannot_run_on_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "mutants", "--device", "npu", "--count", "1"])
    assert ended.value.code == 2
    assert "mutants run on model:PART or cuda, not on npu" in capsys.readouterr().err
