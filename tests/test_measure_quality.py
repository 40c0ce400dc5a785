import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.data import Split
from tuner.errors import InputError
from tuner.measure.quality import GivenUp, NonFinite, Scorer
from tuner.measurement import Quality
from tuner.metrics import Metric, find_metric

EXAMPLES, CLASSES = 600, 5
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(EXAMPLES, CLASSES)).astype(np.float32)
LABELS = np.where(RNG.random(EXAMPLES) < 0.8, LOGITS.argmax(1), 0).astype(np.int32)
SPLIT = Split((LOGITS,), LABELS)


def identity(inputs):
    return inputs[0]


def scorer(metric="top1", split=SPLIT, baseline=identity, batch_size=64):
    return Scorer(split, batch_size, find_metric(metric), baseline, jax.devices()[0])


def wrong_on(share):
    """A candidate that gets every example of the share wrong, spread evenly."""
    wrong = RNG.random(EXAMPLES) < share
    split = Split((LOGITS, wrong), LABELS)
    run = lambda inputs: jnp.where(inputs[1][:, None], -inputs[0], inputs[0])
    return scorer(split=split), run, wrong


def test_scores_are_paired_with_the_baseline_on_the_same_examples():
    measured, run, wrong = wrong_on(0.05)
    quality = measured.measure(run)
    right = LOGITS.argmax(1) == LABELS
    right_after = np.where(wrong[:, None], -LOGITS, LOGITS).argmax(1) == LABELS
    assert quality.value == pytest.approx(right_after.mean())
    assert quality.drop == pytest.approx(right.mean() - right_after.mean())
    assert quality.drop_low < quality.drop < quality.drop_high
    assert (quality.examples, quality.method) == (EXAMPLES, "mcnemar")


def test_padding_of_the_last_batch_counts_nowhere():
    """600 = 9 x 64 + 24: forty repeated examples must neither be scored nor count in the fidelity."""

    def run(inputs):
        repeated = jnp.all(inputs[0] == LOGITS[-1], axis=1) & (jnp.arange(64) > 23)
        return jnp.where(repeated[:, None], 1e6, inputs[0])

    assert scorer().measure(run) == scorer(batch_size=50).measure(identity)


def test_the_same_outputs_have_no_drop_and_perfect_fidelity():
    quality = scorer().measure(identity)
    assert (quality.drop, quality.fidelity) == (0.0, 0.0)
    assert quality.drop_low < 0 < quality.drop_high  # 600 examples do not prove more


def test_fidelity_is_the_relative_error_to_the_baselines_outputs():
    quality = scorer().measure(lambda inputs: 1.25 * inputs[0])
    assert quality.fidelity == pytest.approx(0.25, rel=1e-6)
    assert quality.drop == 0.0


def test_fidelity_of_whole_number_outputs():
    split = Split((np.arange(1, 41, dtype=np.int32),), None)
    metric = Metric(name="half", score=lambda outputs, labels: outputs * 0.5)
    assert scorer(metric, split).measure(lambda inputs: 2 * inputs[0]).fidelity == pytest.approx(1.0)


def test_smaller_is_better():
    split = Split((LOGITS,), LOGITS + 0.1)
    quality = scorer("mse", split).measure(lambda inputs: inputs[0] - 0.1)
    assert quality.method == "paired bootstrap"
    assert quality.value == pytest.approx(0.04, rel=1e-4)
    assert quality.drop == pytest.approx(0.03, rel=1e-4)  # worse is positive
    assert scorer("mse", split).measure(lambda inputs: inputs[0] + 0.1).drop == pytest.approx(-0.01, rel=1e-4)


def test_scores_do_not_add_up_in_narrow_floats():
    """A sum of 1,000 ones is 256 in bfloat16."""
    metric = Metric(name="total", score=lambda outputs, labels: outputs.sum(axis=1))
    split = Split((np.ones((4, 1000), np.float32),), None)
    quality = scorer(metric, split, batch_size=4).measure(lambda inputs: inputs[0].astype(jnp.bfloat16))
    assert quality.value == 1000.0


