"""The clocks of the NPU: choosing one, reading each, and checking each before it is trusted."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from places import HELPERS

from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.measured.accelerator import Job
from tilewise.tuner.devices.npu import timer
from tilewise.tuner.devices.npu.timer import EVICTION_BYTES, EventTimer, MsptiTimer, ProfilerTimer

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)

NO_MSPTI = {"mspti": "absent"}
MACHINES = {
    "whole": {},
    "no mspti": NO_MSPTI,
    "not preloaded": {"mspti": "not preloaded"},
    "no mspti, no rows": {**NO_MSPTI, "profiler": "silent"},
    "no mspti, no profiler": {**NO_MSPTI, "profiler": "fails"},
    "other unit": {"mspti": "picoseconds"},
    "loses one later": {"later": {"mspti": "loses one"}},
    "loses one": {"mspti": "loses one"},
    "profiler breaks later": {**NO_MSPTI, "later": {"profiler": "silent"}},
}


@pytest.fixture(scope="module")
def clocks(cann, npu_environment):
    """The clocks that a process on each machine found."""
    environment = npu_environment(cann)
    environment |= {"LD_PRELOAD": f"{cann}/lib64/libmspti.so"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(HELPERS / "npu_stand_in"), *sys.path])}
    command = [sys.executable, str(HELPERS / "npu_clocks.py"), json.dumps(list(MACHINES.values()))]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(zip(MACHINES, json.loads(ran.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("whole", MsptiTimer.name),
        ("no mspti", ProfilerTimer.name),
        ("not preloaded", ProfilerTimer.name),
        ("no mspti, no rows", EventTimer.name),
        ("no mspti, no profiler", EventTimer.name),
        ("loses one", ProfilerTimer.name),
    ],
)
def test_the_best_clock_that_works_is_chosen(clocks, machine, name):
    assert clocks[machine]["name"] == name


@pytest.mark.parametrize(
    ("machine", "reasons"),
    [
        ("whole", []),
        ("no mspti", ["mspti: CANN's mspti does not import: libmspti.so: cannot open shared object file"]),
        (
            "not preloaded",
            ["mspti: MSPTI does not start: MsptiResult.MSPTI_ERROR_WITHOUT_LD_PRELOAD; is libmspti.so in LD_PRELOAD?"],
        ),
        ("loses one", ["mspti: it recorded 7 kernels in 8 identical runs"]),
    ],
)
def test_why_a_better_one_is_not_used_is_said(clocks, machine, reasons):
    assert clocks[machine]["passed_over"] == reasons


def test_a_profiler_that_writes_nothing_and_one_that_fails_are_told_apart(clocks):
    assert clocks["no mspti, no rows"]["passed_over"][1].startswith("profiler: the profiler wrote 0 kernel_details.csv")
    assert clocks["no mspti, no profiler"]["passed_over"][1] == "profiler: aclprofInit failed, error code 500005"


@pytest.mark.parametrize("machine", ["whole", "no mspti", "no mspti, no profiler"])
def test_all_three_clocks_say_the_same_in_microseconds(clocks, machine):
    assert clocks[machine]["samples"] == pytest.approx([7.0] * 3)  # without clearing and what comes before
    assert clocks[machine]["warm"] == pytest.approx([7.0] * 2)
    assert clocks[machine]["turns"] == [pytest.approx([7.0] * 2), pytest.approx([14.0] * 2)]
    assert clocks[machine]["read_us"] == pytest.approx(200.0)


def test_a_recording_clock_knows_what_torch_launches_and_events_need_not(clocks):
    assert clocks["whole"]["names"] == clocks["no mspti"]["names"] == ["halves_kernel"]
    assert clocks["no mspti, no profiler"]["names"] == []


def test_a_clock_in_another_unit_is_refused_and_not_replaced(clocks):
    assert clocks["other unit"]["refused"].startswith(
        "the clock mspti reports 2.517e+05 us where events measure 251.7 us: its unit has changed"
    )


def test_what_was_chosen_stays_and_a_loss_is_no_time(clocks):
    assert clocks["loses one later"]["name"] == "mspti"
    assert clocks["loses one later"]["clock_error"] == "2 runs of halves_kernel were recorded, 3 were made"
    assert clocks["profiler breaks later"]["name"] == "profiler"
    assert "wrote 0 kernel_details.csv" in clocks["profiler breaks later"]["clock_error"]


def test_enough_is_read_to_empty_the_largest_cache():
    assert EVICTION_BYTES == 192 * 1024 * 1024


@pytest.mark.parametrize("warm", [False, True])
def test_each_job_has_ended_before_the_next_is_prepared_and_begins(monkeypatch, warm):
    class Timer(MsptiTimer):
        def __init__(self):
            self._eviction = SimpleNamespace(sum=lambda: said.append("evict"))

        def _recorded(self, body):
            body()
            return []

    said = []
    npu = SimpleNamespace(synchronize=lambda: said.append("wait"))
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=npu))
    monkeypatch.setattr(timer, "run_times_us", lambda records, kernels, orders: (kernels, orders))
    befores = (lambda: said.append("reset"), None)
    jobs = [
        Job(lambda name=name: said.append(name), [name], before) for name, before in zip("ab", befores, strict=True)
    ]
    kernels, orders = Timer().rounds_us(jobs, 3, warm)
    assert kernels == [["a"], ["b"]]
    steps = [["reset", "evict", "wait", "a", "wait"], ["evict", "wait", "b", "wait"]]
    assert said == [
        step for order in orders for index in order for step in steps[index] if not (warm and step == "evict")
    ]
