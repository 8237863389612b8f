"""`bench search`: calculated figures match those of running searches, and every search is replayed alike."""

import importlib.util
import json
import math
import random
import statistics

import numpy as np
import pytest
from places import LANDSCAPES

from tilewise.benchmarks.search.judge import landscapes_used_for
from tilewise.benchmarks.search.peers import kernel_tuner
from tilewise.benchmarks.search.plot import plot_search
from tilewise.benchmarks.search.score import RandomSearch, aggregate, half_width
from tilewise.benchmarks.search.search import PEERS, bench_search, check_searches, load_recorded, replay, replays
from tilewise.errors import BadImport, Unavailable, UsageError

TIMES = [10.0, 10.5, 11.0, 14.0, None, 20.0, 25.0, None, 40.0, 80.0, 15.0, 16.0]


@pytest.fixture
def landscape(tmp_path):
    """A landscape of 240 configs around x = 7, y = 8, an eighth of them failing, each tried in 0.5 s."""

    def write(name="landscape.json", **about):
        cache = {}
        for x in range(20):
            for y in (1, 2, 4, 8, 16, 32):
                for mode in ("a", "b"):
                    time = 1.0 + 0.1 * abs(x - 7) + 0.2 * abs(math.log2(y) - 3) + 0.3 * (mode == "a")
                    failed = (x * y) % 8 == 5
                    cache[f"{x},{y},{mode}"] = {
                        "x": x,
                        "y": y,
                        "mode": mode,
                        "time": "RuntimeFailedConfig" if failed else time,
                        "times": [time * 0.95, time, time * 1.05],
                        "compile_time": 400.0,
                        "benchmark_time": 100.0,
                    }
        (tmp_path / name).write_text(json.dumps({"tune_params_keys": ["x", "y", "mode"], "cache": cache, **about}))
        return str(tmp_path / name)

    return write


def drawn(evaluations, generator):
    times = generator.sample(TIMES, evaluations)
    return min((t for t in times if t is not None), default=math.inf)


@pytest.mark.parametrize("evaluations", [1, 2, 5, 11, 12])
def test_calculated_random_search_is_the_mean_of_running_it(evaluations):
    generator, calculated = random.Random(1), RandomSearch(TIMES)
    ran = statistics.fmean(10.0 / drawn(evaluations, generator) for _ in range(20000))
    assert calculated.fraction(evaluations) == pytest.approx(ran, abs=0.005)


def test_calculated_random_search_knows_when_it_is_near():
    calculated = RandomSearch(TIMES)
    assert calculated.evaluations_to(0.0) == 6  # for an even chance of one config in twelve
    assert calculated.evaluations_to(0.05) == 4  # one of two: 1 - (8 * 7) / (12 * 11) = 0.576; after 3 it is 0.45
    assert calculated.evaluations_to(10.0) == 1
    fractions = [calculated.fraction(n) for n in range(1, 13)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)


def test_the_score_is_1_at_the_optimum_and_0_for_random_search():
    calculated, generator = RandomSearch(TIMES), random.Random(2)
    moments = np.arange(1.0, 13.0)
    assert aggregate([[10.0] * 12], [moments], calculated, 1.0) == pytest.approx(1.0)
    courses = []
    for _ in range(4000):
        order = generator.sample(TIMES, len(TIMES))
        times = [math.inf if t is None else t for t in order]
        courses.append([min(times[: n + 1]) for n in range(12)])
    assert aggregate(courses, [moments] * 4000, calculated, 1.0) == pytest.approx(0.0, abs=0.05)
    assert aggregate([[80.0] * 12], [moments], calculated, 1.0) < -0.5


def test_the_interval_narrows_with_the_seeds():
    assert half_width([0.8, 0.9]) > half_width([0.8, 0.9] * 8) > 0
    assert half_width([0.5] * 9) == 0
    assert math.isnan(half_width([0.5]))


@pytest.mark.full
def test_every_search_has_its_row(landscape):
    searches = ["guided", "forest", "tpe", "random", "random-calculated", "exhaustive"]
    pytest.importorskip("sklearn")
    seen = []
    body = bench_search([landscape()], budget=50, seeds=2, searches=searches, done=lambda: seen.append(1))
    assert len(seen) == 2 * 5
    (row,) = body["landscapes"]
    assert (row["configs"], row["prior"], row["optimum"]) == (240, False, 1000.0)
    assert set(row["searches"]) == set(body["mean"]) == set(searches)
    for name, summary in row["searches"].items():
        assert set(summary["fraction"]) == {"8", "10", "16", "20", "50"}
        assert 0 < summary["fraction"]["20"] <= summary["fraction"]["50"] <= 1, name
        assert len(body["mean"][name]["curve"]) == 50
    assert row["searches"]["guided"]["fraction"]["50"] == 1
    assert row["searches"]["guided"]["evaluations_to"]["2%"] <= 50
    assert row["searches"]["guided"]["score"] > row["searches"]["random"]["score"]
    assert row["searches"]["guided"]["score_over_time"] > 0
    assert json.loads(json.dumps(body, allow_nan=False)) == body


