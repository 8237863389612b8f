"""Changes are named by the questions whose answers they may change, and by no others."""

from __future__ import annotations

from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import open_store


def test_a_commit_that_changes_no_answer_names_no_question(file_url, make_scope, make_trial):
    with open_store(file_url) as reader, open_store(file_url) as writer:
        changes = reader.changes()
        Jobs(writer.database).submit(Request("row_reduce", "a1", [{"M": 8, "N": 8}], "float32", "model:Ascend910B4"))
        assert changes.poll() == ()
        writer.record(make_scope(), [make_trial()])
        assert changes.poll() == [make_scope().question.key]
        assert changes.poll() == ()
        changes.close()
