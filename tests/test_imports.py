"""Every module but Triton's functions and Helion's cache imports with core dependencies only; records are frozen."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HIDDEN = ("torch", "triton", "torch_npu", "mspti", "xdsl", "pybind11", "psycopg", "matplotlib", "pyarrow")

IMPORT_ALL = """
import dataclasses, importlib, inspect, json, pkgutil, sys

hidden = set(json.loads(sys.argv[1]))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import tilewise

done, mutable = [], set()
for module in pkgutil.walk_packages(tilewise.__path__, "tilewise."):
    apart = ("tilewise.benchmarks", "tilewise.kernels.jit.", "tilewise.db.sql.migrations.env", "tilewise.helion")
    if not module.name.startswith(apart):
        imported = importlib.import_module(module.name)
        done.append(module.name)
        for name, kind in inspect.getmembers(imported, inspect.isclass):
            ours = kind.__module__.startswith("tilewise.")
            if ours and dataclasses.is_dataclass(kind) and not kind.__dataclass_params__.frozen:
                mutable.add(name)
print(json.dumps([done, sorted(mutable)]))
"""


@pytest.fixture(scope="module")
def imported() -> tuple[list[str], list[str]]:
    """The modules imported, and the dataclasses in them that are not frozen."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, json.dumps(HIDDEN)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    modules, mutable = json.loads(done.stdout)
    return modules, mutable


def test_every_module_but_the_triton_functions_imports_without_torch_and_triton(imported):
    for package in ("api", "cli", "db", "kernels", "tuner"):
        assert sum(name.startswith(f"tilewise.{package}.") for name in imported[0]) > 10


def test_all_dataclasses_are_frozen_but_those_that_gather_or_search(imported):
    gathering = ["CapturedKernel", "Form", "Work"]
    assert imported[1] == sorted([*gathering, "History", "Posterior", "_Flight", "_Place", "_Shadow", "_View"])
