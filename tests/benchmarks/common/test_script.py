"""Benchmarks that are run as modules."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["search.endings", "search.outlook", "search.priors"])
def test_a_file_that_is_missing_is_one_line(module):
    command = [sys.executable, "-m", f"tilewise.benchmarks.{module}", "gone.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "tilewise: gone.json is not a usable T4 file or Kernel Tuner cache: No such file or directory\n"
    )
