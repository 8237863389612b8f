"""The only reader of environment variables.

| variable         | meaning                                                      |
|------------------|--------------------------------------------------------------|
| `TILEWISE_DB`    | database URL (default: SQLite in the user's data folder)     |
| `TILEWISE_CACHE` | folder of compiled artefacts (default: user's cache folder)  |
| `TILEWISE_ARTEFACTS` | database URL of compiled artefacts that hosts share (default: none) |
| `TILEWISE_FARM`  | socket of a fleet's compile farm; an actor of the fleet sets it for its jobs (default: none) |
| `TILEWISE_DATA`  | folder of calibrations (default: user's data folder)         |
| `TILEWISE_JOBS`  | compile processes at once (default: one per usable core)     |
| `TILEWISE_MISSES`| file of shapes launched untuned (default: in the user's data folder; `off`: none) |
| `TILEWISE_MISSES_SERVER` | a server that such shapes are reported to (default: none) |
| `TILEWISE_HELION_SERVER` | a server that keeps the records of Helion's autotuner (default: none) |
| `TILEWISE_CHOICES` | file of launch configs that processes share and later runs repeat (default: none) |
| `TILEWISE_KERNEL_KEY` | file of the operator's key, which signs kernels and artefacts (default: none) |
| `TILEWISE_TOKEN` | bearer token for a server that requires one                  |
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

from tilewise.errors import UsageError

__all__ = ["Settings", "read_settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    database_url: str
    cache_folder: Path
    artefacts_url: str | None
    farm: str | None
    data_folder: Path
    jobs: int
    token: str | None
    misses_file: Path | None
    misses_server: str | None
    helion_server: str | None
    choices_file: Path | None
    kernel_key_file: Path | None


def read_settings() -> Settings:
    """Return the current settings. Raises `UsageError` for an invalid variable."""
    return Settings(
        database_url=os.environ.get("TILEWISE_DB") or f"sqlite:///{user_data_path('tilewise') / 'tilewise.db'}",
        cache_folder=Path(os.environ.get("TILEWISE_CACHE") or user_cache_path("tilewise")),
        artefacts_url=os.environ.get("TILEWISE_ARTEFACTS") or None,
        farm=os.environ.get("TILEWISE_FARM") or None,
        data_folder=Path(os.environ.get("TILEWISE_DATA") or user_data_path("tilewise")),
        jobs=_jobs(os.environ.get("TILEWISE_JOBS")),
        token=os.environ.get("TILEWISE_TOKEN") or None,
        misses_file=_misses(os.environ.get("TILEWISE_MISSES")),
        misses_server=_server("TILEWISE_MISSES_SERVER"),
        helion_server=_server("TILEWISE_HELION_SERVER"),
        choices_file=Path(choices).absolute() if (choices := os.environ.get("TILEWISE_CHOICES")) else None,
        kernel_key_file=Path(key) if (key := os.environ.get("TILEWISE_KERNEL_KEY")) else None,
    )


def _misses(text: str | None) -> Path | None:
    if text == "off":
        return None
    return Path(text) if text else user_data_path("tilewise") / "misses.jsonl"


def _server(name: str) -> str | None:
    text = os.environ.get(name)
    if text and not text.startswith(("http://", "https://")):
        raise UsageError(f"{name} is {text!r}; expected the URL of a server, such as http://tiles:8300")
    return text or None


def _jobs(text: str | None) -> int:
    if not text:
        return len(os.sched_getaffinity(0))
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"TILEWISE_JOBS is {text!r}; expected a whole number of 1 or more")
    return int(text)
