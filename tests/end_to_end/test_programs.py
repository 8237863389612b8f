"""Unmodified programs: captured, tuned on a modelled part, and their results told as what they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from places import HELPERS

from tilewise.cli import main
from tilewise.tuner.stand_in.accelerator import accelerator_stand_in

pytest.importorskip("triton.backends.ascend")

PROGRAM = HELPERS / "programs" / "vector_add.py"
KERNEL = f"{PROGRAM}:add_kernel"


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    return f"sqlite:///{tmp_path / 'tiles.db'}"


def test_a_kernel_is_tuned_for_the_shapes_that_its_program_launches(capsys, database, tmp_path):
    tune = ("tune", KERNEL, "--program", "--device", "model:Ascend910B4", "--trials", "2", "--db", database)
    code, out, err = run(capsys, *tune, "--json")
    results = json.loads(out)["results"]
    assert code == 0 and [result["dims"]["n_elements"] for result in results] == [98432, 1 << 20]
    assert {result["verified_by"] for result in results} == {"self"}
    assert results[0]["default"]["config"] == {"BLOCK_SIZE": 256, "multibuffer": True}
    assert results[1]["time_us"] < results[1]["default"]["time_us"]

    spec = err.partition("the spec of add_kernel is ")[2].split()[0]
    ask = ("lookup", f"{spec}:SPEC", "-s", "n_elements=98432", "--device", "Ascend910B4", "--db", database)
    _, out, _ = run(capsys, *ask)
    assert "output agreed with its own default config" in out
    file = tmp_path / "configs.json"
    run(capsys, "export", "--format", "json", "-o", str(file), "--db", database)
    assert [entry["verified_by"] for entry in json.loads(file.read_text())["entries"]] == ["self", "self"]
    export = ("export", "-o", str(file), "--db", database, "--verified-by")
    assert run(capsys, *export, "reference")[0] == 4 and run(capsys, *export, "self")[0] == 0

    code, out, _ = run(capsys, *tune, "--json", "--reference", "torch.add", "-s", "n_elements=98432")
    (result,) = json.loads(out)["results"]
    assert result["verified_by"] == "reference" and result["trials"]["total"] == 3  # the same trials, verified again


def test_the_error_that_ended_a_program_before_its_launches_is_the_reason(capsys, tmp_path):
    program = tmp_path / "early.py"
    program.write_text("import triton\n\ntriton.function_of_a_later_release()\n")
    code, _, err = run(capsys, "capture", str(program))
    last = err.splitlines()[-1]
    assert code == 4 and f"{program} ended before it launched a Triton kernel: AttributeError" in last
    assert "function_of_a_later_release" in last


def test_the_trials_of_a_kernel_are_listed_sorted_and_filtered(capsys, database):
    tune = ("tune", KERNEL, "--program", "--device", "model:Ascend910B4", "--trials", "2", "--db", database)
    code, _, _ = run(capsys, *tune, "-s", "n_elements=98432")
    assert code == 0
    listed = ("trials", "add_kernel", "--db", database)
    code, out, _ = run(capsys, *listed, "--most", "2")
    head, *rows = out.splitlines()
    assert code == 0 and "trials, the first 2" in head and len(rows) == 2
    assert "verified against its own default config" in rows[0]
    assert [float(row.split()[0]) for row in rows] == sorted(float(row.split()[0]) for row in rows)
    _, out, _ = run(capsys, *listed, "--json", "--status", "correct", "--by", "order")
    (scope,) = json.loads(out)["scopes"]
    assert scope["kernel"] == "add_kernel" and {trial["status"] for trial in scope["trials"]} == {"correct"}
    assert run(capsys, *listed, "-s", "n_elements=7")[0] == 4


@pytest.mark.full
def test_unsigned_counters_are_tuned_from_the_values_that_the_program_passes(capsys, database, tmp_path):
    program = f"{HELPERS / 'programs' / 'counters.py'}:count_kernel"
    tune = ("tune", program, "--program", "--device", "model:Ascend910B4", "--effort", "full", "--db", database)
    code, out, err = run(capsys, *tune, "--json")
    (result,) = json.loads(out)["results"]
    assert code == 0 and result["trials"]["correct"] == result["trials"]["total"] >= 2
    spec = Path(err.partition("the spec of count_kernel is ")[2].split()[0]).read_text()
    assert '"uint32", draw=exactly(3, 4294967295)' in spec


def test_a_capture_lists_kernels_and_what_to_do_next(capsys):
    code, out, _ = run(capsys, "capture", str(PROGRAM), "--", "-q", "two words")
    assert code == 0 and "add_kernel in vector_add.py: 2 launches, 2 different; 4 configs of BLOCK_SIZE" in out
    assert f"next: tilewise tune {KERNEL} --program -- -q 'two words'\n" in out
    _, out, _ = run(capsys, "capture", "--json", KERNEL)
    (kernel,) = json.loads(out)["kernels"]
    assert kernel["calls"][0]["grid"] == [385] and kernel["key"] == ["n_elements"]


def test_a_spec_is_a_file_that_can_be_tuned(capsys, database, tmp_path):
    file = tmp_path / "spec.py"
    code, out, _ = run(capsys, "spec", KERNEL, "-o", str(file))
    assert code == 0 and f"tune it with tilewise tune {file}:SPEC" in out
    code, out, _ = run(capsys, "spec", KERNEL)
    assert out == file.read_text()
    words = ("-s", "n_elements=5000", "--device", "model:Ascend910B4", "--trials", "1", "--db", database)
    assert run(capsys, "tune", f"{file}:SPEC", *words)[0] == 0


def test_a_spec_of_recorded_launches_needs_a_kernel_that_was_launched(capsys, database):
    assert run(capsys, "spec", "--recorded", KERNEL)[0] == 4
    assert run(capsys, "spec", "--recorded", str(PROGRAM))[0] == 2


@pytest.mark.full
def test_launches_that_a_run_recorded_are_those_that_a_capture_sees(capsys, database, monkeypatch):
    from triton.runtime.jit import JITFunction

    monkeypatch.setattr(JITFunction, "run", lambda *args, **kwargs: None)
    with accelerator_stand_in():
        assert run(capsys, "run", "--on-miss", "record", str(PROGRAM))[0] == 0
    recorded, captured = run(capsys, "spec", "--recorded", KERNEL), run(capsys, "spec", KERNEL)
    assert recorded[:2] == captured[:2] and recorded[0] == 0


def test_a_program_of_several_kernels_needs_a_name(capsys):
    code, _, err = run(capsys, "spec", str(PROGRAM.with_name("dropout.py")))
    assert code == 2 and "launches several kernels" in err and "embedding_kernel" in err


def test_a_program_runs_with_its_arguments_and_exit_code(capsys, tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text("import sys, triton\nprint(triton.autotune.__module__, sys.argv[1:])\nsys.exit(3)\n")
    code, out, _ = run(capsys, "run", "--on-miss", "tune", str(file), "--size", "4")
    assert code == 3 and "['--size', '4']" in out


INTERPRETED = """
import torch, triton

