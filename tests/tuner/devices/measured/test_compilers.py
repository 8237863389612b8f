"""Compile processes that devices share: how many there are, and when they end."""

import os

import pytest

from tilewise.tuner.devices.measured.compilers import Compilers

SECONDS = 20.0


@pytest.fixture
def opened():
    made = []

    def open_compilers(memory_bytes=1 << 30):
        made.append(Compilers("calls_for_compilers:own_id", 1, env=None, imports=(), memory_bytes=memory_bytes))
        return made[-1]

    yield open_compilers
    for compilers in made:
        compilers.close()


@pytest.fixture(autouse=True)
def calls(tmp_path, monkeypatch):
    text = "import os\n\n\ndef own_id():\n    return os.getpid()\n"
    (tmp_path / "calls_for_compilers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


def process(compilers):
    return compilers.submit(timeout=SECONDS).result()


def test_devices_of_one_kind_have_the_same_processes_until_the_last_is_closed(opened):
    first, second = opened(), opened()
    shared = process(first)
    assert process(second) == shared
    first.close()
    first.close()  # as often as it likes: the second keeps them
    assert process(second) == shared
    second.close()
    with pytest.raises(ProcessLookupError):
        os.kill(shared, 0)
    assert process(opened()) != shared


@pytest.mark.parametrize("change", ["limit", "environment"])
def test_devices_whose_processes_would_differ_share_none(opened, monkeypatch, change):
    first = opened()
    if change == "environment":
        monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
    second = opened(memory_bytes=(1 << 30) + (change == "limit"))
    assert process(first) != process(second)
