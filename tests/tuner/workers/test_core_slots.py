"""CoreSlots shared among processes: never more jobs than cores, and no process starves."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.workers.core_slots import CoreSlots

SCRIPT = """
import sys, threading, time
from pathlib import Path
from tilewise.tuner.workers.core_slots import CoreSlots
folder, log, jobs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
cores = CoreSlots(folder, 2)
print("there", flush=True)
sys.stdin.readline()
def work():
    for _ in range(jobs):
        with cores.one(), open(log, "a") as file:
            begin = time.monotonic()
            time.sleep(0.02)
            file.write(f"{sys.argv[4]} {begin} {time.monotonic()}\\n")
threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_two_processes_share_the_cores(tmp_path):
    log = tmp_path / "log"
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "cores"), str(log), "20"]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen([*words, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=path)
        for name in "ab"
    ]
    for process in both:
        assert process.stdout.readline() == "there\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    rows = [line.split() for line in log.read_text().splitlines()]
    jobs = sorted((float(begin), float(end), name) for name, begin, end in rows)
    assert len(jobs) == 80
    for begin, _, _ in jobs:
        assert sum(b <= begin < e for b, e, _ in jobs) <= 2
    first_half = [name for _, _, name in jobs[:40]]
    assert 10 <= first_half.count("a") <= 30


def test_a_core_comes_back_from_a_process_that_is_killed(tmp_path):
    hold = "import sys, time; from pathlib import Path; from tilewise.tuner.workers.core_slots import CoreSlots\n"
    hold += "with CoreSlots(Path(sys.argv[1]), 1).one(): print('held', flush=True); time.sleep(60)"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=path)
    try:
        assert holder.stdout.readline() == "held\n"
        got = threading.Event()

        def take():
            with CoreSlots(tmp_path, 1).one():
                got.set()

        threading.Thread(target=take).start()
        assert not got.wait(0.1)
    finally:
        holder.kill()
        holder.communicate()
    assert got.wait(60)


def test_closing_lets_go_of_who_waits(tmp_path):
    cores = CoreSlots(tmp_path, 1)
    with CoreSlots(tmp_path, 1).one():
        begun, done = threading.Event(), threading.Event()

        def wait():
            begun.set()
            with cores.one():
                done.set()

        threading.Thread(target=wait).start()
        begun.wait(60)
        time.sleep(0.05)
        assert not done.is_set()
        cores.close()
        assert done.wait(60)


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(Unavailable, match=r"cannot share the cores: .*set TILEWISE_CACHE"),
        CoreSlots(tmp_path / "file" / "cores", 1).one(),
    ):
        pass
