"""The CUDA timer's rule, on a simulated device and host: a batch counts only if the host was ahead of the device."""

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.cuda import event_timer
from tilewise.tuner.devices.cuda.event_timer import BATCH, MIN_SAMPLES, CudaTimer


class SimulatedCuda:
    """A device that works through a queue, and a host whose launches take time; microseconds throughout."""

    def __init__(self, host_us):
        self.host_us, self.host_now, self.device_free = host_us, 0.0, 0.0
        self.waits_us, self.evictions, self.waited_for = [], 0, []

    def launch(self, device_us, host_us=None):
        self.host_now += self.host_us if host_us is None else host_us
        self.device_free = max(self.device_free, self.host_now) + device_us

    def synchronize(self, device=None):
        self.waited_for.append(self.evictions)
        self.host_now = max(self.host_now, self.device_free)

    def _sleep(self, cycles):
        self.waits_us.append(cycles / 2000)
        self.launch(cycles / 2000)

    def Event(self, enable_timing):  # noqa: N802 - torch's name
        return SimulatedEvent(self)


class SimulatedEvent:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self):
        self.cuda.launch(0.0, host_us=1.0)
        self.at = self.cuda.device_free

    def query(self):
        return self.cuda.host_now >= self.at

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e3


class Eviction:
    def __init__(self, cuda):
        self.cuda = cuda

    def zero_(self):
        self.cuda.evictions += 1
        self.cuda.launch(30.0)


@pytest.fixture
def timer_for(monkeypatch):
    def make(host_us):
        cuda = SimulatedCuda(host_us)
        timer = CudaTimer.__new__(CudaTimer)
        timer._cuda, timer._device, timer._eviction = cuda, None, Eviction(cuda)
        timer._warm = lambda seconds: None
        monkeypatch.setattr(event_timer, "time", SimpleNamespace(perf_counter=lambda: cuda.host_now / 1e6))
        return timer, cuda

    return make


@pytest.mark.parametrize("host_us", [2.0, 50.0, 500.0])
def test_the_hosts_launch_time_is_never_in_the_figure(timer_for, host_us):
    timer, cuda = timer_for(host_us)

    def three_small_kernels():
        for _ in range(3):
            cuda.launch(4.0)

    timing = timer.device_time_us(three_small_kernels, seconds=0)
    assert timing.time_us == pytest.approx(12.0)
    assert timing.samples >= MIN_SAMPLES


def test_a_function_that_waits_for_the_device_cannot_be_timed(timer_for):
    timer, cuda = timer_for(5.0)

    def waits():
        cuda.launch(4.0)
        cuda.synchronize()

    with pytest.raises(RuntimeError, match="waits for the device"):
        timer.device_time_us(waits, seconds=0)


