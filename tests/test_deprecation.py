"""Tests that old keywords of the public functions work for one release, with a warning."""

from __future__ import annotations

import inspect

import pytest

import tilewise
from tilewise.deprecation import renamed_keywords


@renamed_keywords(old="new")
def double(new: int = 1) -> int:
    return 2 * new


def test_an_old_keyword_is_taken_for_the_new_one_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"old= is now called new=") as caught:
        assert double(old=3) == 6
    assert caught[0].filename == __file__


def test_a_new_keyword_does_not_warn(recwarn):
    assert (double(), double(2), double(new=3)) == (2, 4, 6)
    assert not recwarn.list


def test_both_names_at_once_are_refused():
    with pytest.raises(TypeError, match="was given new and its old name old"):
        double(old=1, new=2)


@pytest.mark.parametrize(
    ("call", "new"),
    [
        (lambda db: tilewise.tune("row_reduce", {"M": 1}, store=db, trials=1), "db="),
        (lambda db: tilewise.tune("row_reduce", {"M": 1}, db=db, seconds=1), "timeout="),
        (lambda db: tilewise.lookup("row_reduce", {"M": 1}, device="Ascend910B4", cache=db), "source="),
        (lambda db: tilewise.Cache(place=db).lookup("row_reduce", {"M": 1}, device="Ascend910B4"), "source="),
        (lambda db: tilewise.tuned("softmax", cache=db)(None), "source="),
        (lambda db: tilewise.tuned("softmax", wait_seconds=1.0)(None), "timeout="),
        (lambda db: tilewise.Operator("softmax", cache=db)(1), "source="),
        (lambda db: tilewise.harvesting(store=None).__enter__(), "db="),
    ],
)
def test_public_functions_take_their_old_keywords(tmp_path, call, new):
    url = f"sqlite:///{tmp_path / 'tiles.db'}"
    from tilewise.db.sql.sql_store import open_store

    open_store(url).close()
    with pytest.warns(DeprecationWarning, match=new), pytest.raises(Exception):  # noqa: B017, PT011
        call(url)


def test_signatures_name_the_new_keywords_only():
    for function in (tilewise.tune, tilewise.lookup, tilewise.tuned, tilewise.harvesting):
        assert not {"store", "cache", "seconds", "wait_seconds"} & inspect.signature(function).parameters.keys()
