"""Headers of recorded benchmarks: command, beginning and end, device or machine, and versions."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise.db.sql.sql_store import SqlStore

__all__ = ["database_name", "header", "service_header"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_PACKAGES = (
    *("numpy", "optuna", "scikit-learn", "kernel-tuner", "torch", "triton", "triton-ascend"),
    *("botorch", "cmaes", "smac"),
)
_BEGAN = _now()
"""When this process did, or a moment after: what it runs is the code of this time."""

_SERVING = ("fastapi", "psycopg", "ray", "sqlalchemy", "starlette", "uvicorn", "uvloop")


def header(command: str, clock: str, device: str = f"none ({platform.machine()} CPU)") -> dict[str, Any]:
    """Return the header; `clock` is that of the searched times. Without a device recorded times are replayed."""
    return {
        "command": command,
        "began": _BEGAN,
        "date": _now(),
        "device": device,
        "clock": clock,
        "versions": {"python": platform.python_version(), **_installed(_PACKAGES)},
    }


def service_header(command: str) -> dict[str, Any]:
    """Return the header of a benchmark of the service, which times requests on this machine's processor alone."""
    return {
        "command": command,
        "began": _BEGAN,
        "date": _now(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **_installed(_SERVING),
        },
    }


def database_name(store: SqlStore) -> str:
    """Return the name and the version of a store's database engine."""
    dialect = store.database.engine.dialect
    return f"{dialect.name} {'.'.join(map(str, dialect.server_version_info or ()))}"


def _installed(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
