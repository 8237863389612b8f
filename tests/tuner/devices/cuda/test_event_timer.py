"""The CUDA timer's rule, on a simulated device and host: a batch counts only if the host was ahead of the device."""

import pytest

from tilewise.tuner.devices.cuda.event_timer import MIN_SAMPLES, CudaTimer


class SimulatedCuda:
    """A device that works through a queue, and a host whose launches take time; microseconds throughout."""

    def __init__(self, host_us):
        self.host_us, self.host_now, self.device_free = host_us, 0.0, 0.0

    def launch(self, device_us, host_us=None):
        self.host_now += self.host_us if host_us is None else host_us
        self.device_free = max(self.device_free, self.host_now) + device_us

    def synchronize(self, device=None):
        self.host_now = max(self.host_now, self.device_free)

    def _sleep(self, cycles):
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
        self.cuda.launch(30.0)


@pytest.fixture
def timer_for(monkeypatch):
    def make(host_us):
        cuda = SimulatedCuda(host_us)
        timer = CudaTimer.__new__(CudaTimer)
        timer._cuda, timer._device, timer._eviction = cuda, None, Eviction(cuda)
        timer._warm = lambda seconds: None
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
