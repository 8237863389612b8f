from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsing import CHROMIUM, chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium. It lasts for a module only, since Playwright's event loop keeps other tests from theirs."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with chromium() as browser:
        yield browser
