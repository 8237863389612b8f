"""The energy of a launch, from a board of a test that takes 300 W and counts in steps."""

import itertools
from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.cuda import energy
from tilewise.tuner.devices.cuda.energy import energy_per_run_uj
from tilewise.tuner.devices.measured.accelerator import Job

WATTS, STEP_S = 300.0, 0.025
RUN_US = 40.0


class Board:
    """A board with a clock of its own, which only replays and looks at it move."""

    def __init__(self):
        self.now, self.runs, self.counts = 100.0, [], True

    def monotonic(self):
        self.now += 1e-5
        return self.now

    def counter(self):
        self.now += 1e-5
        return WATTS * 1e3 * STEP_S * (self.now // STEP_S) if self.counts else 7.0

    def graph(self, job, runs):
        self.runs.append(runs)
        return SimpleNamespace(replay=lambda: self._replay(runs))

    def _replay(self, runs):
        self.now += runs * RUN_US * 1e-6

    def synchronize(self):
        return None

    def record_event(self):
        return SimpleNamespace(synchronize=lambda: None)


@pytest.fixture
def board(monkeypatch):
    made = Board()
    monkeypatch.setattr(energy, "time", made)
    monkeypatch.setattr(energy, "_graph", made.graph)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: made)
    return made


def test_the_energy_is_what_the_board_took_from_step_to_step_over_the_runs_between(board):
    found = energy_per_run_uj(Job(lambda: None, ["kernel"]), RUN_US, board.counter)
    assert found == pytest.approx(WATTS * RUN_US, rel=0.02)
    assert board.runs == [50]


@pytest.mark.parametrize(("time_us", "runs"), [(0.5, 512), (1999.0, 1), (1e6, 1)])
def test_a_graph_holds_as_many_runs_as_take_two_milliseconds(board, time_us, runs):
    energy_per_run_uj(Job(lambda: None, ["kernel"]), time_us, board.counter)
    assert board.runs == [runs]


def test_the_counter_is_read_once_in_a_burst_that_is_long_beside_a_reading(board):
    reads = []
    energy_per_run_uj(Job(lambda: None, ["kernel"]), RUN_US, lambda: reads.append(board.now) or board.counter())
    gaps = [after - before for before, after in itertools.pairwise(reads)]
    assert min(gaps[1:]) >= 0.01 and max(gaps) < STEP_S


def test_of_a_counter_that_stands_still_there_is_no_energy(board):
    board.counts = False
    assert energy_per_run_uj(Job(lambda: None, ["kernel"]), RUN_US, board.counter) is None


@pytest.mark.parametrize("resets", [True, False])
def test_a_graph_holds_each_run_after_what_resets_its_outputs(monkeypatch, resets):
    done = []
    graph = SimpleNamespace(replay=lambda: None)

    class Capture:
        def __init__(self, captured):
            assert captured is graph

        def __enter__(self):
            done.append("begin")

        def __exit__(self, *error):
            done.append("end")

    monkeypatch.setattr("torch.cuda.CUDAGraph", lambda: graph)
    monkeypatch.setattr("torch.cuda.graph", Capture)
    job = Job(lambda: done.append("run"), ["kernel"], before=(lambda: done.append("reset")) if resets else None)
    assert energy._graph(job, 3) is graph
    assert done == ["begin", *[*["reset"] * resets, "run"] * 3, "end"]


@pytest.mark.parametrize(("settled_s", "measured_s"), [(0.5, 1.0), (2.0, 3.0)])
def test_the_first_reading_comes_after_the_board_has_settled_and_the_last_a_second_later(
    board, monkeypatch, settled_s, measured_s
):
    monkeypatch.setattr(energy, "_SETTLE_SECONDS", settled_s)
    monkeypatch.setattr(energy, "SECONDS", measured_s)
    began = board.now
    energy_per_run_uj(Job(lambda: None, ["kernel"]), RUN_US, board.counter)
    assert settled_s + measured_s <= board.now - began <= settled_s + measured_s + 4 * STEP_S
