"""The contract of every sampler: each config of the space exactly once, and the same course for the same seed."""

import dataclasses
import math
import warnings

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels.spec import Constraint, Problem
from tilewise.tuner.samplers.base import FAILED, PENALTY, distributions, quiet_study
from tilewise.tuner.space.search_space import Space, enumerate_space
from tilewise.tuner.tuning.loop import SEARCHES, make_sampler, prior_table

pytestmark = pytest.mark.filterwarnings("ignore:The value nan is not acceptable")  # Optuna, on being told one

SAMPLERS = [*SEARCHES, "guided without prior"]
GUIDED = ["guided", "guided without prior"]


class Run:
    """A sampler under Optuna's ask and tell, with configs by index."""

    def __init__(self, name: str, space: Space, seed: int = 0, prior=None) -> None:
        self.space = space
        self.sampler = make_sampler(name.split()[0], space, seed, None if "without" in name else prior)
        self.study = quiet_study(self.sampler)

    def ask(self) -> tuple[optuna.Trial, int]:
        trial = self.study.ask(fixed_distributions=distributions(self.space))
        index = self.space.index_of([trial.params[name] for name in self.space.domains])
        assert index is not None, f"{trial.params} is not a config of the space"
        return trial, index

    def tell(self, trial: optuna.Trial, value: float | None) -> None:
        trial.set_user_attr(FAILED, value is None)
        self.study.tell(trial, PENALTY if value is None else value)

    def add(self, index: int, value: float | None) -> None:
        value_indices_of = self.space.value_indices_of(self.space.configs[index])
        self.study.add_trial(
            optuna.trial.create_trial(
                params=dict(zip(self.space.domains, value_indices_of, strict=True)),
                distributions=distributions(self.space),
                value=PENALTY if value is None else value,
                user_attrs={FAILED: value is None},
            )
        )

    def course(self, value, count: int | None = None) -> list[int]:
        """Ask and tell `value(index)` `count` times, or until the space is finished; return the config indices."""
        indices = []
        while count is None or len(indices) < count:
            try:
                trial, index = self.ask()
            except LookupError:
                break
            self.tell(trial, value(index))
            indices.append(index)
        return indices


@pytest.fixture(params=SAMPLERS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def spaces(bowl):
    """A space of some fifty configs with holes, and its prior."""
    problem = Problem("bowl", {"M": 64}, "float32")
    odd = Constraint("TILE is odd", lambda config, problem, target: int(config["TILE"]) % 2 == 1)
    spec = dataclasses.replace(bowl.SPEC, constraints=(*bowl.SPEC.constraints, odd))
    space = enumerate_space(spec, problem, bowl.TARGET)
    return space, lambda: prior_table(spec, problem, space, bowl.TARGET)


@pytest.fixture
def run(name, spaces):
    space, prior = spaces
    return lambda seed=0: Run(name, space, seed, prior)


@pytest.fixture
def log_time(bowl, spaces):
    space, _ = spaces
    return lambda index: math.log(bowl.time_us(space.configs[index]))


def a_space(domains, configs=None) -> Space:
    names = list(domains)
    product = np.array(np.meshgrid(*[range(len(v)) for v in domains.values()], indexing="ij")).reshape(len(names), -1).T
    every = tuple({n: domains[n][int(p)] for n, p in zip(names, row, strict=True)} for row in product)
    return Space({name: tuple(values) for name, values in domains.items()}, every if configs is None else configs)


def without_prior(name, space, seed=0) -> Run:
    flat = (np.zeros((len(space), 1)), np.ones(len(space), dtype=bool))
    return Run(name, space, seed, lambda: flat)


def test_every_config_is_suggested_once_and_then_a_lookup_error_says_so(run, spaces, log_time):
    everything = run()
    assert sorted(everything.course(log_time)) == list(range(len(spaces[0])))
    with pytest.raises(LookupError, match="every config of the space was tried"):
        everything.ask()
    with pytest.raises(LookupError):  # and again
        everything.ask()


def test_a_space_of_one_config_is_one_suggestion(name):
    run = without_prior(name, a_space({"A": [7], "B": [True]}))
    assert run.course(lambda index: 1.0) == [0]
    with pytest.raises(LookupError):
        run.ask()


def test_a_kernel_without_parameters_has_one_config(name):
    run = without_prior(name, Space({}, ({},)))
    assert run.course(lambda index: 1.0) == [0]


def test_a_space_in_which_everything_fails_is_finished_all_the_same(run, spaces):
    assert sorted(run().course(lambda index: None)) == list(range(len(spaces[0])))


@pytest.mark.parametrize("value", [0.0, -20.0])
def test_a_space_of_ties_is_finished(run, spaces, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert sorted(run().course(lambda index: value)) == list(range(len(spaces[0])))


def test_times_that_are_none_do_not_break_the_course(run, spaces, log_time):
    strange = {0: math.nan, 1: math.inf, 2: -math.inf}

    def value(index):
        return strange.get(index % 5, log_time(index))

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        everything = run()
        assert sorted(everything.course(value)) == list(range(len(spaces[0])))
    told = everything.sampler.history.told
    assert {index for index, known in told.items() if known is None} == {n for n in told if n % 5 in strange}


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "tpe"])
def test_a_time_that_is_none_counts_as_a_failure(run, log_time):
    failing = run().course(lambda index: None if index % 3 else log_time(index), 30)
    strange = run().course(lambda index: math.inf if index % 3 else log_time(index), 30)
    assert strange == failing


