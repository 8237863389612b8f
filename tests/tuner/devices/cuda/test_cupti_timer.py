"""Splitting CUPTI's records into runs, and the timer's order of work, on a simulated device."""

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.cuda import cupti_timer
from tilewise.tuner.devices.cuda.cupti_timer import (
    LAUNCHES,
    CuptiTimer,
    choose_timer,
    split,
)
from tilewise.tuner.devices.measured.accelerator import Job, turns

OTHER = ("reduce_kernel", 0, 30_000)


def record(name, start_us, us):
    return (name, int(start_us * 1e3), int(us * 1e3))


def test_a_kernel_takes_from_its_start_to_its_end_whatever_runs_between():
    records = [OTHER, record("sums", 10, 5), OTHER, record("sums", 50, 5.25)]
    assert split(records, [["sums"]], [[0], [0]]) == [[5.0, 5.25]]


def test_a_run_of_several_kernels_takes_from_the_first_start_to_the_last_end():
    records = [record("partial", 10, 5), record("total", 16, 2), record("partial", 60, 6), record("total", 67, 2)]
    assert split(records, [["partial", "total"]], [[0], [0]]) == [[8.0, 9.0]]


def test_jobs_that_take_turns_are_told_apart_though_they_launch_the_same_function():
    records = [record("sums", 10 * n, n) for n in range(1, 7)]
    orders = [[0, 1], [1, 0], [0, 1]]
    assert split(records, [["sums"], ["sums"]], orders) == [[1.0, 4.0, 5.0], [2.0, 3.0, 6.0]]


def test_turns_are_balanced_and_the_same_every_time():
    """A period of two in the device's times must not be taken for a difference between two jobs."""
    orders = turns(2, 400)
    assert orders == turns(2, 400)
    assert all(sorted(order) == [0, 1] for order in orders)
    firsts = sum(order[0] == 0 for order in orders)
    assert 170 < firsts < 230


@pytest.mark.parametrize(
    "records",
    [
        [record("sums", 10, 5)],
        [record("sums", 10, 5)] * 3,
        [record("other", 10, 5)] * 2,
        [],
    ],
)
def test_records_that_were_lost_or_are_too_many_are_no_times(records):
    with pytest.raises(RuntimeError, match="of 2 launched"):
        split(records, [["sums"]], [[0], [0]])


class SimulatedTimer(CuptiTimer):
    """A timer whose device runs launches one after the other; `order` lists them."""

    def __init__(self):
        self.order, self.now_us, self._used, self.slept = [], 0.0, 0.0, []
        self._device, self._cuda, self._eviction = None, self, self
        self.lost, self.cycles, self.waits = 0, [], 0

    def launch(self, name, us):
        self.order.append(record(name, self.now_us, us))
        self.now_us += us + 1

    def max(self):
        self.launch("evict", 30.0)

    def synchronize(self, device=None):
        self.waits += 1

    def _sleep(self, cycles):
        self.slept.append(len(self.order))
        self.cycles.append(cycles)

    def _recorded(self, run):
        first = len(self.order)
        run()
        return self.order[first + self.lost :]


def job(timer, *kernels, before=None):
    return Job(lambda: [timer.launch(name, us) for name, us in kernels], [name for name, _ in kernels], before)


def test_caches_are_cleared_before_each_run_unless_warm_is_asked_for():
    timer = SimulatedTimer()
    run = job(timer, ("sums", 5.0))
    assert timer.samples_us(run.run, run.kernels, 3) == [5.0] * 3
    assert [name for name, _, _ in timer.order[-6:]] == ["evict", "sums"] * 3
    warm = SimulatedTimer()
    run = job(warm, ("sums", 5.0))
    warm.samples_us(run.run, run.kernels, 3, warm=True)
    assert [name for name, _, _ in warm.order[-3:]] == ["sums"] * 3


def test_what_comes_before_a_run_comes_before_the_clearing_and_is_not_timed():
    timer = SimulatedTimer()
    run = job(timer, ("sums", 5.0), before=lambda: timer.launch("fill", 9.0))
    assert timer.samples_us(run.run, run.kernels, 2, run.before) == [5.0, 5.0]
    assert [name for name, _, _ in timer.order[-3:]] == ["fill", "evict", "sums"]


def test_the_host_is_ahead_where_a_run_is_of_several_kernels_and_the_queue_is_never_full():
    timer = SimulatedTimer()
    single, double = job(timer, ("sums", 5.0)), job(timer, ("partial", 5.0), ("total", 2.0))
    times = timer.rounds_us([single, double], 100)
    assert times == [[5.0] * 100, [8.0] * 100]
    launched = [b - a for a, b in zip(timer.slept, [*timer.slept[1:], len(timer.order)], strict=True)]
    assert max(launched) <= LAUNCHES
    assert sum(launched) == 100 * 5


def test_a_lost_record_is_an_error_rather_than_a_wrong_time():
    timer = SimulatedTimer()
    timer.lost = 2
    run = job(timer, ("sums", 5.0))
    with pytest.raises(RuntimeError, match="CUPTI recorded 9 kernels of 10 launched"):
        timer.samples_us(run.run, run.kernels, 10)


