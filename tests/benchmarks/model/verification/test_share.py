"""Verification's share of a tuning: what is noted, what is summed up, and a run that goes on."""

import json

import pytest

from tilewise.benchmarks.model.verification import share
from tilewise.benchmarks.model.verification.share import DIMS, bench_share, share_body
from tilewise.kernels import registry
from tilewise.tuner.devices.ascend_model import toolchain


def row(kernel, verifying, every):
    return {
        "kernel": kernel,
        "part": "Ascend910B4",
        "jobs": 1,
        "trials": 20,
        "verifications": 2,
        "verifying_processor_s": verifying,
        "processor_s": every,
        "processor_share": verifying / every,
        "wall_share": 0.2,
    }


def test_a_job_notes_its_processor_time_even_if_it_fails(tmp_path, monkeypatch):
    def failing(job, *arguments):
        raise ValueError(job)

    monkeypatch.setattr(share.compile_job, "call", failing)
    with pytest.raises(ValueError, match="verify"):
        share.call("verify", "softmax", None, {}, None, tmp_path)
    noted = json.loads((tmp_path / "spent.jsonl").read_text())
    assert noted["job"] == "verify"
    assert noted["processor_s"] >= 0


def test_the_summary_names_the_largest_share_and_those_above_the_aim():
    body = share_body([row("softmax", 1.0, 10.0), row("gelu_erf", 3.0, 10.0)], "command", "Ascend910B4")
    summary = body["summary"]
    assert (summary["share_of_all"], summary["largest_share"]) == (0.2, 0.3)
    assert (summary["largest_share_kernel"], summary["at_or_above_the_aim"]) == ("gelu_erf", ["gelu_erf"])


def test_kernels_of_the_journal_are_not_tuned_again(tmp_path, monkeypatch):
    journal, tuned = tmp_path / "journal.jsonl", []
    journal.write_text(json.dumps(row("softmax", 1.0, 10.0)) + "\n")
    monkeypatch.setattr(share, "_row", lambda part, name, jobs: tuned.append(name) or row(name, 2.0, 10.0))
    rows = list(bench_share("Ascend910B4", journal, kernels=["softmax", "gelu_erf"]))
    assert ([each["kernel"] for each in rows], tuned) == (["softmax", "gelu_erf"], ["gelu_erf"])
    assert list(bench_share("Ascend910B4", journal, kernels=["gelu_erf"])) == rows[1:]


@pytest.mark.full
def test_a_tuning_is_measured(tmp_path, monkeypatch):
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    monkeypatch.setitem(DIMS, ("N",), {"N": 3000})
    [found] = bench_share("Ascend910B4", tmp_path / "journal.jsonl", kernels=["vector_add"])
    assert 0 < found["processor_share"] < 1
    assert 0 < found["verifications"] <= found["trials"] + 1


def test_every_vector_kernel_has_a_size():
    assert all(registry.load(name).dims in DIMS for name in registry.vector_names())
