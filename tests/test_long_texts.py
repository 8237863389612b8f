"""Long texts of users, which messages cut so that they stay one line: how much of each is shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tilewise.api.pages import routes as page_routes
from tilewise.api.pages.problem import routes as problem_routes
from tilewise.api.pages.problem import trial_table
from tilewise.db.exchange import jsonfile, typed
from tilewise.db.exchange.foreign.caches import dejavu, triton_cache
from tilewise.db.exchange.foreign.caches.fla import read_fla
from tilewise.db.exchange.foreign.landscapes import t4
from tilewise.db.exchange.foreign.tables import read_table
from tilewise.db.exchange.import_file import About, ImportFile, foreign_scope
from tilewise.db.exchange.native import entry_stream, export_file
from tilewise.db.helion_records import HelionRecords
from tilewise.db.records import Problem, Suggestion
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.tuner.devices import replay
from tilewise.tuner.ingest.import_checks import checked_import
from tilewise.tuner.space import problem_checks, rungs

LONG = "x" * 300
ABOUT = About(kernel="softmax", dims={"M": 1, "N": 8}, dtype="float32", device=LONG, cores=0)


def helion(act):
    with open_store("sqlite://") as store:
        getattr(HelionRecords(store.database), act)(LONG)


def refusals(reading):
    return [f"{refusal.place}: {refusal.reason}" for refusal in reading.refusals]


def suggestion(kernel="softmax", config=None, device="NVIDIA H200"):
    return Suggestion(Problem(kernel, {"M": 8, "N": 64}, "float32"), device, config or {}, "a table")


def checked(*suggestions):
    return refusals(checked_import(ImportFile(suggestions=suggestions)))


def fla():
    entries = f'{{"kernel_name": "mine", "autotune_entries": {{"{LONG}": {{}}}}}}'
    return refusals(read_fla(entries.encode(), "mine.json", About(device="NVIDIA H200")))


def dejavu_parts():
    storage = SimpleNamespace(cache={LONG: ""}, timings={})
    return [part.place for part in dejavu._parts(storage, ABOUT, datetime.now(UTC))]


@pytest.mark.parametrize(
    ("act", "shown"),
    [
        (lambda: helion("get"), 64),
        (lambda: helion("remove"), 40),
        (lambda: typed._shown(LONG), 39),  # and a quote
        (lambda: jsonfile._object([(LONG, 1), (LONG, 2)]), 40),
        (lambda: foreign_scope(ABOUT, "elsewhere"), 60),
        (lambda: read_table._rung(LONG), 20),
        (lambda: t4._us_per(LONG), 40),
        (lambda: triton_cache.split_key([LONG], []), 20),
        (lambda: dejavu._fields(LONG), 40),
        (dejavu_parts, 60),
        (fla, 40),
        (lambda: export_file._check_header({"format": LONG}), 39),
        (lambda: list(entry_stream._members(SimpleNamespace(items=lambda *ends: [1], value=lambda: [LONG]))), 38),
        (lambda: checked(suggestion(kernel=LONG)), 40),
        (lambda: checked(suggestion(config={LONG: 1})), 40),
        (lambda: replay._clock({"clock": LONG}), 40),
        (lambda: rungs._cut(LONG), 40),
        (lambda: rungs._cut("x" * 40), 40),
        (lambda: problem_checks._cut(LONG), 40),
        (lambda: problem_checks.make_problem(registry.load("softmax"), LONG, "float32"), 59),
        (lambda: trial_table.TrialQuery.of({"status": LONG}), 30),
        (lambda: trial_table._within(LONG), 30),
        (lambda: trial_table._first(LONG), 30),
        (lambda: page_routes._before(LONG), 30),
        (lambda: problem_routes._trial_number(SimpleNamespace(query_params={"a": LONG}), "a", 0, 5), 30),
    ],
)
def test_so_much_of_a_long_text_is_shown(act, shown):
    try:
        told = str(act())
    except Exception as error:
        told = str(error)
    assert max(map(len, re.findall("x+", told))) == shown