def test_a_device_without_records_does_not_work():
    timer = SimulatedTimer()
    assert timer.works()
    timer.lost = 9
    assert not timer.works()


def test_without_an_index_it_times_on_the_first_gpu(monkeypatch):
    torch, asked = pytest.importorskip("torch"), []

    def properties(device):
        asked.append(device)
        return SimpleNamespace(L2_cache_size=1024)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch, "zeros", lambda size, dtype, device: (size * dtype.itemsize, device))
    assert CuptiTimer()._eviction == (2048, torch.device("cuda", 0))  # twice the cache
    assert CuptiTimer(1)._eviction == (2048, torch.device("cuda", 1))
    assert asked == [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.fixture
def clocked(monkeypatch):
    """A timer in whose time a launch takes the host 10 us."""
    timer = SimulatedTimer()
    monkeypatch.setattr(cupti_timer, "time", SimpleNamespace(perf_counter=lambda: 100.0 + len(timer.order) * 1e-5))
    return timer


def test_the_wait_before_a_chunk_is_twice_what_the_host_needs_for_it(clocked):
    clocked._used = 100.0
    double = job(clocked, ("partial", 5.0), ("total", 2.0))
    clocked.rounds_us([double], 100)
    rounds = LAUNCHES // 4  # of a clearing and two kernels; one more for what comes before
    assert clocked.cycles == [pytest.approx(2 * 30 * count * 2000, rel=1e-6) for count in (rounds, 100 - rounds)]
    assert clocked.slept == [6, 6 + 3 * rounds]  # after two rounds that show the host's time
    assert clocked.waits == 2


def test_a_run_of_one_kernel_needs_no_wait(clocked):
    clocked._used = 100.0
    single = job(clocked, ("sums", 5.0))
    clocked.rounds_us([single, single], 3)
    assert (clocked.cycles, clocked.waits, len(clocked.order)) == ([], 0, 12)


def test_a_device_that_was_idle_is_kept_busy_before_it_is_timed(clocked):
    single = job(clocked, ("sums", 5.0))
    clocked._used = 100.0 - 0.0201
    clocked.rounds_us([single], 1)
    woken = 1000  # 10 ms of launches
    assert len(clocked.order) == woken + 2
    assert clocked.waits == woken
    clocked._used = 100.0 + len(clocked.order) * 1e-5 - 0.0199
    clocked.rounds_us([single], 1)
    assert len(clocked.order) == woken + 4


def test_a_device_counts_as_used_when_its_last_round_was_over(clocked):
    clocked.rounds_us([job(clocked, ("sums", 5.0))], 1)
    assert clocked._used == pytest.approx(100.0 + len(clocked.order) * 1e-5)


class Profiled:
    """torch's profile of a device that ran two kernels, recorded in no order, beside memory operations and the host."""

    def __init__(self, **given):
        self.given = given
        self.kineto_results = self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def events(self):
        from torch._C._autograd import DeviceType

        rows = [("second", 900, 40), ("first", 500, 70), ("Memset (Device)", 1, 1), ("Memcpy DtoH", 2, 2)]
        on_device = [(*row, DeviceType.CUDA) for row in rows]
        return [
            SimpleNamespace(
                name=lambda name=name: name,
                start_ns=lambda start=start: start,
                duration_ns=lambda duration=duration: duration,
                device_type=lambda where=where: where,
            )
            for name, start, duration, where in [*on_device, ("cudaLaunchKernel", 3, 3, DeviceType.CPU)]
        ]


def test_only_kernels_of_the_device_are_taken_from_the_profiler_by_their_start(monkeypatch):
    pytest.importorskip("torch")
    from torch.autograd import profiler

    made, ran = [], []
    monkeypatch.setattr(profiler, "profile", lambda **given: made.append(given) or Profiled())
    timer = SimulatedTimer()
    records = CuptiTimer._recorded(timer, lambda: ran.append(timer.waits))
    assert records == [("first", 500, 70), ("second", 900, 40)]
    assert made == [{"use_cpu": False, "use_device": "cuda", "use_kineto": True}]
    assert (ran, timer.waits) == ([0], 1)  # the end of the work is waited for


def test_the_kernels_of_a_function_are_named_in_order():
    timer = SimulatedTimer()
    assert timer.names(job(timer, ("partial", 5.0), ("total", 2.0)).run) == ["partial", "total"]


@pytest.mark.parametrize(("works", "name"), [(True, "cupti"), (False, "events")])
def test_events_time_where_cupti_does_not_work(monkeypatch, works, name):
    monkeypatch.setattr(CuptiTimer, "__init__", lambda self, index: setattr(self, "index", index))
    monkeypatch.setattr(CuptiTimer, "works", lambda self: works)
    monkeypatch.setattr(cupti_timer.CudaTimer, "__init__", lambda self, index: setattr(self, "index", index))
    timer = choose_timer(1)
    assert (timer.name, timer.index) == (name, 1)
    assert choose_timer().index == 0


def test_a_profiler_that_is_forbidden_does_not_work():
    timer = SimulatedTimer()

    def forbidden(run):
        raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    timer._recorded = forbidden
    assert timer.works() is False