def test_a_reset_runs_before_each_run_and_outside_the_region(timer_for):
    timer, cuda = timer_for(5.0)
    order = []

    def reset():
        order.append("reset")
        cuda.launch(1000.0)

    def run():
        order.append("run")
        cuda.launch(7.0)

    assert timer.device_time_us(run, reset=reset, seconds=0).time_us == pytest.approx(7.0)
    assert order == ["reset", "run"] * (len(order) // 2)


def test_the_wait_before_a_batch_is_twice_what_the_host_needs_for_it(timer_for):
    timer, cuda = timer_for(50.0)  # to launch one kernel; a run launches the clearing too
    timer.samples_us(lambda: cuda.launch(7.0), (), BATCH)
    assert cuda.waits_us == pytest.approx([2 * (100 + 20) * BATCH])
    timer, cuda = timer_for(50.0)
    timer.samples_us(lambda: cuda.launch(7.0), (), BATCH, warm=True)
    assert cuda.waits_us == pytest.approx([2 * (50 + 20) * BATCH])


def test_a_batch_that_the_host_did_not_enqueue_in_time_is_tried_smaller_after_a_longer_wait(timer_for):
    timer, cuda = timer_for(5.0)

    def waits():
        cuda.launch(4.0)
        cuda.synchronize()

    with pytest.raises(RuntimeError, match="waits for the device"):
        timer._batch_ahead(waits, None, True, 80.0)
    sizes = [16, 8, 4, 2, 1, 1, 1, 1]
    assert cuda.waits_us == pytest.approx([100 * size * 2 * 4**attempt for attempt, size in enumerate(sizes)])


def test_a_host_that_is_late_once_is_ahead_with_a_smaller_batch(timer_for):
    timer, cuda = timer_for(50.0)
    samples = timer._batch_ahead(lambda: cuda.launch(7.0), None, True, 0.0)
    assert samples == pytest.approx([7.0] * (BATCH // 2))
    assert cuda.waits_us == pytest.approx([2 * 20 * BATCH, 8 * 20 * BATCH // 2])


def test_the_device_is_idle_before_the_hosts_time_is_taken_and_before_the_first_batch(timer_for):
    timer, cuda = timer_for(5.0)
    assert timer._prepare(lambda: cuda.launch(1000.0), None, warm=False) == pytest.approx(2 * 5.0)
    assert cuda.waited_for == [1, 2]
    assert cuda.host_now == cuda.device_free


def test_as_many_samples_are_returned_as_were_asked_for(timer_for):
    timer, cuda = timer_for(2.0)
    assert len(timer.samples_us(lambda: cuda.launch(4.0), (), 3)) == 3
    assert len(timer.samples_us(lambda: cuda.launch(4.0), (), BATCH + 1)) == BATCH + 1


def test_caches_are_cleared_before_every_run_unless_they_are_to_stay_warm(timer_for):
    timer, cuda = timer_for(2.0)
    timer.samples_us(lambda: cuda.launch(4.0), (), BATCH, warm=True)
    assert cuda.evictions == 0
    timer.samples_us(lambda: cuda.launch(4.0), (), BATCH)
    assert cuda.evictions == 2 + BATCH  # two runs come before the batch


@pytest.mark.parametrize(("given", "least_ms"), [({}, 50.0), ({"seconds": 0.02}, 20.0)])
def test_a_function_is_timed_until_the_time_is_over(timer_for, given, least_ms):
    timer, cuda = timer_for(2.0)
    took_ms = []

    def run():
        cuda.launch(1000.0)
        took_ms.append(cuda.host_now / 1e3)

    timing = timer.device_time_us(run, **given)
    rounds = timing.samples // MIN_SAMPLES
    assert (rounds - 1) * took_ms[-1] / rounds < least_ms <= took_ms[-1] + 2.0


def test_an_empty_region_takes_the_gap_of_its_events(timer_for):
    timer, _ = timer_for(2.0)
    assert timer.floor_us() == pytest.approx(0.0, abs=1e-6)


def test_warming_up_keeps_the_device_busy_for_as_long_as_is_asked(timer_for):
    timer, cuda = timer_for(2.0)
    del timer._warm
    timer._warm(0.01)
    batch_us = 2.0 + BATCH * 30.0
    batches = cuda.evictions // BATCH
    assert cuda.evictions % BATCH == 0
    assert (batches - 1) * batch_us < 10_000 <= batches * batch_us
    assert cuda.waited_for == [BATCH * (batch + 1) for batch in range(batches)]


def test_a_timer_clears_twice_the_cache_of_its_gpu_and_warms_up(monkeypatch):
    torch, warmed = pytest.importorskip("torch"), []
    sizes = {torch.device("cuda", 0): 1000 * 1024, torch.device("cuda", 1): 2000 * 1024}
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=sizes[device])
    )
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: (size * dtype.itemsize, device))
    monkeypatch.setattr(CudaTimer, "_warm", lambda self, seconds: warmed.append(seconds))
    for index, (device, cache_bytes) in enumerate(sizes.items()):
        assert CudaTimer(index)._eviction == (2 * cache_bytes, device)
    assert CudaTimer()._device == torch.device("cuda", 0)
    assert warmed == [0.2] * 3
