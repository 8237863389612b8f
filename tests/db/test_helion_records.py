"""Helion's records in a database: kept by key, replaced, listed from the newest, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewise.db.helion_records import LONGEST_TEXT, HelionRecord, HelionRecords
from tilewise.errors import NotFound, UsageError

RECORD = HelionRecord("0" * 64, "add", "NVIDIA H200", '{"config": "{}"}', 12.5)


def numbered(number: int, **changes: object) -> HelionRecord:
    return replace(RECORD, key=f"{number:064x}", **changes)


@pytest.fixture
def records(store) -> HelionRecords:
    return HelionRecords(store.database, most=3)


def test_a_record_is_returned_as_it_was_put_and_the_next_one_of_its_key_replaces_it(records):
    records.put(RECORD)
    assert replace(records.get(RECORD.key), id=0) == RECORD
    newer = replace(RECORD, text="{}", search_us=None)
    records.put(newer)
    assert [replace(record, id=0) for record in records.page(most=9)] == [newer]


def test_the_records_written_last_are_kept_and_come_first(records):
    for number in range(1, 6):
        records.put(numbered(number))
    records.put(numbered(3, kernel="mul"))
    page = records.page(most=9)
    assert [record.key for record in page] == [numbered(n).key for n in (3, 5, 4)]
    assert records.page(most=1, before=page[0].id) == [page[1]]
    assert records.page(most=9, kernel="mul") == [page[0]] and records.page(most=9, device="elsewhere") == []


def test_a_record_that_is_not_there_is_not_found_and_not_removed(records):
    records.put(RECORD)
    records.remove(RECORD.key)
    with pytest.raises(NotFound, match="no record of Helion's has the key '0000"):
        records.get(RECORD.key)
    with pytest.raises(NotFound, match="no record of Helion's has a key that starts with '0000"):
        records.remove(RECORD.key)


def test_a_record_is_removed_by_how_its_key_starts_if_no_other_starts_so(records):
    for start in ("abc", "abd"):
        records.put(replace(RECORD, key=start.ljust(64, "0")))
    with pytest.raises(UsageError, match="several records have keys that start with 'ab'"):
        records.remove("ab")
    assert records.remove("abc") == "abc".ljust(64, "0")
    assert [record.key[:3] for record in records.page(most=9)] == ["abd"]


@pytest.mark.parametrize("start", ["", "%", "ABD", "0" * 65])
def test_what_starts_no_key_removes_nothing(records, start):
    records.put(RECORD)
    with pytest.raises(UsageError, match="starts no key of Helion's"):
        records.remove(start)
    assert len(records.page(most=9)) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": "0" * 63}, "is not a key of Helion's; expected a SHA-256"),
        ({"key": "A" * 64}, "is not a key of Helion's"),
        ({"text": "x" * (LONGEST_TEXT + 1)}, "has 65537 bytes; at most 65536 are kept"),
    ],
)
def test_what_helion_never_writes_is_refused(records, changed, message):
    records.put(replace(RECORD, text="x" * LONGEST_TEXT))
    with pytest.raises(UsageError, match=message):
        records.put(replace(RECORD, **changed))
