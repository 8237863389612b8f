"""The README's kernel, tuned exactly as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_kernel_in_the_readme_is_tuned_as_it_stands(tilewise):
    (text,) = re.findall(
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
    (text,) = re.findall(
        r"<!-- tests/end_to_end runs exactly this text -->\n```python\n(.*?)```", README.read_text(), re.DOTALL
    )
    (tilewise.folder / "wrong.py").write_text(text.replace("2 * x + y, mask", "2 * x - y, mask"))
    done = tilewise("tune", "wrong.py:SPEC", "-s", "N=5000", "--device", "model:Ascend910B4", "--trials", "2")
    assert done.returncode == 1
    assert "correctness" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tilewise: none of ")