assert torch.ones(2, device="npu").device.type == "npu"
print(triton.runtime.driver.active.get_active_torch_device(), type(triton.jit(lambda x: x)).__name__)
"""


def test_a_program_without_an_accelerator_is_interpreted_if_asked_and_else_told_so(capsys, tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(INTERPRETED)
    code, out, _ = run(capsys, "run", "--interpret", "--for-device", "Ascend910B4", str(file))
    assert code == 0 and out == "npu:0 InterpretedFunction\n"
    assert "TRITON_INTERPRET" not in os.environ
    code, _, err = run(capsys, "run", "--interpret", str(file))
    assert code == 2 and "--interpret needs --for-device" in err
    file.write_text("import triton\ntriton.runtime.driver.active.get_current_device()\n")
    code, _, err = run(capsys, "run", str(file))
    assert code == 1 and err.splitlines()[-1].startswith("tilewise: the program launches on an NPU or GPU")


@pytest.mark.parametrize("verb", ["capture", "run", "spec", "tune"])
def test_a_program_gets_the_arguments_after_two_dashes(verb, capsys, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.exit(f'got {sys.argv[1:]}' if sys.argv[1:] != ['-y', '--', 'x'] else 0)\n")
    options = ("--program",) if verb == "tune" else ()
    _, _, err = run(capsys, verb, *options, str(program), "--", "-y", "--", "x")
    assert "got" not in err