def test_a_replay_is_the_same_every_time_and_repeats_no_config(landscape):
    recorded = load_recorded(landscape())
    first, second = (replay(recorded, "guided", 3, 60) for _ in range(2))
    assert first.numbers == second.numbers
    assert len(set(first.numbers)) == 60
    assert list(first.best) == sorted(first.best, reverse=True)


def test_with_noise_a_search_is_judged_by_what_its_choice_really_takes(landscape):
    body = bench_search([landscape()], budget=240, seeds=2, searches=["exhaustive"], noise=True)
    summary = body["landscapes"][0]["searches"]["exhaustive"]
    assert summary["fraction"]["200"] <= 1
    quiet = bench_search([landscape()], budget=240, seeds=2, searches=["exhaustive"])
    assert quiet["landscapes"][0]["searches"]["exhaustive"]["fraction"]["200"] == 1


def test_a_run_is_kept_after_each_landscape_as_if_it_ended_there(landscape):
    files, kept = [landscape("one.json"), landscape("two.json")], []
    body = bench_search(files, budget=16, seeds=2, searches=["random"], keep=kept.append)
    assert [[row["file"] for row in so_far["landscapes"]] for so_far in kept] == [
        ["one.json"],
        ["one.json", "two.json"],
    ]
    assert kept[1] == body
    alone = bench_search(files[:1], budget=16, seeds=2, searches=["random"])
    for key in ("command", "landscapes", "mean"):
        assert untimed(kept[0][key]) == untimed(alone[key])


def untimed(found):
    """Return the JSON without what each run measures anew."""
    if isinstance(found, dict):
        return {key: untimed(value) for key, value in found.items() if key != "seconds_per_evaluation"}
    return [untimed(value) for value in found] if isinstance(found, list) else found


def test_counts_and_seeds_may_be_chosen(landscape):
    searches = ["random", "random-calculated"]
    body = bench_search([landscape()], budget=6, seeds=2, first_seed=5, at=[4, 5, 9], searches=searches)
    assert "--seeds 2 --first-seed 5 --search random --search random-calculated --at 4 --at 5" in body["command"]
    recorded = load_recorded(landscape())
    best = [replay(recorded, "random", seed, 6).best for seed in (5, 6)]
    shown = body["landscapes"][0]["searches"]["random"]["fraction"]
    assert shown == {str(n): round(statistics.fmean(1000.0 / course[n - 1] for course in best), 4) for n in (4, 5)}
    assert set(body["mean"]["random-calculated"]["fraction"]) == {"4", "5"}


def test_a_budget_below_every_count_is_refused(landscape):
    with pytest.raises(UsageError, match="a budget of 6 holds none of the counts 8, 10, 16"):
        bench_search([landscape()], budget=6, seeds=1, searches=["random"])


def test_neighbours_winners_are_tried_early(landscape):
    files = [landscape(f"{n}.json", kernel="k", dims={"M": n}, dtype="float32", clock="modelled") for n in (64, 128)]
    body = bench_search(files, budget=20, seeds=2, searches=["guided-with-neighbours"])
    for row in body["landscapes"]:
        assert row["searches"]["guided-with-neighbours"]["evaluations_to"]["2%"] == 1


@pytest.mark.parametrize("name", PEERS)
def test_a_search_of_another_project_is_replayed_or_its_package_named(landscape, name):
    peer = PEERS[name]
    if not importlib.util.find_spec(peer.package):  # not all are part of the tests' environment
        with pytest.raises(Unavailable, match=rf"no search {name}: {peer.package} is not installed: pip install "):
            check_searches([name])
        return
    check_searches([name])
    course = replay(load_recorded(landscape()), name, 1, 13)  # some search by chance before
    assert len(set(course.numbers)) == 13


