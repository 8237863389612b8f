"""An environment in which tests neither see nor change anything of the user's."""

from __future__ import annotations

import tempfile
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["isolate"]

_KEPT = {"TILEWISE_TEST_POSTGRES"}
"""Variables of tilewise's that the user sets for the tests."""

_FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "TILEWISE_CACHE": "cache",
    "TILEWISE_DATA": "data",
}

_OTHERS = {"TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_HOME", "TRITON_OVERRIDE_DIR", "MPLCONFIGDIR"}
"""Variables by which libraries would write outside the home folder that they are given here."""


def isolate(environment: MutableMapping[str, str]) -> Path | None:
    """Point `environment` at a new folder and return it; None in a worker of pytest-xdist, which inherits a folder."""
    if "PYTEST_XDIST_WORKER" in environment:
        return None
    folder = Path(tempfile.mkdtemp(prefix="tilewise-tests-"))
    for name in [name for name in environment if name.startswith("TILEWISE_") and name not in _KEPT]:
        del environment[name]
    for name in _OTHERS & environment.keys():
        del environment[name]
    for name, place in _FOLDERS.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        environment[name] = str(folder / place)
    environment["TILEWISE_DB"] = f"sqlite:///{folder / 'tilewise.db'}"
    environment["TILEWISE_MISSES"] = str(folder / "misses.jsonl")
    # Without the user's settings, git refuses a checkout that another user owns.
    environment |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return folder
