import numpy as np
import pytest

from tuner.errors import InputError
from tuner.measure.intervals import certain_drop, drop_interval
from tuner.measure.judge import Judge
from tuner.metrics import Metric, find_metric

RNG = np.random.default_rng(1)
ENTROPIES = RNG.gamma(2.0, size=800)


def judge(metric, *baseline):
    made = Judge(find_metric(metric))
    made.keep_baseline(baseline)
    return made


def test_a_mean_over_examples_has_the_intervals_of_means():
    worse = ENTROPIES + RNG.normal(0.1, 0.2, 800)
    entropy = judge("cross_entropy", ENTROPIES[:500], ENTROPIES[500:])
    assert entropy.interval(worse) == drop_interval(ENTROPIES, worse, larger_is_better=False)
    assert entropy.certain_drop(worse[:300]) == certain_drop(ENTROPIES[:300], worse[:300], larger_is_better=False)
    assert (entropy.method, judge("top1", np.ones(9)).method) == ("paired bootstrap", "mcnemar")


def test_perplexity_drops_by_what_its_value_grows():
    perplexity = judge("perplexity", ENTROPIES)
    worse = ENTROPIES + RNG.normal(0.1, 0.2, 800)
    found = perplexity.interval(worse)
    assert perplexity.value(worse) == pytest.approx(np.exp(worse.mean()))
    assert found.drop == pytest.approx(np.exp(worse.mean()) - np.exp(ENTROPIES.mean()))
    assert found.low < found.drop < found.high
    # The delta method: near their means, exponentials are straight lines.
    moved = np.exp(worse.mean()) * worse - np.exp(ENTROPIES.mean()) * ENTROPIES
    assert found.high - found.low == pytest.approx(2 * 1.96 * moved.std() / np.sqrt(800), rel=0.1)


def test_psnr_is_larger_where_it_is_better():
    errors = RNG.gamma(2.0, size=400) / 100
    found = judge("psnr", errors).interval(errors * 1.5)
    assert found.drop == pytest.approx(10 * np.log10(1.5))
    # Every example is worse by the same factor, so there is nothing to be unsure of.
    assert (found.low, found.high) == (pytest.approx(found.drop, rel=1e-4), pytest.approx(found.drop, rel=1e-4))


def test_the_interval_covers_the_true_drop_nearly_always():
    rng, hits = np.random.default_rng(5), 0
    true = np.exp(2.05 + 0.005) - np.exp(2.0)
    for _ in range(60):
        base = rng.normal(2.0, 0.3, 400)
        other = base + rng.normal(0.055, 0.3, 400)
        found = judge("perplexity", base).interval(other)
        hits += found.low <= true <= found.high
    assert hits >= 51  # 95 % of 60 is 57; fewer than 51 has a chance below 1 in 1,000


def test_what_is_certain_of_an_aggregate_lies_four_errors_below_its_drop():
    perplexity = judge("perplexity", ENTROPIES)
    much_worse, the_same = ENTROPIES[:256] + 1.0, ENTROPIES[:256]
    assert 0 < perplexity.certain_drop(much_worse) < perplexity.drop(much_worse)
    assert perplexity.certain_drop(the_same) == pytest.approx(0.0, abs=1e-5)
    assert perplexity.drop(the_same) == 0.0


def test_nothing_is_certain_where_the_aggregate_is_no_number():
    share = Metric(name="share", score=lambda outputs, labels: outputs, aggregate=lambda s: s.sum() / (s > 0.99).sum())
    scores = np.append(np.zeros(20), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert judge(share, scores).certain_drop(scores[::-1]) == -np.inf


def test_a_baseline_that_is_not_finite_is_the_users_mistake():
    with pytest.raises(InputError, match="metric 'mse' is nan on 2 of 3 examples for the untouched program; nothing"):
        judge("mse", np.array([np.nan, 1.0, np.inf]))
    with (
        np.errstate(divide="ignore"),
        pytest.raises(InputError, match="metric 'psnr' is inf over all 3 examples for the untouched program"),
    ):
        judge("psnr", np.zeros(3))


def test_a_candidate_that_is_not_finite_is_said():
    psnr = judge("psnr", np.ones(3))
    assert psnr.not_finite(np.ones(3)) is None
    assert psnr.not_finite(np.array([1.0, np.nan, 1.0])) == (
        "metric 'psnr' is NaN or infinite on 1 of 3 examples, and finite on all of them for the baseline"
    )
    with np.errstate(divide="ignore"):
        assert psnr.not_finite(np.zeros(3)) == "metric 'psnr' is inf over 3 examples"


def test_statistics_lose_their_padding_and_become_wide():
    counts = Metric(name="counts", score=lambda outputs, labels: outputs, aggregate=lambda s: s["a"].sum())
    mask = np.array([True, True, False])
    given = {"a": np.array([1, 2, 3], np.int8), "b": np.array([[1.0], [2.0], [3.0]], np.float32), "c": ~mask}
    kept = Judge(counts).per_example(given, mask)
    assert {name: (array.tolist(), array.dtype.name) for name, array in kept.items()} == {
        "a": ([1, 2], "int64"),
        "b": ([[1.0], [2.0]], "float64"),
        "c": ([False, False], "bool"),
    }


@pytest.mark.parametrize(("given", "what"), [({}, "no array"), ({"a": np.ones(2)}, r"statistics of shape \(2,\)")])
def test_statistics_of_something_else_than_examples_are_refused(given, what):
    counts = Metric(name="counts", score=lambda outputs, labels: outputs, aggregate=lambda s: 0.0)
    with pytest.raises(InputError, match=f"metric 'counts' gives {what} for a batch of 3; it must give one score per"):
        Judge(counts).per_example(given, np.ones(3, bool))
