"""Every module except the Triton functions imports with only the core dependencies installed."""

from __future__ import annotations

import json
import subprocess
import sys

HIDDEN = ("torch", "triton", "torch_npu", "mspti", "xdsl", "pybind11", "psycopg", "matplotlib", "pyarrow")

IMPORT_ALL = """
import importlib, json, pkgutil, sys

hidden = set(json.loads(sys.argv[1]))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import tilewise

done = []
for module in pkgutil.walk_packages(tilewise.__path__, "tilewise."):
    apart = ("tilewise.benchmarks", "tilewise.kernels.jit.", "tilewise.db.sql.migrations.env")
    if not module.name.startswith(apart):
        importlib.import_module(module.name)
        done.append(module.name)
print(json.dumps(done))
"""


def test_every_module_but_the_triton_functions_imports_without_torch_and_triton():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, json.dumps(HIDDEN)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = json.loads(done.stdout)
    for package in ("api", "cli", "db", "kernels", "tuner"):
        assert sum(name.startswith(f"tilewise.{package}.") for name in imported) > 10
