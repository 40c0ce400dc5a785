import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import InputError
from tuner.measure.bootstrap import Resampler, percentiles
from tuner.measure.intervals import bootstrap_interval
from tuner.metrics import Metric

SCORES = np.random.default_rng(0).gamma(2.0, size=500)


def resampler(aggregate, seed=0):
    return Resampler(Metric(name="mine", score=lambda outputs, labels: outputs, aggregate=aggregate), seed)


def only_numpy(statistics):
    """What JAX cannot trace."""
    return float(np.sort(np.asarray(statistics))[: len(statistics) // 2].mean())


def test_the_interval_of_a_mean_is_that_of_the_plain_bootstrap():
    found = percentiles(resampler(lambda scores: scores.mean()).values(SCORES))
    np.testing.assert_allclose(found, bootstrap_interval(SCORES), rtol=0.01)


def test_an_aggregate_that_cannot_be_traced_is_run_draw_by_draw():
    traced = resampler(lambda scores: jnp.sort(scores)[: len(scores) // 2].mean()).values(SCORES)
    untraced = resampler(only_numpy).values(SCORES)
    assert (len(traced), len(untraced)) == (2000, 400)
    np.testing.assert_allclose(percentiles(traced), percentiles(untraced), rtol=0.03)


def test_an_aggregate_that_means_something_else_when_traced_is_not_traced():
    aggregate = lambda scores: scores.mean() if isinstance(scores, np.ndarray) else 7.0 + 0 * scores.mean()
    assert resampler(aggregate).values(SCORES).max() < 7.0


def test_draws_depend_on_the_seed_and_on_nothing_else():
    first, second, other = (resampler(lambda scores: scores.mean(), seed).values(SCORES) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_two_sets_of_scores_are_drawn_alike():
    mean = resampler(lambda scores: scores.mean())
    np.testing.assert_allclose(mean.values(SCORES) - mean.values(SCORES + 1.0), -1.0, rtol=1e-4)


def test_statistics_may_be_any_tree_and_any_shape():
    statistics = {"matches": np.ones((50, 4), np.int64), "length": np.full(50, 2.0)}
    ratio = resampler(lambda s: (s["matches"].sum(axis=0) / s["length"].sum()).prod())
    assert ratio.value(statistics) == pytest.approx(1 / 16)
    np.testing.assert_allclose(ratio.values(statistics), 1 / 16)


def test_fewer_draws_are_made_of_many_examples(monkeypatch):
    monkeypatch.setattr("tuner.measure.bootstrap._MOST_DRAWN", 300 * len(SCORES))
    assert len(resampler(lambda scores: scores.mean()).values(SCORES)) == 300
    monkeypatch.setattr("tuner.measure.bootstrap._MOST_DRAWN", 0)
    assert len(resampler(lambda scores: scores.mean()).values(SCORES)) == 200


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (lambda s: s, r"aggregate of metric 'mine' gives float64\(500,\); it must give one number"),
        (lambda s: "much", r"aggregate of metric 'mine' gives <U4\(\); it must give one number"),
        (lambda s: s["f1"], r"aggregate of metric 'mine' fails: IndexError: .*; it is called with what the score gave"),
    ],
)
def test_an_aggregate_must_give_one_number(aggregate, message):
    with pytest.raises(InputError, match=message):
        resampler(aggregate).value(SCORES)


def test_draws_without_a_value_are_left_out_until_they_are_half():
    assert percentiles(np.array([np.nan, 1.0, 2.0, 3.0])) == pytest.approx((1.05, 2.95))
    assert percentiles(np.array([np.nan, np.nan, np.nan, 3.0])) == (-np.inf, np.inf)
