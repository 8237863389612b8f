"""`tune`: a whole tuning as one call, and requests refused before anything is opened."""

import json

import pytest
from places import HELPERS

from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadDimension, BadSpec, StoreError, UnknownDevice, UnknownDtype, UnknownKernel, UsageError
from tilewise.tuner import tune
from tilewise.tuner.tuning import tune as tuning

FILE = HELPERS / "bowl.py"


@pytest.fixture
def opened(bowl, monkeypatch):
    """The devices opened by name, all of them the bowl's."""
    devices = []

    def open_device(text):
        devices.append(bowl.FormulaDevice())
        return devices[-1]

    monkeypatch.setattr(tuning, "open_device", open_device)
    return devices


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"spec": "no_such_kernel"}, UnknownKernel, "unknown kernel 'no_such_kernel'"),
        ({"spec": "no/such/file.py:SPEC"}, BadSpec, "no file no/such/file.py"),
        ({"spec": len}, BadSpec, "<built-in function len> is not a KernelSpec; pass a KernelSpec, a registered"),
        ({"dims": [1000, 8192]}, BadDimension, "the dimensions are .*; expected a mapping with the size of M"),
        ({"search": "best"}, UsageError, "unknown search 'best'; expected one of guided, tpe, random, exhaustive"),
        ({"dtype": "float8"}, UnknownDtype, "kernel bowl does not take 'float8'; it takes float32, float16"),
        ({"dims": {}}, BadDimension, "kernel bowl needs M; M is missing"),
        ({"dims": {"M": 0}}, BadDimension, "dimension M is 0"),
        ({"dims": {"M": 1, "K": 1}}, BadDimension, "kernel bowl has no dimension K"),
        ({"trials": 0}, UsageError, "a budget of 0 trials"),
        ({"timeout": -1}, UsageError, "a budget of -1 seconds"),
    ],
)
def test_a_request_that_makes_no_sense_opens_no_device_and_no_store(opened, tmp_path, changes, error, message):
    request = {"spec": f"{FILE}:SPEC", "dims": {"M": 64}, "db": f"sqlite:///{tmp_path / 'new.db'}"} | changes
    with pytest.raises(error, match=message):
        tune(**request)
    assert not opened
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_device_makes_no_database(tmp_path):
    with pytest.raises(UnknownDevice, match="unknown device 'tpu'"):
        tune(f"{FILE}:SPEC", {"M": 64}, device="tpu", db=f"sqlite:///{tmp_path / 'new.db'}")
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_in_a_file_is_tuned_into_a_database_by_url(opened, bowl, url):
    result = tune(f"{FILE}:SPEC", {"M": 64}, trials=30, db=url)
    assert result.winner is not None and result.winner.verified
    assert opened[0].closed
    with open_store(url) as store:
        assert store.lookup(result.scope.question) == result


def test_a_recorded_landscape_is_tuned_by_the_name_of_what_it_records(tmp_path):
    cache = {f"{x}": {"x": x, "time": 1.0 + abs(x - 3)} for x in range(8)}
    (tmp_path / "gemm.json").write_text(
        json.dumps({"kernel_name": "gemm", "device_name": "RTX 1", "tune_params_keys": ["x"], "cache": cache})
    )
    result = tune("gemm", {}, device=f"replay:{tmp_path / 'gemm.json'}", db="sqlite://")
    assert result.winner is not None
    assert (result.winner.config, result.scope.device) == ({"x": 3}, "RTX 1")
    with pytest.raises(UsageError, match="records only gemm"):
        tune("softmax", {"M": 4, "N": 4}, device=f"replay:{tmp_path / 'gemm.json'}", db="sqlite://")


def test_without_a_limit_a_search_tries_all_of_a_space_below_the_default(opened, bowl, store):
    for search, count in (("random", 104), ("exhaustive", 104)):
        result = tune(bowl.SPEC, {"M": 64}, search=search, db=store, fresh=True)
        assert sum(result.counts.values()) in (count, count + 1)


def test_what_the_caller_opened_stays_open(bowl, store):
    device = bowl.FormulaDevice()
    result = tune(bowl.SPEC, {"M": 64}, device=device, trials=3, db=store)
    assert not device.closed
    assert store.result(result.scope) == result


def test_a_device_is_closed_where_the_store_does_not_open(opened, bowl, tmp_path):
    (tmp_path / "no.db").write_text("no database, but long enough to be taken for one\n" * 100)
    with pytest.raises(StoreError):
        tune(bowl.SPEC, {"M": 64}, db=f"sqlite:///{tmp_path / 'no.db'}")
    assert all(device.closed for device in opened)


def test_a_device_is_closed_after_an_error(opened, bowl, store, monkeypatch):
    monkeypatch.setattr(bowl.FormulaDevice, "evaluate", lambda self, *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tune(bowl.SPEC, {"M": 64}, db=store)
    assert opened[0].closed


def test_the_configured_database_is_used_where_none_is_given(opened, bowl, url, monkeypatch):
    monkeypatch.setenv("TILEWISE_DB", url)
    result = tune(bowl.SPEC, {"M": 64}, trials=3)
    with open_store(url, create=False) as store:
        assert store.result(result.scope).counts[Status.CORRECT] == 4
