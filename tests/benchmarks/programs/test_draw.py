"""The draw of kernels that no list has named."""

from __future__ import annotations

from pathlib import Path

from tilewise.benchmarks.programs.draw import drawn, kernels, named

LIBRARY = """
@triton.autotune([], key=[])
@triton.jit(do_not_specialize=["n"])
def launched(x): ...

@triton.jit
def helper(x): ...

@libentry()
@triton.jit
def other(x): ...

def run(x):
    launched[(1,)](x)
    other[grid](x)
"""


def test_kernels_that_are_launched_and_not_known_are_drawn_in_a_seeded_order(tmp_path: Path):
    for folder in ("flag_gems/ops", "fla/ops", "liger_kernel/ops"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file.py").write_text(LIBRARY)
    place = "liger_kernel/ops/file.py"
    assert kernels(tmp_path, "liger") == {("launched", place), ("other", place)}
    found = drawn(tmp_path, 7, frozenset({"launched"}))
    assert found["liger"] == [("other", place)] and [*found] == ["flaggems", "fla", "liger"]
    assert drawn(tmp_path, 7, frozenset()) == drawn(tmp_path, 7, frozenset())


def test_names_of_lists_and_results_are_known(tmp_path: Path):
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/programs-x.json").write_text('{"kernel": "seen_kernel"}')
    assert named(tmp_path) == {"kernel", "seen_kernel"}
