"""Compiled artefacts in a database: sealed, bounded, and claimed by one process at a time."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tilewise.db.artefacts import LARGEST, Artefacts, Claim, Totals
from tilewise.errors import ReadOnly, UsageError

SECRET = b"0" * 32


@pytest.fixture
def artefacts(store) -> Artefacts:
    return Artefacts(store.database, SECRET, most=100)


def test_an_artefact_is_returned_as_it_was_put_and_the_next_one_of_its_key_replaces_it(artefacts):
    assert artefacts.get("a") is None
    artefacts.put("a", b"\x00\xff one", "me")
    assert artefacts.get("a") == b"\x00\xff one" and artefacts.get("b") is None
    artefacts.put("a", b"two", "me")
    assert artefacts.get("a") == b"two" and artefacts.totals() == Totals(1, 3)


def test_an_artefact_of_another_key_holder_is_none(store, artefacts):
    Artefacts(store.database, b"1" * 32).put("a", b"foreign", "other")
    assert artefacts.get("a") is None
    artefacts.put("a", b"mine", "me")
    assert artefacts.get("a") == b"mine"


@pytest.mark.parametrize("change", ["content = :other", "seal = :text", "key = 'b'"])
def test_an_artefact_that_was_changed_or_renamed_in_the_database_is_none(store, artefacts, change):
    artefacts.put("a", b"content", "me")
    given = {"other": b"Content", "text": "0" * 64}
    with store.database.write() as connection:
        connection.execute(
            text(f"UPDATE artefacts SET {change}"), {n: v for n, v in given.items() if f":{n}" in change}
        )
    assert artefacts.get("a") is None and artefacts.get("b") is None


def test_the_artefacts_written_last_are_kept_within_the_limit(artefacts):
    for number in range(5):
        artefacts.put(str(number), bytes(40), "me")
    assert [number for number in range(5) if artefacts.get(str(number))] == [3, 4]
    assert artefacts.totals() == Totals(2, 80)


def test_one_that_is_too_large_is_refused(artefacts):
    with pytest.raises(UsageError, match=f"at most {LARGEST} are kept"):
        artefacts.put("a", bytes(LARGEST + 1), "me")


def test_one_process_claims_a_key_until_it_has_put_the_artefact_or_given_up(artefacts):
    assert artefacts.claim("a", "me") and not artefacts.claim("a", "other") and artefacts.claim("b", "other")
    artefacts.release("a", "other")
    assert artefacts.claimed("a") == Claim("me", 0)
    artefacts.put("a", b"1", "me")
    assert artefacts.claimed("a") is None and artefacts.claim("a", "other")
    artefacts.release("a", "other")
    assert artefacts.claimed("a") is None


def test_a_claim_is_taken_over_by_one_process_and_only_without_a_sign_of_life(artefacts):
    artefacts.claim("a", "lost")
    seen = artefacts.claimed("a")
    assert artefacts.beat("a", "lost")
    assert not artefacts.take_over("a", seen, "me")
    seen = artefacts.claimed("a")
    assert artefacts.take_over("a", seen, "me") and not artefacts.take_over("a", seen, "other")
    assert artefacts.claimed("a") == Claim("me", 0) and not artefacts.beat("a", "lost")


def test_who_may_only_read_the_database_fetches_and_adds_nothing(file_url):
    from tilewise.db.sql.sql_store import open_store

    with open_store(file_url) as store:
        Artefacts(store.database, SECRET).put("a", b"1", "me")
    with open_store(file_url, read_only=True) as store:
        reader = Artefacts(store.database, SECRET)
        assert reader.get("a") == b"1"
        for act in (lambda: reader.put("b", b"2", "x"), lambda: reader.claim("b", "x")):
            with pytest.raises(ReadOnly):
                act()
