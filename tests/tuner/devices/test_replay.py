"""A recorded landscape as a device: a config's outcome is the recorded one."""

import dataclasses
import gzip
import hashlib
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import LANDSCAPES

from tilewise.db.exchange.foreign.landscapes.t4 import export_t4
from tilewise.db.records import Clock, Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport, NothingFeasible, UsageError
from tilewise.kernels import registry
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import SEARCHES, Budget, Tuning, prior_table


def cache(records, **about):
    return {
        "device_name": "NVIDIA RTX 1",
        "kernel_name": "gemm",
        "tune_params_keys": ["x", "layout"],
        "cache": {f"{r['x']},{r['layout']}": r for r in records},
        **about,
    }


def records(n=12):
    """Yield records whose times start at 1 ms (x = 5, layout row); x = 3 does not compile."""
    for x in range(n):
        for layout in ("row", "column"):
            time = 1 + abs(x - 5) / 10 + (layout == "column")
            times = [time * 0.9, time, time * 1.3]
            yield {"x": x, "layout": layout, "time": "CompilationFailedConfig" if x == 3 else time, "times": times}


@pytest.fixture
def landscape(tmp_path):
    def write(document, name="landscape.json"):
        text = document if isinstance(document, str) else json.dumps(document)
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return tmp_path / name

    return write


def tuned(device, store, search="random", trials=24, **options):
    return Tuning(
        device.spec, device.problem, device, store, budget=Budget(trials), search=search, seed=3, **options
    ).run()


@pytest.mark.parametrize("search", SEARCHES)
def test_a_landscape_is_tuned_to_its_recorded_best(landscape, store, search):
    device = ReplayDevice(landscape(cache(records()), "c.json.gz"))
    result = tuned(device, store, search)
    assert result.winner is not None
    assert (result.winner.config, result.winner.time_us) == ({"x": 5, "layout": "row"}, 1000.0)
    if search != "guided":  # guided search ends when it is sure
        assert result.counts == {Status.CORRECT: 22, Status.COMPILE: 2}
    assert result.default is None
    assert (result.scope.kernel, result.scope.device, dict(result.scope.dims)) == ("gemm", "NVIDIA RTX 1", {})


