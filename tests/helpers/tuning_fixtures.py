"""Fixtures: the bowl (a kernel whose time is a formula), and stores to tune into."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from empty_database import place_empty_database
from hypothesis import settings
from places import HELPERS

from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Store

settings.register_profile("same every time", derandomize=True, deadline=None)
settings.load_profile("same every time")


@pytest.fixture(scope="session")
def bowl() -> ModuleType:
    """`bowl.py` beside this file, which tests also start as a script."""
    location = importlib.util.spec_from_file_location("tilewise_test_bowl", HELPERS / "bowl.py")
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules[location.name] = module
    location.loader.exec_module(module)
    return module


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tilewise.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    place_empty_database(url)
    with open_store(url) as opened:
        yield opened
