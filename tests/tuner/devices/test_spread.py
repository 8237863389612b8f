"""One problem's candidates on several chips of different speed: their times are made comparable by anchors."""

from __future__ import annotations

import itertools
import socket
import statistics
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from noise import Noise
from places import LANDSCAPES

from tilewise.db.records import Problem, Status, Trial
from tilewise.errors import StoreError, Unavailable, UsageError
from tilewise.tuner.devices import spread
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.devices.spread import SpreadDevice, comparable

PROBLEM = Problem("bowl", {"M": 64}, "float32")
HERE = socket.gethostname()
SLOWNESS = (1.0, 0.9, 1.1, 1.05)


@pytest.fixture
def chips(bowl):
    """`chips(*slowness)` returns devices that take so many times as long for each config; a function may change it."""

    def made(*slowness):
        devices = []
        for number, slower in enumerate(slowness):
            factor = slower if callable(slower) else lambda slower=slower: slower
            device = bowl.FormulaDevice(lambda config, factor=factor: bowl.time_us(config) * factor())
            device.id = f"cuda:{number}"
            devices.append(device)
        return devices

    return made


def configs(bowl, count):
    return [{"TILE": 1 + number % 10, "WIDTH": 8 << number // 10, "fast": True} for number in range(count)]


def times(device, bowl, wanted):
    return [outcome.timing.time_us for outcome in device.evaluate(bowl.SPEC, PROBLEM, wanted)]


def test_energy_is_measured_where_each_chip_measures_it(chips):
    [one, other] = chips(1.0, 1.0)
    one.measures_energy = one.noisy = True
    assert comparable(one).measures_energy
    assert not SpreadDevice([one, other]).measures_energy


def test_times_of_chips_of_different_speed_are_those_of_the_first(bowl, chips):
    wanted = configs(bowl, 20)
    with SpreadDevice(chips(*SLOWNESS)) as device:
        assert times(device, bowl, wanted) == pytest.approx([bowl.time_us(config) for config in wanted])
        assert device.batch == 16
    with SpreadDevice(chips(*SLOWNESS), anchors=False) as device:
        ratios = {round(us / bowl.time_us(c), 2) for us, c in zip(times(device, bowl, wanted), wanted, strict=True)}
        assert ratios == set(SLOWNESS)


@pytest.mark.parametrize(("count", "ahead"), [(1, False), (2, True), (3, True)])
def test_several_chips_draw_ahead_and_leave_no_thread(bowl, chips, count, ahead):
    with SpreadDevice(chips(*[1.0] * count)) as device:
        assert (device.draws_ahead, device.batch) == (ahead, 4 * count)
        times(device, bowl, configs(bowl, 2 * count))
        assert ahead == any(thread.name.startswith("spread") for thread in threading.enumerate())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("spread")]


def test_all_chips_work_and_each_outcome_says_where_it_was_timed(bowl, chips):
    made = chips(*SLOWNESS)
    with SpreadDevice(made) as device:
        outcomes = list(device.evaluate(bowl.SPEC, PROBLEM, configs(bowl, 18)))
    assert {outcome.facts["chip"] for outcome in outcomes} == {f"cuda:{number}" for number in range(4)}
    assert all(outcome.facts["host"] for outcome in outcomes)
    slow = next(outcome for outcome in outcomes if outcome.facts["chip"] == "cuda:2")
    assert slow.facts["anchor_factor"] == pytest.approx(1 / 1.1, abs=1e-4)
    assert all(one.closed for one in made)


def test_a_config_that_fails_is_no_anchor_and_fails_on_any_chip(bowl, chips):
    made = chips(1.0, 1.1)
    for device in made:
        time_of = device._time_of
        device._time_of = lambda config, time_of=time_of: Status.RUNTIME if config["TILE"] < 4 else time_of(config)
    with SpreadDevice(made) as device:
        outcomes = list(device.evaluate(bowl.SPEC, PROBLEM, configs(bowl, 10)))
    assert [outcome.status is Status.RUNTIME for outcome in outcomes] == [True] * 3 + [False] * 7
    expected = [bowl.time_us(config) for config in configs(bowl, 10)[3:]]
    assert [outcome.timing.time_us for outcome in outcomes[3:]] == pytest.approx(expected)


@pytest.mark.parametrize(("change", "drained"), [(1.025, False), (1.035, True)])
def test_a_chip_whose_anchors_move_is_drained_by_name_and_its_share_timed_again(
    bowl, chips, monkeypatch, change, drained
):
    monkeypatch.setattr(spread, "_CONFIGS_A_FACTOR", 1)
    slowness, told = [1.1], []
    made = chips(1.0, lambda: slowness[0])
    with SpreadDevice(made, told=told.append) as device:
        times(device, bowl, configs(bowl, 10))
        slowness[0] *= change
        wanted = configs(bowl, 20)[10:]
        found = times(device, bowl, wanted)
        assert found == pytest.approx([bowl.time_us(config) for config in wanted], rel=0.02)
        before = len(made[1].evaluated)
        times(device, bowl, wanted)
    assert (len(made[1].evaluated) == before) is drained
    assert told == (["cuda:1 is drained: its anchors moved by 3.4%"] if drained else [])


def test_a_lost_chip_is_named_and_when_all_are_lost_so_is_the_device(bowl, chips):
    def gone():
        raise Unavailable("it fell off the bus")

    told, wanted = [], configs(bowl, 6)
    with SpreadDevice(chips(1.0, gone), told=told.append) as device:
        assert times(device, bowl, wanted) == [bowl.time_us(config) for config in wanted]
    assert told == ["cuda:1 is drained: it is lost: it fell off the bus"]
    with SpreadDevice(chips(gone, gone)) as device, pytest.raises(Unavailable, match="fell off the bus"):
        times(device, bowl, wanted)


def test_an_error_on_one_chip_ends_what_the_others_do(bowl, chips):
    def fails():
        raise StoreError("the disk is full")

    def waits():
        assert device._stopping.wait(60)
        return 1.0

    made = chips(1.0, fails, waits)
    with SpreadDevice(made) as device, pytest.raises(StoreError, match="the disk is full"):
        list(device.evaluate(bowl.SPEC, PROBLEM, configs(bowl, 30)))
    assert len(made[2].evaluated) == 1  # the config after which it noticed


def test_outcomes_come_in_order_and_before_the_last_is_known(bowl, chips):
    def waits():
        assert released.wait(60)
        return 1.1

    released, made = threading.Event(), chips(1.0, waits)
    wanted = configs(bowl, 5)
    with SpreadDevice(made, anchors=False) as device:
        outcomes = device.evaluate(bowl.SPEC, PROBLEM, wanted)
        first = next(outcomes)
        released.set()
        found = [outcome.timing.time_us for outcome in (first, *outcomes)]
    factors = (1.0, 1.1, 1.0, 1.1, 1.0)
    assert found == pytest.approx([bowl.time_us(c) * by for c, by in zip(wanted, factors, strict=True)])


def test_the_chips_time_their_first_anchors_at_the_same_time(bowl, chips):
    def meets():
        if next(timed) < 2 * 3:
            meeting.wait(60)
        return 1.0

    timed, meeting = itertools.count(), threading.Barrier(3)
    with SpreadDevice(chips(meets, meets, meets)) as device:
        wanted = configs(bowl, 12)
        assert times(device, bowl, wanted) == pytest.approx([bowl.time_us(config) for config in wanted])


def test_outcomes_that_wait_for_an_earlier_one_come_together_with_it(bowl, chips):
    def waits():
        assert released.wait(60)
        return 1.0

    def release():
        while any(len(one.evaluated) < 3 for one in made[1:]):
            time.sleep(0.01)
        released.set()

    released, made = threading.Event(), chips(waits, 1.0, 1.0)
    wanted = configs(bowl, 9)
    with SpreadDevice(made, anchors=False) as device:
        threading.Thread(target=release, daemon=True).start()
        found = list(device.evaluate_batches(bowl.SPEC, PROBLEM, iter([wanted])))
    assert [one.timing.time_us for together in found for one in together] == [bowl.time_us(c) for c in wanted]
    assert len(found[0]) >= 3


def test_a_chip_times_the_anchors_again_after_a_number_of_configs(bowl, chips):
    made = chips(1.0, 1.1)
    with SpreadDevice(made) as device:
        for first in range(0, 64, 8):
            times(device, bowl, configs(bowl, 64)[first : first + 8])
    own = 3 + 7 * 4  # the first chip timed the anchors, which are of the first batch
    assert len(made[1].evaluated) == own + 2 + 2


def test_a_batch_that_is_left_early_leaves_nothing_running(bowl, chips):
    made = chips(1.0, 1.1)
    with SpreadDevice(made, anchors=False) as device:
        outcomes = device.evaluate(bowl.SPEC, PROBLEM, configs(bowl, 40))
        next(outcomes)
        outcomes.close()
        timed = [len(one.evaluated) for one in made]
        times(device, bowl, configs(bowl, 2))
    assert [len(one.evaluated) for one in made] == [count + 1 for count in timed]


def test_a_batch_is_drawn_when_half_of_the_one_before_was_handed_out(bowl, chips):
    def batches():
        for first in range(0, 48, 16):
            drawn_after.append(len(handed))
            yield configs(bowl, 48)[first : first + 16]

    handed, drawn_after = [], []
    with SpreadDevice(chips(*SLOWNESS)) as device:
        assert device.draws_ahead
        for outcomes in device.evaluate_batches(bowl.SPEC, PROBLEM, batches()):
            handed += [outcome.timing.time_us for outcome in outcomes]
    assert handed == pytest.approx([bowl.time_us(config) for config in configs(bowl, 48)])
    assert drawn_after == [0, 8, 24]


def test_a_chip_goes_on_with_the_next_batch_while_another_is_behind(bowl, chips):
    def waits():
        if len(made[0].evaluated) > 3:  # in the second half of its share
            assert others_are_done.wait(60)
        return 1.0

    def goes_on():
        if all(len(one.evaluated) == 4 + 4 for one in made[1:]):
            others_are_done.set()
        return 1.0

    others_are_done, made = threading.Event(), chips(waits, goes_on, goes_on)
    wanted = configs(bowl, 24)
    with SpreadDevice(made, anchors=False) as device:
        found = device.evaluate_batches(bowl.SPEC, PROBLEM, iter([wanted[:12], wanted[12:]]))
        times_us = [outcome.timing.time_us for together in found for outcome in together]
    assert times_us == [bowl.time_us(config) for config in wanted]


def test_others_inherit_all_batches_of_a_chip_that_is_lost(bowl, chips):
    def falls():
        if len(made[1].evaluated) > 2:
            raise Unavailable("it fell off the bus")
        return 1.0

    told, made = [], chips(1.0, falls, 1.0)
    wanted = configs(bowl, 36)
    with SpreadDevice(made, anchors=False, told=told.append) as device:
        batches = iter([wanted[first : first + 12] for first in range(0, 36, 12)])
        found = device.evaluate_batches(bowl.SPEC, PROBLEM, batches)
        assert [o.timing.time_us for together in found for o in together] == [bowl.time_us(c) for c in wanted]
    assert told == ["cuda:1 is drained: it is lost: it fell off the bus"]


def test_a_device_can_be_closed_while_nobody_asks_for_the_outcomes_of_its_batches(bowl, chips):
    made = chips(1.0, 1.1)
    device = SpreadDevice(made, anchors=False)
    left = device.evaluate_batches(bowl.SPEC, PROBLEM, iter([configs(bowl, 40)]))
    next(left)
    device.close()
    assert all(one.closed for one in made)
    assert device._stopping.is_set()  # no chip begins another config


def elsewhere(bowl, count):
    """Return trials of another chip, on which configs take what the bowl says."""
    return [Trial(config, Status.CORRECT, time_us=bowl.time_us(config)) for config in configs(bowl, count)]


def test_a_chip_that_goes_on_where_another_stopped_has_the_times_of_that_one(bowl, chips):
    stored = elsewhere(bowl, 4)
    wanted = configs(bowl, 12)[4:]
    with SpreadDevice(chips(1.1)) as device:
        device.compare_with(PROBLEM, stored)
        assert times(device, bowl, wanted) == pytest.approx([bowl.time_us(config) for config in wanted])
        device.compare_with(PROBLEM, [])
        assert times(device, bowl, wanted) == pytest.approx([1.1 * bowl.time_us(config) for config in wanted])


@pytest.mark.parametrize("count", [1, 2])
def test_one_trial_of_another_chip_and_those_it_dropped_are_enough_to_compare_with(bowl, chips, count):
    first, *rest = elsewhere(bowl, count)
    wanted = configs(bowl, 12)[4:]
    with SpreadDevice(chips(1.1, 0.9)) as device:
        device.compare_with(PROBLEM, [first, *(replace(trial, dropped=True) for trial in rest)])
        assert times(device, bowl, wanted) == pytest.approx([bowl.time_us(config) for config in wanted])


def test_its_final_comparison_has_the_times_of_that_one_too(bowl):
    device = bowl.NoisyDevice(Noise("even", seed=0, scale=1e-6), lambda config: 1.1 * bowl.time_us(config))
    with SpreadDevice([device]) as spreading:
        spreading.compare_with(PROBLEM, elsewhere(bowl, 4))
        [outcome] = spreading.race(bowl.SPEC, PROBLEM, configs(bowl, 1), 2)
    assert outcome.timing.times_us == pytest.approx([bowl.time_us(configs(bowl, 1)[0])] * 2, rel=1e-4)


@pytest.mark.parametrize(
    ("facts", "count"),
    [
        ({"chip": "cuda:1", "host": HERE}, 0),
        ({"chip": "cuda:0", "host": "its former name", "serial": "GPU-1"}, 0),
        ({"chip": "cuda:1", "host": HERE, "serial": "GPU-2"}, 4),
        ({"chip": "cuda:2", "host": HERE}, 4),
        ({"chip": "cuda:1", "host": "elsewhere"}, 4),
        ({"chip": "cuda:1", "host": HERE, "anchor_factor": 0.9}, 4),
        ({}, 4),
    ],
)
def test_anchors_are_the_fastest_of_what_another_chip_timed(bowl, chips, facts, count):
    def trial(number, time_us, **more):
        return Trial(dict(configs(bowl, 9)[number]), Status.CORRECT, time_us=time_us, facts=facts, **more)

    stored = [trial(number, 10.0 - number) for number in range(7)]
    failed = replace(trial(7, 1.0), status=Status.RUNTIME, time_us=None)
    dropped = trial(8, 0.5, dropped=True)
    expected = [(dict(configs(bowl, 9)[number]), 10.0 - number) for number in (6, 5, 4, 3)][:count]
    few = [(dict(configs(bowl, 9)[number]), time_us) for number, time_us in ((0, 10.0), (8, 0.5))][:count]
    chip = chips(1.0, 1.0)[1]
    chip.serial = "GPU-1"
    assert spread._anchors_of([*stored, failed, dropped], chip) == expected
    assert spread._anchors_of([dropped, stored[0]], chip) == few
    assert spread._anchors_of([], chip) == []


@pytest.mark.parametrize(
    ("factors", "factor", "drift"),
    [
        ([], 1.0, 0.0),
        ([1.2], 1.2, 0.0),
        ([1.0, 1.5], 1.25, 0.5),
        ([1.0, 2.0, 1.2], 1.4, 0.2),
        ([2.0, 2.0, 1.0], 5 / 3, 0.5),
    ],
)
def test_a_chip_drifts_by_how_far_its_last_factor_is_from_the_mean_of_those_before(chips, factors, factor, drift):
    chip = spread._Chip(chips(1.0)[0])
    chip.factors += factors
    assert (chip.factor, chip.drift) == pytest.approx((factor, drift))


def test_the_last_chip_is_kept_though_its_anchors_move_and_a_lost_one_is_named_on_stderr(
    bowl, chips, monkeypatch, capsys
):
    monkeypatch.setattr(spread, "_CONFIGS_A_FACTOR", 1)
    slowness = [1.1]
    with SpreadDevice(chips(lambda: slowness[0])) as device:
        device.compare_with(PROBLEM, elsewhere(bowl, 4))
        times(device, bowl, configs(bowl, 12)[4:])
        slowness[0] = 1.3
        assert len(times(device, bowl, configs(bowl, 12)[4:])) == 8
    assert capsys.readouterr().err == ""

    def gone():
        raise Unavailable("it fell off the bus")

    with SpreadDevice(chips(1.0, gone)) as device:
        times(device, bowl, configs(bowl, 4))
    assert capsys.readouterr().err == "tilewise: cuda:1 is drained: it is lost: it fell off the bus\n"


def test_only_a_device_that_measures_is_made_comparable(bowl, chips):
    [modelled] = chips(1.0)
    assert comparable(modelled) is modelled
    measures = comparable(bowl.NoisyDevice(Noise("even", seed=0)))
    assert isinstance(measures, SpreadDevice)
    assert comparable(measures) is measures


def test_another_problem_has_anchors_of_its_own(bowl, chips):
    with SpreadDevice(chips(1.0, 1.1)) as device:
        times(device, bowl, configs(bowl, 4))
        other = Problem("bowl", {"M": 128}, "float32")
        outcomes = device.evaluate(bowl.SPEC, other, configs(bowl, 10)[4:])
        expected = [bowl.time_us(config) for config in configs(bowl, 10)[4:]]
        assert [outcome.timing.time_us for outcome in outcomes] == pytest.approx(expected)


def test_chips_of_different_toolchains_are_refused(bowl, chips):
    made = chips(1.0, 1.0)
    made[1].toolchain = "formula 2"
    with pytest.raises(UsageError, match="cuda:0 and cuda:1 differ in their part or toolchain"):
        SpreadDevice(made)


# Pick regret on recorded landscapes ----------------------------------------------------------------------------------

LANDSCAPE = LANDSCAPES / "row_reduce-1000x8192-float32-H200.json.gz"
SPREAD = 0.1


def regret(seed, *, anchors):
    """Return how much slower the fastest of 200 configs is than it looks, if eight chips time them: its true time over
    that of the config that is truly the fastest, less 1."""
    drawn = np.random.default_rng(seed)
    devices = [
        ReplayDevice(LANDSCAPE, noise=True, seed=seed, slowness=slower)
        for slower in drawn.uniform(1 - SPREAD, 1 + SPREAD, 8).tolist()
    ]
    true_us = [statistics.median(row.samples_us) if row.samples_us else None for row in devices[0].rows]
    wanted = [int(index) for index in drawn.permutation(len(true_us))[:200]]
    found: dict[int, float] = {}
    with SpreadDevice(devices, anchors=anchors) as device:
        for first in range(0, len(wanted), device.batch):
            batch = wanted[first : first + device.batch]
            configs = [devices[0].space.configs[index] for index in batch]
            best = min(found.values(), default=None)
            outcomes = device.evaluate(devices[0].spec, devices[0].problem, configs, to_beat_us=lambda best=best: best)
            found |= {i: o.timing.time_us for i, o in zip(batch, outcomes, strict=True) if o.timing is not None}
    return true_us[min(found, key=found.get)] / min(true_us[index] for index in found) - 1


@pytest.mark.full
def test_with_a_spread_of_ten_percent_the_pick_is_within_one_percent_with_anchors_and_not_without():
    """Few draws say little: of six, the mean without anchors was above 3% here and 0.2% with other seeds."""
    with_anchors, without = ([regret(seed, anchors=anchors) for seed in range(24)] for anchors in (True, False))
    assert statistics.fmean(with_anchors) <= 0.005
    assert statistics.fmean(without) > 0.01
