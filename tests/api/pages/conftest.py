from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsing import chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser
