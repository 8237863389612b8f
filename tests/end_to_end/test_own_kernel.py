"""The kernel in the README, tuned exactly as printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from places import ROOT

README = ROOT / "README.md"


def test_the_kernel_in_the_readme_is_tuned_as_it_stands(tilewise):
    text, _ = re.findall(
        r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", README.read_text(), re.DOTALL
    )
    (tilewise.folder / "scaled_add.py").write_text(text)
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=100003", "--device", "model:Ascend910B4", "--trials", "8")
    result = tilewise.json(*words)["results"][0]
    assert result["kernel"] == "scaled_add"
    assert result["verified"] is True
    found = tilewise.json("lookup", "scaled_add.py:SPEC", "-s", "N=100003", "--device", "Ascend910B4")
    assert found["results"][0]["config"] == result["config"]


def test_a_kernel_that_computes_something_else_never_wins(tilewise):
    text, _ = re.findall(
        r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", README.read_text(), re.DOTALL
    )
    (tilewise.folder / "wrong.py").write_text(text.replace("2 * x + y, mask", "2 * x - y, mask"))
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
    own, launch = re.findall(
        r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", README.read_text(), re.DOTALL
    )
    (tilewise.folder / "scaled_add.py").write_text(own)
    words = ("tune", "scaled_add.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4", "--trials", "2")
    assert tilewise(*words).returncode == 0
    assert tilewise("export", "--format", "runtime", "-o", "configs.json").returncode == 0
    here = launch.replace('"configs.json"', '"configs.json", device="Ascend910B4"')  # no NPU: run by the interpreter
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
