"""The kernel of docs/spec.md, tuned exactly as printed there, and launched as the README does."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from places import ROOT

README = ROOT / "README.md"
RUN = re.compile(r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", re.DOTALL)
(SPEC_TEXT,) = RUN.findall((ROOT / "docs" / "spec.md").read_text())
(LAUNCH_TEXT,) = RUN.findall(README.read_text())


def test_the_kernel_in_the_docs_is_tuned_as_it_stands(tilewise):
    (tilewise.folder / "scaled_add.py").write_text(SPEC_TEXT)
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=100003", "--device", "model:Ascend910B4", "--trials", "8")
    result = tilewise.json(*words)["results"][0]
    assert result["kernel"] == "scaled_add"
    assert result["verified"] is True
    found = tilewise.json("lookup", "scaled_add.py:SPEC", "-s", "N=100003", "--device", "Ascend910B4")
    assert found["results"][0]["config"] == result["config"]


def test_a_kernel_that_computes_something_else_never_wins(tilewise):
    (tilewise.folder / "wrong.py").write_text(SPEC_TEXT.replace("2 * x + y, mask", "2 * x - y, mask"))
    done = tilewise("tune", "wrong.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4", "--trials", "2")
    assert done.returncode == 1
    assert "correctness" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tilewise: none of ")


_PROGRAM = """
import torch, triton
N = 5000
x, y, out = torch.randn(N), torch.randn(N), torch.empty(N)
{launch}
assert torch.equal(out, 2 * x + y)
print(kernel.choices[0].match)
"""


def test_what_the_readme_launches_afterwards_is_what_was_tuned(tilewise):
    (tilewise.folder / "scaled_add.py").write_text(SPEC_TEXT)
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4", "--trials", "2")
    assert tilewise(*words).returncode == 0
    assert tilewise("export", "--format", "runtime", "-o", "configs.json").returncode == 0
    here = LAUNCH_TEXT.replace(
        '"configs.json"', '"configs.json", device="Ascend910B4"'
    )  # no NPU: run by the interpreter
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(launch=here)],
        capture_output=True,
        text=True,
        cwd=tilewise.folder,
        env={**os.environ, "TRITON_INTERPRET": "1", "TILEWISE_MISSES": "off"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "exact\n"


def test_the_call_in_the_readme_is_the_same_before_and_after():
    before, after = re.findall(r"^\w+(\[lambda meta: .*\]\(.*\))$", README.read_text(), re.MULTILINE)
    assert before == after


def test_a_spec_has_metrics_of_its_own_and_an_effort_sets_the_trials(tilewise):
    metrics = '    metrics={"GB/s": lambda problem, time_us: 12 * problem.dims["N"] / time_us / 1e3},\n'
    (tilewise.folder / "scaled_add.py").write_text(SPEC_TEXT.replace("    default=", f"{metrics}    default="))
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4")
    (result,) = tilewise.json(*words, "--effort", "quick")["results"]
    assert result["metrics"] == {"GB/s": pytest.approx(60 / result["time_us"])}
    assert result["trials"]["total"] <= 31
    shown = f"GB/s: {result['metrics']['GB/s']:.4g}"
    assert shown in tilewise(*words, "--effort", "quick").stdout
    assert f"({shown})" in tilewise("trials", "scaled_add").stdout.splitlines()[1]
    asked = ("lookup", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "Ascend910B4")
    assert tilewise.json(*asked)["results"][0]["metrics"] == result["metrics"] and shown in tilewise(*asked).stdout
    failed = tilewise(*words, "--effort", "full", "--trials", "3")
    assert failed.returncode == 2 and "leave out --trials" in failed.stderr


def test_an_objective_that_no_device_here_measures_is_refused_in_one_line(tilewise):
    (tilewise.folder / "scaled_add.py").write_text(
        SPEC_TEXT.replace("    default=", '    objective="energy_uj",\n    default=')
    )
    refused = tilewise("tune", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4")
    assert refused.returncode == 2
    told = "kernel scaled_add ranks configs by energy_uj, but model:Ascend910B4 does not measure energy"
    assert refused.stderr == f"tilewise: {told}; NVIDIA GPUs from Volta on do\n"


def test_a_reference_of_other_outputs_is_told_in_one_line(tilewise):
    (tilewise.folder / "scaled_add.py").write_text(SPEC_TEXT.replace('{"out_ptr": 2 *', '{"y": 2 *'))
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4", "--trials", "2")
    failed = tilewise(*words)
    assert failed.returncode == 2
    told = "tilewise: the reference gives y, the kernel's outputs are out_ptr; correct the spec's reference"
    assert failed.stderr.splitlines()[-1] == told


def test_a_tiling_without_axes_is_explained_all_the_same(tilewise):
    plain = SPEC_TEXT.replace("    tiling=tiling,", "    tiling=lambda config, problem: Tiling((), 0, 0),")
    (tilewise.folder / "scaled_add.py").write_text(plain)
    done = tilewise("explain", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4")
    assert done.returncode == 0 and "grid        unknown: the spec's tiling has no axes" in done.stdout