def test_a_cache_cut_off_while_it_was_written_is_a_smaller_landscape(landscape):
    text = json.dumps(cache(records()))
    whole, cut = ReplayDevice(landscape(text)), ReplayDevice(landscape(text[: len(text) // 2], "cut.json"))
    assert 5 < len(cut.space) < len(whole.space)
    assert list(cut.space.configs) == list(whole.space.configs[: len(cut.space)])
    assert cut.toolchain != whole.toolchain


def test_the_spread_is_that_of_the_repetitions(landscape):
    device = ReplayDevice(landscape(cache(records())))
    (outcome,) = device.evaluate(device.spec, device.problem, [{"x": 5, "layout": "row"}])
    assert outcome.timing.time_us == 1000.0
    assert (outcome.timing.p20_us, outcome.timing.p80_us) == (pytest.approx(940), pytest.approx(1180))


def noisy(landscape, seed=0):
    return ReplayDevice(landscape(cache(records())), noise=True, seed=seed)


def test_noise_times_configs_anew_by_the_seed_in_any_order(landscape):
    def draw(seed, configs):
        device = noisy(landscape, seed)
        outcomes = device.evaluate(device.spec, device.problem, configs)
        return [(o.timing.time_us, o.timing.samples, o.timing.times_us) for o in outcomes]

    configs = [{"x": x, "layout": "row"} for x in (4, 5, 6, 7, 8)]
    assert draw(1, configs) == draw(1, configs[::-1])[::-1]
    assert len({repr(draw(seed, configs)) for seed in range(5)}) == 5
    for config, (time, samples, times) in zip(configs, draw(2, configs), strict=True):
        repetitions = [1000 * (1 + abs(config["x"] - 5) / 10) * share for share in (0.9, 1, 1.3)]
        assert all(any(math.isclose(t, r, rel_tol=1e-6) for r in repetitions) for t in times)
        assert samples >= 10 and repetitions[0] <= time <= repetitions[2]


def test_with_noise_what_is_clearly_behind_is_dropped(landscape):
    device = noisy(landscape)
    configs = [{"x": 5, "layout": "row"}, {"x": 11, "layout": "column"}]
    near, behind = device.evaluate(device.spec, device.problem, configs, to_beat_us=lambda: 1000.0)
    assert (near.timing.dropped, behind.timing.dropped) == (False, True)
    assert near.timing.samples > behind.timing.samples == 10


def test_with_noise_leaders_are_timed_in_turns_and_the_winner_is_declared(landscape, store):
    alike = [{"x": x, "layout": "row", "time": 1.0, "times": [0.99, 1.0, 1.01]} for x in range(4)]
    device = ReplayDevice(landscape(cache(alike)), noise=True)
    first, again = (device.race(device.spec, device.problem, device.space.configs, 20) for _ in range(2))
    assert [len(outcome.timing.times_us) for outcome in first] == [20] * 4
    assert first != again
    winner = tuned(device, store).winner
    assert winner.time_to_beat_us is not None and winner.facts["contest"]["of"] == 4


def test_noise_without_repetitions_is_refused(landscape):
    bare = [{"x": 1, "layout": "row", "time": 1.0}]
    with pytest.raises(BadImport, match="no single repetitions"):
        ReplayDevice(landscape(cache(bare)), noise=True)


@pytest.mark.parametrize(
    ("document", "clock"),
    [
        (cache(records()), Clock.MEASURED),  # Kernel Tuner names its device
        (cache(records(), clock="modelled"), Clock.MODELLED),
        ({name: value for name, value in cache(records()).items() if name != "device_name"}, Clock.MODELLED),
    ],
)
def test_times_are_measured_only_where_the_file_says_so(landscape, document, clock):
    assert ReplayDevice(landscape(document)).clock is clock


def test_a_clock_that_does_not_exist_is_refused(landscape):
    with pytest.raises(BadImport, match="the landscape's clock is 'sundial'; expected measured or modelled"):
        ReplayDevice(landscape(cache(records(), clock="sundial")))


def test_a_config_that_was_not_recorded_is_an_outcome(landscape):
    device = ReplayDevice(landscape(cache(records())))
    (outcome,) = device.evaluate(device.spec, device.problem, [{"x": 99, "layout": "row"}])
    assert (outcome.status, outcome.reason) == (Status.CONSTRAINTS, "landscape.json records no such config")


def test_another_kernel_cannot_be_run_on_it(landscape, bowl):
    device = ReplayDevice(landscape(cache(records())))
    with pytest.raises(UsageError, match="records gemm and cannot run bowl"):
        list(device.evaluate(bowl.SPEC, device.problem, [{}]))


def test_seconds_that_are_over_before_a_config_was_tried_are_said(landscape, store):
    device = ReplayDevice(landscape(cache(records())))
    tuning = Tuning(device.spec, device.problem, device, store, budget=Budget(5, 1e-9))
    with pytest.raises(
        NothingFeasible, match="the budget of 1e-09 seconds ended before a config was tried; allow more"
    ):
        tuning.run()


def test_a_tie_says_by_what_it_was_settled(landscape, store):
    """The on-chip memory of a recorded config is not known."""
    equal = [{"x": x, "layout": "row", "time": 2.0} for x in (3, 1, 2)]
    result = tuned(ReplayDevice(landscape(cache(equal))), store)
    assert result.winner is not None
    assert result.winner.config["x"] == 1
    assert result.winner.why == "tied with 2 others, the first in alphabetical order"


def test_a_landscape_in_which_all_failed_says_so(landscape, store):
    failed = [{"x": x, "layout": "row", "time": "RuntimeFailedConfig"} for x in range(5)]
    with pytest.raises(NothingFeasible, match="none of 5 configs ran correctly; runtime: recorded as runtime"):
        tuned(ReplayDevice(landscape(cache(failed))), store)


def test_an_exhaustive_run_becomes_a_landscape_that_replays_the_same(landscape, store, bowl):
    from tilewise.kernels.spec import Problem

    problem = Problem("bowl", {"M": 64}, "float32")
    tuning = Tuning(bowl.SPEC, problem, bowl.FormulaDevice(), store, budget=Budget(None), search="exhaustive")
    result = tuning.run()
    device = ReplayDevice(landscape(export_t4(store, tuning.scope), "bowl.json.gz"))
    again = tuned(device, store, "exhaustive", None)
    assert again.winner is not None and result.winner is not None
    assert (again.winner.config, again.winner.time_us) == (result.winner.config, result.winner.time_us)
    assert (again.scope.clock, again.scope.device) == (Clock.MODELLED, "Bowl")
    assert again.scope.key != result.scope.key


def test_a_recording_of_our_own_kernel_brings_its_prior(landscape):
    configs = [
        {"BLOCK_SIZE_M": m, "SUB_BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": n, "multibuffer": True}
        for m in (1, 25)
        for n in (64, 256)
    ]
    results = [
        {
            "configuration": config,
            "times": {"runtimes": [0.1]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 0.1, "unit": "ms"}],
        }
        for config in configs
    ]
    about = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "dtype": "float32", "device": "Ascend910B4"}
    device = ReplayDevice(landscape({"metadata": {**about, "cores": 40}, "results": results}))
    assert device.origin is not None
    spec, problem = device.origin
    assert spec.function == registry.load("row_reduce").function
    assert (problem.dims, problem.dtype) == ({"M": 1000, "N": 8192}, "float32")
    table, _ = prior_table(*device.subject(device.spec, device.problem)[:2], device.space, device.target)
    assert np.ptp(table.sum(axis=1)) > 0
    assert enumerate_space(device.spec, device.problem, device.target) == device.space


def test_a_recording_of_our_own_kernel_is_tuned_with_its_prior(store):
    """One in a hundred of 1116 configs is within 2%; the prior's first prediction is the best config."""
    file = LANDSCAPES / "softmax-777x3000-float32-Ascend910B4-modelled.json.gz"
    device = ReplayDevice(file)
    result = tuned(device, store, "guided", trials=4)
    assert result.winner is not None
    assert (result.winner.ordinal, result.winner.time_us) == (1, min(r.time_us for r in device.rows if r.time_us))


@pytest.mark.parametrize(
    ("config", "about"),
    [
        ({"BLOCK_SIZE_M": "8"}, {}),
        ({"BLOCK_SIZE_M": 8.0}, {}),
        ({"BLOCK_SIZE_M": True}, {}),
        ({"BLOCK_SIZE_M": 0}, {}),
        ({"TILE": 8}, {}),
        ({}, {"dims": {"M": 10}}),
        ({}, {"dims": {"M": "10", "N": 20}}),
        ({}, {"dims": 10}),
        ({}, {"dtype": ["float32"]}),
        ({}, {"kernel": ["row_reduce"]}),
    ],
)
def test_a_recording_that_names_our_kernel_and_cannot_be_of_it_brings_no_prior(landscape, store, config, about):
    ours = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 20, "multibuffer": True, **config}
    configs = [ours, ours | {"multibuffer": False}]
    results = [{"configuration": c, "times": {"runtimes": [0.1]}, "invalidity": "correct"} for c in configs]
    truly = {"kernel": "row_reduce", "dims": {"M": 10, "N": 20}, "dtype": "float32", "device": "Ascend910B4"}
    device = ReplayDevice(landscape({"metadata": {**truly, **about}, "results": results}))
    assert device.origin is None
    assert tuned(device, store, "guided").counts == {Status.CORRECT: 2}


