"""The surrogate: a Gaussian process over tables of values, against the textbook's formulas."""

import itertools

import numpy as np
import pytest

from tilewise.tuner.samplers.gaussian_process import GaussianProcess, columns
from tilewise.tuner.space.search_space import Space

VALUES = {"A": (1, 2, 3, 4, 6, 8), "B": (16, 32, 64, 128), "C": ("x", "y", "z")}
SPACE = Space(VALUES, [dict(zip(VALUES, v, strict=True)) for v in itertools.product(*VALUES.values())])
COLUMNS = columns([(values, SPACE.is_ordered(name)) for name, values in VALUES.items()])
RANDOM = np.random.default_rng(0)
TRIED = RANDOM.choice(len(SPACE), 30, replace=False)
REST = np.setdiff1d(np.arange(len(SPACE)), TRIED)


def log_times(indices):
    value_indices = SPACE.value_indices[indices].astype(float)
    values = 0.5 * np.abs(value_indices[:, 0] - 3) + 0.3 * value_indices[:, 1] * (value_indices[:, 2] == 1)
    return (values - values.mean()) / values.std()


@pytest.fixture
def fitted():
    surrogate = GaussianProcess(SPACE.value_indices, COLUMNS)
    surrogate.fit(TRIED, log_times(TRIED), steps=60)
    return surrogate


def test_numbers_have_a_scale_and_their_twos_and_words_are_alike_or_not():
    assert [column.parameter for column in COLUMNS] == [0, 0, 1, 2]
    order, twos, powers, words = (column.squares for column in COLUMNS)
    assert order[0, -1] == powers[0, -1] == 1
    assert powers[0, 1] == pytest.approx(1 / 9)  # logarithms
    assert twos[0, 2] == 0 and twos[0, 5] == 1  # 1 and 3 are odd, 8 is 2^3
    np.testing.assert_array_equal(words, 1 - np.eye(3))


def test_in_a_rugged_space_numbers_also_differ_or_do_not_which_is_expected_to_matter_little():
    described = columns([(values, SPACE.is_ordered(name)) for name, values in VALUES.items()], rugged=True)
    assert [column.parameter for column in described] == [0, 0, 0, 1, 1, 2]
    for column in (described[2], described[4]):
        np.testing.assert_array_equal(column.squares, 1 - np.eye(len(column.squares)))
        assert column.floor > described[0].floor


def test_rugged_times_are_likelier_to_a_rugged_surrogate_and_smooth_ones_hardly_less_likely():
    domain = tuple(range(1, 41))
    space = Space({"A": domain}, [{"A": a} for a in domain])
    told = np.repeat(np.arange(5, 30), 2)
    divides = np.where(40 % (told + 1) == 0, -1.0, 0.6)
    gains = []
    for values in (divides, np.sin(told / 8)):
        values = (values - values.mean()) / values.std()
        evidence = []
        for rugged in (False, True):
            surrogate = GaussianProcess(space.value_indices, columns([(domain, True)], rugged=rugged))
            surrogate.fit(told, values, steps=60)
            evidence.append(surrogate.evidence(told, values))
        gains.append(evidence[1] - evidence[0])
    assert gains[0] > 5 and gains[1] > -3


def test_a_parameter_of_one_value_has_no_column():
    assert columns([((5,), True), (("a",), False)]) == []


def test_a_gradient_is_the_slope_of_the_evidence(fitted):
    values = log_times(TRIED)
    value_indices = SPACE.value_indices[TRIED]
    one_hot = [np.eye(len(column.squares))[value_indices[:, column.parameter]] for column in COLUMNS]
    slope = fitted._gradient(value_indices, one_hot, values)
    for index in range(len(slope)):
        ends = []
        for step in (1e-5, -1e-5):
            fitted._free[index] += step
            ends.append(fitted.evidence(TRIED, values))
            fitted._free[index] -= step
        assert slope[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-4)


def test_fitting_makes_the_data_more_likely():
    surrogate = GaussianProcess(SPACE.value_indices, COLUMNS)
    before = surrogate.evidence(TRIED, log_times(TRIED))
    surrogate.fit(TRIED, log_times(TRIED), steps=60)
    assert surrogate.evidence(TRIED, log_times(TRIED)) > before + 5


