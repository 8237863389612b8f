"""The tables as the models have them, and as migrations make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import create_engine, inspect

from tilewise.db.sql.models import UtcDateTime, metadata
from tilewise.db.sql.sql_store import open_store


@pytest.fixture(params=["file_url", "postgres_url"])
def migrated(request, make_scope, make_trial):
    """Inspect a database with a trial that the program has made."""
    url = request.getfixturevalue(request.param)
    with open_store(url) as store:
        store.record(make_scope(), [trial := make_trial()])
        assert store.trials(make_scope()) == [trial]
    engine = create_engine(url)
    yield inspect(engine)
    engine.dispose()


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_a_table_has_the_columns_and_indexes_of_its_model(table, migrated):
    columns = {column["name"]: column["nullable"] for column in migrated.get_columns(table.name)}
    assert {column.name: column.nullable for column in table.c} == columns
    assert migrated.get_pk_constraint(table.name)["constrained_columns"] == [
        column.name for column in table.primary_key
    ]
    indexes = {one["name"]: (one["column_names"], bool(one["unique"])) for one in migrated.get_indexes(table.name)}
    modelled = {one.name: ([column.name for column in one.columns], bool(one.unique)) for one in table.indexes}
    assert modelled == indexes
    keys = {(*one["constrained_columns"], one["referred_table"]) for one in migrated.get_foreign_keys(table.name)}
    assert {(key.parent.name, key.column.table.name) for key in table.foreign_keys} == keys


def test_a_time_is_stored_in_utc_and_read_with_its_zone():
    column, moment = UtcDateTime(), datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    stored = column.process_bind_param(moment, None)
    assert stored.isoformat() == "2026-11-01T10:00:00+00:00"
    assert column.process_result_value(stored.replace(tzinfo=None), None) == moment
    read = column.process_result_value(moment, None)
    assert (read, read.tzinfo) == (moment, UTC)
    assert column.process_bind_param(None, None) is column.process_result_value(None, None) is None
    with pytest.raises(ValueError, match="2026-11-01T00:00:00 has no time zone; expected an aware datetime"):
        column.process_bind_param(datetime(2026, 11, 1), None)
