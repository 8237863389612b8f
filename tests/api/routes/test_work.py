"""Objects and results of a worker's operation, with parts that note what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import IntegrityError

from tilewise.api.http import schemas
from tilewise.api.routes import work
from tilewise.db.queue import Lease
from tilewise.db.sql.leased_store import Repeated
from tilewise.errors import StoreError, UsageError

LEASE = {"job": 7, "owner": "h/1/me", "number": 3}
BODY = schemas.WorkRequest(arguments={"a": 1})
BOUNDS = SimpleNamespace(bound=lambda name, arguments: arguments, shown=lambda result: f"shown {result}")
SERVICE = SimpleNamespace(
    jobs="jobs",
    jobs_writer="jobs to write",
    store=SimpleNamespace(database="read"),
    writer=SimpleNamespace(database="written"),
)


def operation(**changes):
    fields = {"name": "jobs.get", "part": "jobs", "method": "get", "writes": False, "leased": False, "returns": str}
    return SimpleNamespace(
        **fields | changes,
        from_json=lambda arguments: dict(arguments),
        result_to_json=lambda result: f"json of {result}",
    )


def carried_out(monkeypatch, act, bounds=BOUNDS, **changes):
    monkeypatch.setattr(work, "_target", lambda *given: SimpleNamespace(get=act))
    return work._carry_out(SERVICE, operation(**changes), BODY, bounds)


def fail(error):
    def act(**arguments):
        raise error

    return act


def test_an_operation_is_carried_out_with_its_arguments(monkeypatch):
    assert carried_out(monkeypatch, lambda a: f"result of {a}") == "json of shown result of 1"


@pytest.mark.parametrize(("returns", "result"), [(bool, False), (int, None), (str, None)])
def test_an_operation_that_would_change_nothing_is_not_carried_out(monkeypatch, returns, result):
    bounds = SimpleNamespace(bound=lambda name, arguments: None)
    assert carried_out(monkeypatch, fail(KeyError("not here")), bounds, returns=returns) is result


@pytest.mark.parametrize(("returns", "result"), [(int, 0), (bool, None), (str, None)])
def test_a_write_that_was_made_before_succeeds(monkeypatch, returns, result):
    found = carried_out(monkeypatch, fail(Repeated("it was stored")), returns=returns)
    assert found == result and type(found) is type(result)


def test_what_the_database_refuses_is_the_workers_fault_and_a_database_that_is_away_is_not(monkeypatch):
    refused, away = StoreError("it is refused"), StoreError("it is away")
    refused.__cause__ = IntegrityError("INSERT", {}, Exception("a trial"))
    away.__cause__ = OSError("it is gone")
    with pytest.raises(UsageError, match="the database refused it as impossible; nothing was written"):
        carried_out(monkeypatch, fail(refused))
    with pytest.raises(StoreError, match="it is away"):
        carried_out(monkeypatch, fail(away))


def test_progress_is_kept_as_far_as_it_is_known(monkeypatch):
    bounds = SimpleNamespace(
        bound=lambda name, arguments: {"progress": {"shapes_done": 1, "mood": "good"}}, shown=lambda result: result
    )
    told = carried_out(monkeypatch, lambda progress: sorted(progress), bounds)
    assert told == "json of ['shapes_done']"
    wrong = SimpleNamespace(bound=lambda name, arguments: {"progress": {"failed": [{"shape": 3}]}})
    with pytest.raises(UsageError, match=r"^the progress is of another version: failed/0"):
        carried_out(monkeypatch, fail(KeyError()), wrong)


@pytest.mark.parametrize(
    ("part", "writes", "target"),
    [
        ("jobs", False, "jobs"),
        ("jobs", True, "jobs to write"),
        ("workers", False, "workers of read"),
        ("workers", True, "workers of written"),
        ("kernels", False, "kernels of read"),
        ("kernels", True, "kernels of written"),
        ("store", False, SERVICE.store),
        ("store", True, SERVICE.writer),
    ],
)
def test_an_operation_is_one_of_its_part_for_reading_or_writing(monkeypatch, part, writes, target):
    monkeypatch.setattr(work, "Workers", lambda database: f"workers of {database}")
    monkeypatch.setattr(work, "SignedKernels", lambda database: f"kernels of {database}")
    assert work._target(SERVICE, operation(part=part, writes=writes), BODY, None, {}) == target


def test_a_write_under_a_lease_is_bound_by_it():
    checked = []
    bounds = SimpleNamespace(
        stored=lambda lease: Lease(lease.job, f"stored {lease.owner}", lease.number),
        check_scope=lambda *given: checked.append(given),
    )
    writer = SimpleNamespace(store=lambda store, lease, *, number: (store, lease, number))
    service = SimpleNamespace(jobs_writer=writer, writer="the store")
    body = schemas.WorkRequest(arguments={}, lease=LEASE, number=5)
    leased = operation(name="store.record", leased=True)
    lease = Lease(7, "stored h/1/me", 3)
    assert work._target(service, leased, body, bounds, {"scope": "the scope"}) == ("the store", lease, 5)
    assert checked == [(lease, "the scope")]
    for missing in ({"lease": LEASE}, {"number": 5}, {}):
        with pytest.raises(UsageError, match=r"^store\.record needs the lease of a job, and a number that rises"):
            work._target(service, leased, schemas.WorkRequest(arguments={}, **missing), bounds, {"scope": None})
