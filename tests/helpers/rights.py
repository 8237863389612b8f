"""The skip of a test that needs rights which this user does not have here."""

import pytest


class NoRights(pytest.skip.Exception):
    """Raised where a file system may not be mounted, for example; the only skip that CI allows besides devices."""
