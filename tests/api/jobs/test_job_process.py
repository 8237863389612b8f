"""The process of one job: it ends by itself where its job was cancelled or taken away."""

import subprocess
import sys

import pytest

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