@pytest.mark.full
def test_smac_s_search_goes_on_where_smac_has_no_more_suggestions(tmp_path):
    pytest.importorskip("smac")
    cache = {f"{x},{y}": {"x": x, "y": y, "time": 1.0 + 0.1 * x + 0.2 * y} for x in range(4) for y in range(4)}
    (tmp_path / "small.json").write_text(json.dumps({"tune_params_keys": ["x", "y"], "cache": cache}))
    course = replay(load_recorded(str(tmp_path / "small.json")), "smac", 0, 16)
    assert sorted(course.numbers) == list(range(16))


@pytest.mark.parametrize("strategy", kernel_tuner.STRATEGIES)
def test_kernel_tuner_s_strategies_are_counted_by_different_configs(landscape, strategy):
    pytest.importorskip("kernel_tuner")
    recorded = load_recorded(landscape())
    course = replay(recorded, f"kt:{strategy}", 1, 40)
    assert len(set(course.numbers)) == len(course.numbers) <= 40
    assert len(course.best) == 40


def test_a_strategy_of_kernel_tuner_s_that_breaks_says_so(tmp_path):
    pytest.importorskip("kernel_tuner")
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 1.0}}}))
    with pytest.raises(Unavailable, match=r"Kernel Tuner's pso fails in a space of 1 configs \(IndexError"):
        replay(load_recorded(str(path)), "kt:pso", 0, 10)


def test_a_search_that_is_asked_for_twice_runs_once(landscape):
    body = bench_search([landscape()], budget=20, seeds=1, searches=["random", "random"])
    assert list(body["mean"]) == ["random"]
    assert replays(["one.json"], 3, ["random", "random"]) == 3


def test_a_search_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="unknown search 'magic'; expected guided, tpe"):
        check_searches(["guided", "magic"])


def test_a_search_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        kernel_tuner, "unavailable_reason", lambda: "kernel-tuner is not installed: pip install tilewise[bench]"
    )
    with pytest.raises(
        Unavailable, match=r"no search kt:pso: kernel-tuner is not installed: pip install tilewise\[bench\]"
    ):
        check_searches(["kt:pso"])


def test_a_landscape_without_a_success_is_refused(tmp_path):
    path = tmp_path / "failed.json"
    path.write_text(json.dumps({"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": "InvalidConfig"}}}))
    with pytest.raises(BadImport, match="holds no config that ran correctly"):
        load_recorded(str(path))


@pytest.mark.full
def test_a_plot_is_drawn_as_png_and_svg(landscape, tmp_path):
    pytest.importorskip("matplotlib")
    body = bench_search([landscape()], budget=20, seeds=1, searches=["random", "random-calculated"])
    png, svg = plot_search(body, tmp_path / "courses")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().count("random-calculated") >= 1


def design(clock):
    return [str(file) for file in landscapes_used_for("design") if ("modelled" in file.name) == (clock == "modelled")]


def test_the_search_is_ahead_of_tpe_and_random_search_with_and_without_its_prior():
    """On two landscapes that it was designed on; docs/search.md has the figures of many more."""
    files = [str(LANDSCAPES / f"{name}-1000x8192-float32-H200.json.gz") for name in ("softmax", "layer_norm")]
    body = bench_search(files, budget=40, seeds=3, searches=["guided", "guided-without-prior", "tpe", "random"])
    scores = {name: mean["score"] for name, mean in body["mean"].items()}
    assert scores["guided"] > 0.9
    assert scores["guided"] > scores["guided-without-prior"] > scores["tpe"] + 0.2 > scores["tpe"] > scores["random"]
    assert all(row["searches"]["guided"]["evaluations_to"]["2%"] <= 10 for row in body["landscapes"])


@pytest.mark.full
def test_without_its_prior_the_search_is_ahead_of_tpe_and_random_search_on_every_measured_landscape_together():
    body = bench_search(design("measured"), budget=100, seeds=2, searches=["guided-without-prior", "tpe", "random"])
    guided = body["mean"].pop("guided-without-prior")
    for name, other in body["mean"].items():
        assert all(guided["fraction"][n] > value for n, value in other["fraction"].items()), name
        assert guided["score"] > other["score"], name


@pytest.mark.full
@pytest.mark.parametrize(
    ("clock", "margin", "most", "most_p95"), [("modelled", "2%", 20, 50), ("measured", "3%", 20, 100)]
)
def test_the_search_with_its_prior_needs_few_evaluations_on_every_landscape_of_its_design(
    clock, margin, most, most_p95
):
    """The modelled ones are of an earlier clock than the prior."""
    for row in bench_search(design(clock), budget=100, seeds=4, searches=["guided"])["landscapes"]:
        search = row["searches"]["guided"]
        assert search["evaluations_to"][margin] <= most and search["evaluations_to_p95"][margin] <= most_p95, row[
            "file"
        ]
