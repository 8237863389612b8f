"""Detection of device changes, without false alarms."""

import dataclasses
import json

import pytest
from noise import INDEPENDENT, Noise

from tilewise.tuner.devices.measured import bench_process
from tilewise.tuner.devices.measured.accelerator import Job, Runtime, State, Timer
from tilewise.tuner.devices.measured.bench_process import Bench
from tilewise.tuner.measure.drift import CHECK, FIRST, TOLERANCE, Reference


class Device:
    """A device on which a noisy reference of 20 us takes `slow` times as long as at first."""

    def __init__(self, kind="even", seed=0, scale=0.02):
        self.noise, self.slow, self.taken = Noise(kind, seed, scale), 1.0, 0

    def sample(self, count):
        self.taken += count
        return self.noise.times(20.0 * self.slow, count)


@pytest.mark.parametrize("kind", INDEPENDENT)
@pytest.mark.parametrize("scale", [0.005, 0.02, 0.06])
def test_a_device_that_stays_as_it_was_is_never_said_to_have_changed(kind, scale):
    for seed in range(4):
        reference = Reference(Device(kind, seed, scale).sample)
        assert not any(reference.ratio() for _ in range(50))


@pytest.mark.parametrize("slow", [1.06, 1.5, 0.94])
def test_a_device_that_has_changed_is_noticed_every_time(slow):
    for seed in range(20):
        device = Device(seed=seed, scale=0.01)
        reference = Reference(device.sample)
        device.slow = slow
        assert reference.ratio() == pytest.approx(slow, rel=0.02)


def test_a_check_of_a_steady_device_is_one_look():
    device = Device(scale=0.002)
    reference = Reference(device.sample)
    assert device.taken == FIRST
    assert reference.ratio() is None
    assert device.taken == FIRST + CHECK


def test_what_lasts_becomes_the_usual():
    device = Device()
    reference = Reference(device.sample)
    device.slow = 1.2
    assert reference.ratio() is not None
    reference.renew()
    assert reference.ratio() is None
    assert device.slow > 1 + TOLERANCE


# --- in the bench process ---------------------------------------------------------------------------------------------


class ScriptedTimer(Timer):
    """A timer that multiplies a job's time by the device's slowness: `slow` lists it per sample, and the last stays."""

    name = "scripted"

    def __init__(self, slow):
        self.slow, self.candidates = list(slow), 0

    def samples_us(self, run, kernels, count, before=None, warm=False):
        us = run()
        if us == 10.0:
            self.candidates += 1
        factor = self.slow.pop(0) if len(self.slow) > 1 and us == 20.0 else self.slow[0]
        return [us * factor] * count


class ScriptedRuntime(Runtime):
    place = reference_place = "cpu"

    def __init__(self, slow):
        self.timer = ScriptedTimer(slow)

    describe = synchronize = failure = None

    def reference(self):
        return Job(lambda: 20.0, ["reference"])

    def state(self):
        return State(clock_mhz=1200.0, throttled="power cap")


def timed(slow, monkeypatch):
    monkeypatch.setattr(bench_process.time, "sleep", lambda seconds: None)
    runtime = ScriptedRuntime(slow)
    timing, facts = Bench(runtime)._timed(Job(lambda: 10.0, ["sums"]), None)
    return timing, facts, runtime.timer


def test_on_a_steady_device_a_config_is_timed_once(monkeypatch):
    timing, facts, timer = timed([1.0], monkeypatch)
    assert (timing.time_us, timing.method, timing.l2, timer.candidates) == (10.0, "scripted", "cold", 1)
    assert facts.keys() == {"timing_s", "clock_mhz", "throttled"}


def test_the_clock_and_what_throttles_it_are_kept_with_each_time(monkeypatch):
    _, facts, _ = timed([1.0], monkeypatch)
    assert (facts["clock_mhz"], facts["throttled"]) == (1200.0, "power cap")


def test_a_disturbed_config_is_timed_again_until_the_device_is_as_it_was(monkeypatch):
    timing, facts, timer = timed([1.0, 1.3, 1.3, 1.0], monkeypatch)
    assert timing.time_us == 10.0
    assert timer.candidates == 2
    drift = {"ratio": 1.3, "clock_mhz": 1200.0, "throttled": "power cap", "repeats": 1, "lasts": False}
    assert facts["drift"] == drift
    assert json.loads(json.dumps(facts)) == facts


def test_a_change_that_lasts_is_said_and_taken_as_the_usual(monkeypatch):
    timing, facts, timer = timed([1.0, *[1.25] * 20], monkeypatch)
    assert timing.time_us == 12.5
    assert timer.candidates == 1 + len(bench_process.PAUSES)
    assert facts["drift"]["lasts"] is True
    assert facts["drift"]["repeats"] == len(bench_process.PAUSES)


def test_a_warm_runtime_says_so(monkeypatch):
    runtime = ScriptedRuntime([1.0])
    runtime.warm = True
    timing, _ = Bench(runtime)._timed(Job(lambda: 10.0, ["sums"]), None)
    assert dataclasses.asdict(timing)["l2"] == "warm"