def test_a_trial_that_is_never_told_is_not_suggested_again(run, spaces, log_time):
    half_told = run()
    lost = [half_told.ask()[1] for _ in range(7)]
    rest = half_told.course(log_time)
    assert len(set(lost)) == 7
    assert sorted(lost + rest) == list(range(len(spaces[0])))


def test_a_batch_is_told_after_all_of_it_was_asked_in_any_order(run, spaces, log_time):
    batched, seen = run(), []
    while len(seen) < len(spaces[0]):
        batch = [batched.ask() for _ in range(min(8, len(spaces[0]) - len(seen)))]
        seen += [index for _, index in batch]
        for trial, index in reversed(batch):
            batched.tell(trial, log_time(index))
    assert sorted(seen) == list(range(len(spaces[0])))


def test_one_seed_is_one_course(run, log_time):
    assert run(5).course(log_time, 40) == run(5).course(log_time, 40)


@pytest.mark.parametrize("name", ["tpe", "random", "guided without prior"])
def test_other_seeds_are_other_courses(run, log_time):
    assert len({tuple(run(seed).course(log_time, 10)) for seed in range(5)}) == 5


def test_stored_trials_are_not_suggested_again(run, spaces, log_time):
    stored = list(range(0, len(spaces[0]), 2))
    resumed = run()
    for index in stored:
        resumed.add(index, None if index % 10 == 0 else log_time(index))
    assert sorted(stored + resumed.course(log_time)) == list(range(len(spaces[0])))


def test_a_space_whose_every_trial_is_stored_is_finished(run, spaces, log_time):
    resumed = run()
    for index in range(len(spaces[0])):
        resumed.add(index, log_time(index))
    with pytest.raises(LookupError):
        resumed.ask()


@pytest.mark.parametrize("name", GUIDED)
def test_stored_trials_inform_the_search(run, spaces, bowl, log_time):
    """Only the best and eleven others are left: the search finds the best in two, chance would take six or seven."""
    space, _ = spaces
    best = space.index(bowl.BEST)
    left = {best, *range(0, len(space), 9)}
    needed = []
    for seed in range(5):
        resumed = run(seed)
        for index in set(range(len(space))) - left:
            resumed.add(index, log_time(index))
        needed.append(resumed.course(log_time).index(best) + 1)
    assert sorted(needed)[2] <= 2


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=8)
@given(data=st.data())
def test_any_space_with_any_outcomes_is_walked_without_a_repeat(sampler, data):
    shapes = st.sampled_from([[1, 2, 4, 8], [3, 1, 2], [True, False], ["a", "b", "c"], [5], [0.5, 1.5]])
    domains = {f"P{i}": values for i, values in enumerate(data.draw(st.lists(shapes, min_size=1, max_size=3)))}
    every = a_space(domains).configs
    kept = data.draw(st.lists(st.sampled_from(every), min_size=1, unique_by=str))
    outcomes = st.one_of(st.none(), st.floats(-10, 40), st.just(math.nan), st.just(math.inf))
    values = data.draw(st.lists(outcomes, min_size=len(kept), max_size=len(kept)))
    run = without_prior(sampler, a_space(domains, tuple(kept)), data.draw(st.integers(0, 99)))
    assert sorted(run.course(values.__getitem__)) == list(range(len(kept)))


def test_parameters_of_another_space_are_refused(run):
    with pytest.raises(ValueError, match="is not a parameter of this space"):
        run().study.ask(fixed_distributions={"other": optuna.distributions.IntDistribution(0, 1)})
