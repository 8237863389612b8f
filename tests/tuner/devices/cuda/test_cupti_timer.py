"""Splitting CUPTI's records into runs, and the timer's order of work, on a simulated device."""

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.cuda.cupti_timer import LAUNCHES, CuptiTimer, split
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
        self.lost = 0

    def launch(self, name, us):
        self.order.append(record(name, self.now_us, us))
        self.now_us += us + 1

    def max(self):
        self.launch("evict", 30.0)

    def synchronize(self, device=None):
        pass

    def _sleep(self, cycles):
        self.slept.append(len(self.order))

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
    monkeypatch.setattr(torch, "zeros", lambda size, **options: None)
    CuptiTimer()
    assert asked == [torch.device("cuda", 0)]
