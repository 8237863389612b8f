"""The command line as a user runs it: in a separate process, with a temporary database and the real compiler.

Commands run in forks of a warm process (`warm_python`), but for those that are interrupted or have a prelude, and
while it is recorded which test runs which line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from warm_python import WarmPython


@dataclass
class CommandLine:
    """A runner of `tilewise` in `folder`. All commands of one instance share a database and compiled artefacts."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    warm: WarmPython | None = None

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'tiles.db'}"

    def start(self, *words: str, prelude: str = "") -> subprocess.Popen[str]:
        code = f"{prelude}\nimport sys\nfrom tilewise.cli import main\nmain(sys.argv[1:])"
        return subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self._settings(),
        )

    def _settings(self) -> dict[str, str]:
        return {**os.environ, "TILEWISE_DB": self.database, **self.environment}

    def __call__(self, *words: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
        if self.warm is not None and not prelude and "COVERAGE_PROCESS_START" not in os.environ:
            return subprocess.CompletedProcess(words, *self.warm.run(words, self.folder, self._settings(), 240))
        process = self.start(*words, prelude=prelude)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def in_folder(self, folder: Path) -> CommandLine:
        """Return a runner in another folder, with the same compiled artefacts and another database."""
        return replace(self, folder=folder)


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """The cache of this run, which all its processes share: a config is compiled once."""
    return Path(os.environ["TILEWISE_CACHE"])


@pytest.fixture
def tilewise(tmp_path: Path, artefacts: Path, warm_python: WarmPython) -> CommandLine:
    return CommandLine(tmp_path, {"TILEWISE_CACHE": str(artefacts)}, warm_python)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory, artefacts: Path, warm_python: WarmPython) -> CommandLine:
    """A command line whose database holds one small problem, tuned on a modelled part."""
    tilewise = CommandLine(tmp_path_factory.mktemp("tuned"), {"TILEWISE_CACHE": str(artefacts)}, warm_python)
    done = tilewise("tune", "row_reduce", "-s", "M=200,N=1000", "--device", "model:Ascend910B4", "--trials", "8")
    assert done.returncode == 0, done.stderr
    return tilewise


@pytest.fixture(scope="session")
def without_torch_and_triton() -> str:
    """Code that hides all but the core dependencies from an interpreter."""
    return (
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def hide(name, path=None, target=None):\n"
        "    absent = name.split('.')[0] in ('torch', 'triton', 'xdsl', 'ascendnpuir')\n"
        "    return None if absent else find(name, path, target)\n"
        "PathFinder.find_spec = hide\n"
    )