def test_what_was_tried_is_remembered_and_the_rest_is_foreseen(fitted):
    values = log_times(np.arange(len(SPACE)))
    scale = (values[TRIED].mean(), values[TRIED].std())
    posterior = fitted.posterior(TRIED, (values[TRIED] - scale[0]) / scale[1], np.arange(len(SPACE)))
    predicted = posterior.mean * scale[1] + scale[0]
    assert np.abs(predicted[TRIED] - values[TRIED]).max() < 0.2
    assert np.corrcoef(predicted[REST], values[REST])[0, 1] > 0.9
    assert posterior.variance[TRIED].max() < posterior.variance[REST].mean()


def test_assuming_a_config_is_conditioning_on_its_own_prediction(fitted):
    values = log_times(TRIED)
    assumed = fitted.posterior(TRIED, values, REST)
    assumed.assume(7)
    predicted = fitted.posterior(TRIED, values, REST).mean[7]
    told = fitted.posterior(np.append(TRIED, REST[7]), np.append(values, predicted), REST)
    np.testing.assert_allclose(assumed.mean, told.mean, atol=1e-6)
    np.testing.assert_allclose(assumed.variance, told.variance, atol=1e-6)


def test_draws_have_the_posterior_s_mean_and_variance(fitted):
    posterior = fitted.posterior(TRIED, log_times(TRIED), REST)
    draws = posterior.draw(np.arange(10), 4000, seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean[:10], atol=0.06)
    np.testing.assert_allclose(draws.var(axis=0), posterior.variance[:10], rtol=0.15, atol=0.01)


def test_a_fit_takes_the_steps_of_adam():
    values, value_indices = log_times(TRIED), SPACE.value_indices[TRIED]
    one_hot = [np.eye(len(column.squares))[value_indices[:, column.parameter]] for column in COLUMNS]
    surrogate, by_hand = (GaussianProcess(SPACE.value_indices, COLUMNS) for _ in range(2))
    slope = square = np.zeros(len(by_hand._free))
    for time in range(1, 6):
        prior = (by_hand._free - by_hand._mean) / by_hand._width**2
        gradient = by_hand._gradient(value_indices, one_hot, values) - prior
        slope, square = 0.8 * slope + 0.2 * gradient, 0.95 * square + 0.05 * gradient**2
        step = slope / (1 - 0.8**time) / (np.sqrt(square / (1 - 0.95**time)) + 1e-8)
        by_hand._free = np.clip(by_hand._free + 0.15 * step, -8, 8)
    surrogate.fit(TRIED, values, steps=5)
    np.testing.assert_allclose(surrogate._free, by_hand._free)


def test_the_evidence_is_the_normal_density_of_the_values(fitted):
    multivariate = pytest.importorskip("scipy.stats").multivariate_normal
    covariance = fitted.covariance(TRIED, TRIED) + (fitted.noise + 1e-6) * np.eye(len(TRIED))
    expected = multivariate(cov=covariance).logpdf(log_times(TRIED))
    assert fitted.evidence(TRIED, log_times(TRIED)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [((1, 2, 4), True), ((2, 3, 4, 8), True), ((4, 6, 11, 15), False), ((0, 1, 9), False), ((1.0, 3.0, 3.5), False)],
)
def test_numbers_that_span_a_factor_of_four_differ_by_their_logarithms(values, logarithmic):
    order = columns([(values, True)])[0].squares
    places = np.log(np.array(values) / values[0]) if logarithmic else np.arange(len(values))
    np.testing.assert_allclose(order[0], (places / places[-1]) ** 2)


def test_a_gradient_is_exact_where_there_is_hardly_any_noise():
    """Repeats that differ then weigh the most, and on the noise alone."""
    tried, values = np.array([5, 5, 40, 40]), np.array([1.0, 0.99, -1.0, -0.99])
    surrogate = GaussianProcess(SPACE.value_indices, COLUMNS)
    surrogate._free[-2:] = -8.0, 0.5
    one_hot = [np.eye(len(column.squares))[SPACE.value_indices[tried, column.parameter]] for column in COLUMNS]
    slope = surrogate._gradient(SPACE.value_indices[tried], one_hot, values)
    for index in (-2, -1):
        ends = []
        for step in (1e-3, -2e-3):
            surrogate._free[index] += step
            ends.append(surrogate.evidence(tried, values))
        surrogate._free[index] += 1e-3
        assert slope[index] == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=1e-5)
