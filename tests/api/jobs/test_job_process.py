"""The process of one job: it ends by itself where its job was cancelled or taken away."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tilewise.api.jobs import job_process
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError

HEARTBEATS = """
import sys
from types import SimpleNamespace
from tilewise.api.jobs import job_process

job_process.BEAT_SECONDS, job_process._GRACE_SECONDS = 0.01, 0.05
beats = []

def beat(number, owner, progress):
    beats.append(number)
    return None if sys.argv[1] == "taken away" and len(beats) > 2 else SimpleNamespace(cancelling=len(beats) > 2)

job = SimpleNamespace(id=1, shapes=[])
job_process._Run(None, SimpleNamespace(beat=beat), job, "me", "vector_add")._beat()
"""


@pytest.mark.parametrize(("event", "code"), [("taken away", 2), ("cancelled in a trial that does not end", 3)])
def test_a_process_ends_where_its_job_is_no_longer_its_own(event, code):
    done = subprocess.run([sys.executable, "-c", HEARTBEATS, event], timeout=60, check=False)
    assert done.returncode == code


def test_the_end_is_told_again_after_a_pause_for_as_long_as_the_database_fails(monkeypatch):
    pauses, ends = [], iter([StoreError("locked"), StoreError("locked"), None])
    monkeypatch.setattr(job_process, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def finish(*told):
        if error := next(ends):
            raise error

    job = SimpleNamespace(id=1, shapes=[])
    job_process._Run(None, SimpleNamespace(finish=finish), job, "me", "vector_add")._finish(State.DONE, "")
    assert pauses == [job_process.BEAT_SECONDS] * 2


def test_a_queued_job_is_claimed_before_it_runs_and_a_claimed_one_is_left_alone(store_url, monkeypatch):
    ran = []
    monkeypatch.setattr(job_process._Run, "to_the_end", lambda run: ran.append(run._owner))
    with open_store(store_url, create=True) as store:
        jobs = Jobs(store.database)
        job, _ = jobs.submit(Request("vector_add", "a1", [{"N": 100}], "float32", "model:Ascend910B4"))
        for _ in range(2):
            job_process.run_job(store_url, job.id, "vector_add")
        assert (jobs.get(job.id).state, len(ran)) == (State.RUNNING, 1)
