"""Files and databases are opened once per process."""

from __future__ import annotations

import threading

import pytest

from tilewise.errors import StoreError
from tilewise.tuner.lookup import open_source as module
from tilewise.tuner.lookup.cache import Cache
from tilewise.tuner.lookup.open_source import forget_opened, open_source


def test_a_database_is_opened_once_until_a_fork_forgets_it(tune, store_url):
    tune()
    opened = open_source(store_url)
    assert open_source(store_url) is opened
    module._lock.acquire()  # as a thread of the parent may hold it
    assert isinstance(module._lock, type(threading.Lock()))
    forget_opened()
    again = open_source(store_url)
    assert again is not opened
    assert open_source(store_url) is again


def test_a_database_whose_cache_was_closed_is_opened_anew(tune, store_url):
    tune()
    with Cache(store_url) as cache:
        first = open_source(store_url)
        assert first is cache._source
    assert open_source(store_url) is not first
    forget_opened()


def test_a_look_up_cannot_write_to_the_database_that_it_opened(tune, store_url):
    tune()
    store = open_source(store_url).store
    with pytest.raises(StoreError, match="read-only"), store.database.write():
        pass
    forget_opened()