def test_scoring_ends_when_the_candidate_certainly_loses():
    measured, run, _ = wrong_on(0.5)
    looked_at = []

    def give_up(baseline, candidate):
        assert len(baseline) == len(candidate)
        looked_at.append(len(candidate))
        return True

    outcome = measured.measure(run, give_up)
    assert isinstance(outcome, GivenUp)
    assert looked_at == [256]
    assert 0 < outcome.certain < outcome.drop
    assert outcome.examples == 256


def test_looks_are_taken_at_doubled_sizes_and_at_the_end():
    looked_at = []
    scorer().measure(identity, lambda baseline, candidate: bool(looked_at.append(len(candidate))))
    assert looked_at == [256, 512, 600]


def test_non_finite_outputs_of_one_batch():
    measured = scorer()
    assert measured.non_finite(LOGITS[:64]) is None
    broken = LOGITS[:64].copy()
    broken[3, 1], broken[5, 0] = np.nan, np.inf
    assert measured.non_finite(broken).message == (
        "2 of 320 outputs of one batch are NaN or infinite where the baseline's are finite"
    )


def test_what_is_infinite_in_the_baseline_may_be_infinite():
    log_of_zero = lambda inputs: inputs[0].at[:, 0].set(-jnp.inf)
    measured = scorer(baseline=log_of_zero)
    assert measured.non_finite(log_of_zero((jnp.asarray(LOGITS[:64]),))) is None
    quality = measured.measure(log_of_zero)
    assert isinstance(quality, Quality)
    assert quality.fidelity == 0.0


def test_non_finite_outputs_of_a_later_batch_are_found_whatever_the_metric_makes_of_them():
    last = LOGITS[-1]
    run = lambda inputs: jnp.where(jnp.all(inputs[0] == last, axis=1, keepdims=True), jnp.nan, inputs[0])
    outcome = scorer().measure(run)
    assert isinstance(outcome, NonFinite)
    assert "batch 9" in outcome.message


def test_a_metric_that_is_not_finite_for_a_candidate():
    metric = Metric(name="root", score=lambda outputs, labels: jnp.sqrt(outputs[:, 0]))
    measured = scorer(metric, Split((np.ones((10, 1), np.float32),), None))
    outcome = measured.measure(lambda inputs: -inputs[0])
    assert isinstance(outcome, NonFinite)
    assert outcome.message == (
        "metric 'root' is NaN or infinite on 10 of 10 examples, and finite on all of them for the baseline"
    )


def test_a_metric_that_is_not_finite_for_the_baseline_is_the_users_mistake():
    metric = Metric(name="root", score=lambda outputs, labels: jnp.sqrt(outputs[:, 0]))
    with pytest.raises(InputError, match="metric 'root' is nan on 10 of 10 examples for the untouched program"):
        scorer(metric, Split((-np.ones((10, 1), np.float32),), None))


def test_a_metric_must_give_one_score_per_example():
    metric = Metric(name="averaged", score=lambda outputs, labels: outputs.mean())
    with pytest.raises(
        InputError, match=r"metric 'averaged' gives scores of shape \(\) for a batch of 64; it must give one"
    ):
        scorer(metric)


def test_baseline_quality_has_no_drop():
    quality = scorer().baseline_quality()
    assert (quality.drop, quality.drop_low, quality.drop_high, quality.fidelity) == (0, 0, 0, 0)
    assert quality.value == pytest.approx((LOGITS.argmax(1) == LABELS).mean())
    assert quality.method == "mcnemar"


def test_large_splits_are_sent_batch_by_batch(monkeypatch):
    monkeypatch.setattr("tuner.measure.quality._RESIDENT_BYTES", 0)
    assert scorer().measure(lambda inputs: 1.5 * inputs[0]) == scorer().measure(lambda inputs: 1.5 * inputs[0])


def test_kept_outputs_are_bounded(monkeypatch):
    monkeypatch.setattr("tuner.measure.quality._KEPT_BYTES", 1)
    first_differs = lambda inputs: jnp.where(jnp.all(inputs[0] == LOGITS[:64]), 1.5, 3.0) * inputs[0]
    assert scorer().measure(first_differs).fidelity == pytest.approx(0.5)