def test_a_landscape_is_asked_for_by_what_it_records(landscape):
    about = {"kernel": "gemm", "dims": {"M": 10, "N": 20}}
    result = {"configuration": {"x": 1}, "times": {"runtimes": [0.1]}, "invalidity": "correct"}
    device = ReplayDevice(landscape({"metadata": about, "results": [result]}))
    assert device.asked("gemm", {"N": 20, "M": 10}) == device.asked("gemm", {}) == (device.spec, device.problem)
    with pytest.raises(UsageError, match="records only gemm"):
        device.asked("softmax", {})
    with pytest.raises(UsageError, match="records only M=10,N=20; omit the shape"):
        device.asked("gemm", {"M": 10, "N": 21})


def test_of_a_config_that_was_recorded_twice_the_later_counts(landscape):
    document = {
        "results": [
            {"configuration": {"x": 1}, "times": {"runtimes": [time]}, "invalidity": "correct"} for time in (1.0, 3.0)
        ]
    }
    device = ReplayDevice(landscape(document))
    (outcome,) = device.evaluate(device.spec, device.problem, [{"x": 1}])
    assert (len(device.space), outcome.timing.time_us) == (1, 3000.0)


def found(tuning):
    """Return the best time, or None if nothing ran correctly, which raises its own error."""
    try:
        return tuning.run().winner.time_us
    except NothingFeasible:
        return None


TIME = st.one_of(
    st.floats(0.001, 1e4),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([None, "", float("nan"), float("inf"), 0, -1.0, 1e20]),
)


