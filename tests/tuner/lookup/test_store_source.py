"""A store as a source of look-ups: what is read when."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from places import LANDSCAPES
from service_fixtures import SCOPE

from tilewise.db.records import Question
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError
from tilewise.kernels import registry
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.lookup import store_source
from tilewise.tuner.lookup.store_source import StoreSource
from tilewise.tuner.tuning.loop import Budget, Tuning

QUESTION = Question(SCOPE.problem.resized({"M": 8, "N": 8}), SCOPE.device)


@pytest.fixture
def near(store_url, monkeypatch):
    """A function that returns the shapes near `QUESTION`, and the pages of shapes that were read for it; the source was
    prepared when it was first called."""
    pages = []
    with open_store(store_url, create=True) as store:
        source, shape_pages = StoreSource(store), store.shape_pages

        def noted(*family, last):
            for number, page in shape_pages(*family, last=last):
                pages.extend(page.values())
                yield number, page

        def look():
            pages.clear()
            return [dims for _, dims in source.near(QUESTION, None, 1.0)], list(pages)

        def prepared():
            source.prepare()
            monkeypatch.setattr(store, "shape_pages", noted)
            return look

        yield prepared


def test_a_prepared_source_reads_only_the_shapes_that_are_new(near, tune):
    for m in range(5, 8):
        tune(dims={"M": m, "N": 8})
    look = near()
    assert look() == ([{"M": 7, "N": 8}, {"M": 6, "N": 8}, {"M": 5, "N": 8}], [])
    tune(dims={"M": 9, "N": 8})
    shapes, read = look()
    assert (shapes[0], read) == ({"M": 9, "N": 8}, ['[{"M":9,"N":8}]'])


def test_a_prepared_source_has_sorted_the_shapes_before_the_first_look_up(near, tune, monkeypatch):
    """Sorting a million takes a second, for which the first caller would wait."""
    for m in range(5, 8):
        tune(dims={"M": m, "N": 8})
    look, sorted_shapes, concatenate = near(), [], np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda blocks: (sorted_shapes.extend(blocks), concatenate(blocks))[1])
    assert len(look()[0]) == 3
    assert sorted_shapes == []


def test_a_replayed_tuning_keeps_no_other_family_from_being_indexed(near, store_url, tune):
    """A recording has one problem without dimensions, so its family has no shapes to index."""
    file = LANDSCAPES / "max_rows-300x4096-float32-Ascend910B4-modelled.json.gz"
    with ReplayDevice(str(file)) as device, open_store(store_url) as store:
        Tuning(device.spec, device.problem, device, store, budget=Budget(2), search="random", seed=0).run()
    tune(dims={"M": 7, "N": 8})
    assert near()() == ([{"M": 7, "N": 8}], [])


def test_portfolios_are_built_again_after_a_write_but_not_before_twenty_times_as_long_as_it_takes(
    store_url, tune, monkeypatch
):
    now, built = [1000.0], []

    def build(evidence, spec):
        now[0] += 3.0
        built.append(sorted(scope.dims["M"] for scope, _ in evidence))
        return []

    monkeypatch.setattr(store_source, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(store_source, "portfolios", build)
    tune(dims={"M": 7, "N": 8})
    with open_store(store_url) as store:
        source = StoreSource(store)
        for after, m, expected in (
            (0, None, [[7]]),
            (59, 9, [[7]]),
            (2, None, [[7], [7, 9]]),
            (500, None, [[7], [7, 9]]),
        ):
            now[0] += after
            if m:
                tune(dims={"M": m, "N": 8})
            source.portfolios(QUESTION, None, registry.load("row_reduce"))
            assert built == expected


def test_a_source_that_is_closed_has_closed_its_store(store_url, tune):
    tune()
    source = StoreSource(open_store(store_url, read_only=True))
    assert source.store.mark() > 0
    source.close()
    with pytest.raises(StoreError, match="closed"):
        source.store.mark()
