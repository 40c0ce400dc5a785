import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.intervals import (
    bootstrap_interval,
    certain_drop,
    drop_interval,
    mcnemar_interval,
    mcnemar_p,
)


def binary_scores(lost, won, examples):
    """Scores of baseline and candidate with so many examples that only one of them gets right."""
    baseline, candidate = np.zeros(examples), np.zeros(examples)
    baseline[:lost] = 1
    candidate[lost : lost + won] = 1
    baseline[lost + won :: 2] = candidate[lost + won :: 2] = 1
    return baseline, candidate


def test_drop_of_binary_scores_counts_the_examples_that_changed():
    drop = drop_interval(*binary_scores(9, 4, 500))
    assert drop.drop == pytest.approx(5 / 500)
    assert drop.low < drop.drop < drop.high
    assert drop.method == "mcnemar"


def test_smaller_is_better_turns_the_drop_around():
    baseline, candidate = binary_scores(9, 4, 500)
    larger = drop_interval(baseline, candidate)
    smaller = drop_interval(baseline, candidate, larger_is_better=False)
    assert (smaller.drop, smaller.low, smaller.high) == pytest.approx((-larger.drop, -larger.high, -larger.low))


def test_no_change_at_all_is_not_taken_for_certainty():
    """z^2 / (n + z^2): what n examples without a change still allow."""
    low, high = mcnemar_interval(0, 0, 1000)
    assert (low, high) == pytest.approx((-0.003827, 0.003827), abs=1e-5)


@pytest.mark.parametrize(
    ("lost", "won", "p"), [(5, 0, 0.0625), (6, 0, 0.03125), (10, 2, 0.0385742), (3, 3, 1.0), (0, 0, 1.0)]
)
def test_exact_mcnemar_test(lost, won, p):
    assert mcnemar_p(lost, won) == pytest.approx(p, abs=1e-6)
    assert mcnemar_p(won, lost) == pytest.approx(p, abs=1e-6)


def test_exact_mcnemar_test_of_many_examples():
    assert mcnemar_p(30_000, 30_000) == 1.0
    assert mcnemar_p(31_000, 29_000) == pytest.approx(3.3e-16, rel=0.1)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(100, 5000))
def test_interval_and_exact_test_agree_on_whether_something_changed(lost, won, examples):
    low, high = mcnemar_interval(lost, won, examples)
    assert -1 <= low <= (lost - won) / examples <= high <= 1
    if mcnemar_p(lost, won) > 0.05:
        assert low <= 0 <= high


@given(st.integers(0, 40), st.integers(0, 40))
def test_more_confidence_is_wider(lost, won):
    low, high = mcnemar_interval(lost, won, 300)
    lower, higher = mcnemar_interval(lost, won, 300, confidence=0.999)
    assert lower <= low
    assert high <= higher


def test_extremes_stay_inside_the_possible():
    assert mcnemar_interval(20, 0, 20)[1] == pytest.approx(1.0)
    assert mcnemar_interval(0, 20, 20)[0] == pytest.approx(-1.0)


@pytest.mark.parametrize(("p_lost", "p_won"), [(0.01, 0.0), (0.01, 0.005), (0.05, 0.05), (0.1, 0.02)])
@pytest.mark.parametrize("examples", [50, 300, 900])
def test_binary_interval_covers_the_true_drop(examples, p_lost, p_won):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(examples, [p_lost, p_won, 1 - p_lost - p_won], size=400)
    known = {}
    covered = 0
    for lost, won, _ in counts.tolist():
        if (lost, won) not in known:
            known[lost, won] = mcnemar_interval(lost, won, examples)
        low, high = known[lost, won]
        covered += low <= p_lost - p_won + 1e-12 and p_lost - p_won <= high + 1e-12
    assert covered / len(counts) > 0.92


def test_other_scores_are_bootstrapped_in_pairs():
    rng = np.random.default_rng(1)
    baseline = rng.normal(0, 10, 400)
    candidate = baseline - 0.5 + rng.normal(0, 0.1, 400)
    drop = drop_interval(baseline, candidate)
    assert drop.method == "paired bootstrap"
    # Unpaired, the standard error alone would be 0.7.
    assert drop.low == pytest.approx(0.5, abs=0.03)
    assert drop.high == pytest.approx(0.5, abs=0.03)
    assert drop_interval(baseline, candidate) == drop
    assert drop_interval(baseline, candidate, larger_is_better=False).drop == -drop.drop


def test_equal_scores_have_no_drop():
    scores = np.linspace(0, 5, 40)
    drop = drop_interval(scores, scores)
    assert (drop.drop, drop.low, drop.high) == (0, 0, 0)


@pytest.mark.parametrize("examples", [100, 2048, 5000, 20_001])
def test_grouping_many_examples_keeps_the_width(examples):
    differences = np.random.default_rng(2).exponential(1.0, examples)
    low, high = bootstrap_interval(differences)
    assert low < differences.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * differences.std() / math.sqrt(examples), rel=0.1)


def test_bootstrap_covers_the_true_mean():
    rng = np.random.default_rng(3)
    intervals = [bootstrap_interval(rng.exponential(1.0, 100), seed=i) for i in range(150)]
    assert np.mean([low <= 1.0 <= high for low, high in intervals]) > 0.88


def test_certain_drop_is_less_than_the_drop_and_grows_with_the_examples():
    assert certain_drop(*binary_scores(20, 0, 200)) < 0.1
    assert 0 < certain_drop(*binary_scores(20, 0, 200)) < certain_drop(*binary_scores(200, 0, 2000))
    assert certain_drop(*binary_scores(3, 0, 200)) <= 0


def test_certain_drop_of_other_scores():
    rng = np.random.default_rng(4)
    baseline = rng.normal(0, 1, 400)
    candidate = baseline - rng.exponential(0.5, 400)
    assert 0.3 < certain_drop(baseline, candidate) < 0.5
    assert certain_drop(baseline, candidate, larger_is_better=False) < 0
    assert certain_drop(baseline[:1], candidate[:1]) == -math.inf


def test_repeated_looks_rarely_condemn_what_is_within_the_limit():
    """The true drop is exactly the limit; looking seven times must condemn nearly none."""
    rng = np.random.default_rng(5)
    condemned = 0
    for _ in range(300):
        lost = rng.random(16_384) < 0.02
        baseline, candidate = np.ones(len(lost)), 1.0 - lost
        condemned += any(
            certain_drop(baseline[:n], candidate[:n]) > 0.02 for n in (256, 512, 1024, 2048, 4096, 8192, 16_384)
        )
    assert condemned <= 6