@pytest.mark.in_part(1)
@pytest.mark.parametrize("search", SEARCHES)
@settings(max_examples=6)
@given(data=st.data())
def test_any_landscape_is_tuned_without_a_repeat_and_resumed_alike(tmp_path_factory, search, data):
    """Landscapes have ties, invalid times, failures and spaces of one config. A search that is stopped after any batch
    and resumed takes the course of an unbroken one."""
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    places = [(x, y) for x in range(shape[0]) for y in range(shape[1])]
    kept = data.draw(st.lists(st.sampled_from(places), min_size=1, unique=True))
    cache = {f"{x},{y}": {"x": 2**x, "y": "abcd"[y], "time": data.draw(TIME)} for x, y in kept}
    path = tmp_path_factory.mktemp("any") / "cache.json"
    path.write_text(json.dumps({"tune_params_keys": ["x", "y"], "cache": cache}))
    stops = data.draw(st.integers(1, len(kept)))
    batch = ReplayDevice.batch if search in ("guided", "tpe") else 8 * ReplayDevice.batch
    courses = []
    for budgets in ((len(kept),), (min(len(kept), -(-stops // batch) * batch), len(kept))):
        with open_store("sqlite://") as store:
            for trials in budgets:
                device = ReplayDevice(path)
                tuning = Tuning(
                    device.spec, device.problem, device, store, budget=Budget(trials), search=search, seed=len(kept)
                )
                best = found(tuning)
            trials = sorted(store.trials(tuning.scope), key=lambda trial: trial.ordinal)
            courses.append([tuple(trial.config.values()) for trial in trials])
            correct = [trial.time_us for trial in trials if trial.status is Status.CORRECT]
            assert best == (min(correct) if correct else None)
    assert len(set(courses[0])) == len(courses[0])
    assert set(courses[0]) <= {(2**x, "abcd"[y]) for x, y in kept}
    if search != "tpe":  # the state of Optuna's generator is not stored
        assert courses[0] == courses[1]


def test_numbers_are_in_order_whatever_the_order_of_the_records_and_words_as_they_come(landscape):
    device = ReplayDevice(landscape(cache(list(records())[::-1])))
    assert device.space.domains == {"x": tuple(range(12)), "layout": ("column", "row")}


def test_the_toolchain_names_the_files_content_by_eight_digits(landscape):
    path = landscape(cache(records()))
    assert re.search(rf"\b{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}\b", ReplayDevice(path).toolchain)


@pytest.mark.parametrize("seconds", [None, 2.5])
def test_recorded_seconds_are_facts_where_they_are_known(landscape, seconds):
    device = ReplayDevice(landscape(cache(records())))
    device.rows = [dataclasses.replace(row, seconds=seconds) for row in device.rows]
    (outcome,) = device.evaluate(device.spec, device.problem, [{"x": 5, "layout": "row"}])
    assert outcome.facts == ({} if seconds is None else {"recorded_s": seconds})


@pytest.mark.parametrize(
    ("about", "family", "name", "cores"),
    [
        ({}, "nvidia", "NVIDIA RTX 1", 1),
        ({"cores": 40, "device": "Ascend910B4"}, "ascend", "Ascend910B4", 40),
        ({"cores": 0}, "nvidia", "NVIDIA RTX 1", 1),
        ({"cores": "many", "device": 7}, "nvidia", "NVIDIA RTX 1", 1),
        ({"device_name": None}, "nvidia", "a recorded device", 1),
    ],
)
def test_the_target_is_the_recorded_one_and_without_limits_where_none_are(landscape, about, family, name, cores):
    device = ReplayDevice(landscape(cache(records(), **about)))
    target = device.target
    assert (target.family, target.name, target.cores, target.align_bytes) == (family, name, cores, 1)
    assert target.on_chip_bytes == target.max_programs == device.memory_bytes() == 2**63 - 1


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ((3, 1, 2.5), (1, 2.5, 3)),
        ((True, False), (True, False)),
        ((2, True, 3), (2, True, 3)),
        ((2, "a", 1), (2, "a", 1)),
    ],
)
def test_only_numbers_alone_are_put_in_order(landscape, values, domain):
    rows = [{"x": value, "layout": "row", "time": 1.0} for value in values]
    found = ReplayDevice(landscape(cache(rows))).space.domains["x"]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in domain]


def test_nothing_is_computed_and_the_default_seed_is_zero(landscape):
    path = landscape(cache(records()))
    device = ReplayDevice(path)
    assert (device.spec.flops(device.problem), device.spec.bytes(device.problem), device.batch) == (0, 0, 4)
    configs = [{"x": 5, "layout": "row"}]

    def times(**options):
        noisy = ReplayDevice(path, noise=True, **options)
        return [o.timing.times_us for o in noisy.race(noisy.spec, noisy.problem, configs, 20)]

    assert times() == times(seed=0) != times(seed=1)
    assert ReplayDevice(path, noise=True).toolchain.endswith(", noise 0") and "noise" not in device.toolchain
    doubled = times(slowness=2.0)
    assert set(doubled[0]) <= {1800.0, 2000.0, 2600.0} and doubled != [tuple(2 * one for one in times()[0])]
