import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.constraints import read_constraints
from tuner.data import Split
from tuner.errors import InputError
from tuner.measure.judge import Judge
from tuner.measure.quality import GivenUp, NonFinite, Scored, Scorer
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
    quality = measured.measure(run).quality
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
    quality = scorer().measure(identity).quality
    assert (quality.drop, quality.fidelity) == (0.0, 0.0)
    assert quality.drop_low < 0 < quality.drop_high  # 600 examples do not prove more


def test_fidelity_is_the_relative_error_to_the_baselines_outputs():
    quality = scorer().measure(lambda inputs: 1.25 * inputs[0]).quality
    assert quality.fidelity == pytest.approx(0.25, rel=1e-6)
    assert quality.drop == 0.0


def test_fidelity_of_whole_number_outputs():
    split = Split((np.arange(1, 41, dtype=np.int32),), None)
    metric = Metric(name="half", score=lambda outputs, labels: outputs * 0.5)
    assert scorer(metric, split).measure(lambda inputs: 2 * inputs[0]).quality.fidelity == pytest.approx(1.0)


def test_smaller_is_better():
    split = Split((LOGITS,), LOGITS + 0.1)
    quality = scorer("mse", split).measure(lambda inputs: inputs[0] - 0.1).quality
    assert quality.method == "paired bootstrap"
    assert quality.value == pytest.approx(0.04, rel=1e-4)
    assert quality.drop == pytest.approx(0.03, rel=1e-4)  # worse is positive
    assert scorer("mse", split).measure(lambda inputs: inputs[0] + 0.1).quality.drop == pytest.approx(-0.01, rel=1e-4)


def test_scores_do_not_add_up_in_narrow_floats():
    """A sum of 1,000 ones is 256 in bfloat16."""
    metric = Metric(name="total", score=lambda outputs, labels: outputs.sum(axis=1))
    split = Split((np.ones((4, 1000), np.float32),), None)
    quality = scorer(metric, split, batch_size=4).measure(lambda inputs: inputs[0].astype(jnp.bfloat16)).quality
    assert quality.value == 1000.0


def test_scoring_ends_when_the_candidate_certainly_loses():
    measured, run, _ = wrong_on(0.5)
    outcome = measured.measure(run, {"top1": 0.02})
    assert isinstance(outcome, GivenUp)
    assert 0.02 < outcome.certain < outcome.drop
    assert (outcome.metric, outcome.limit, outcome.examples) == ("top1", 0.02, 256)
    assert isinstance(measured.measure(run, {"top1": 0.9}), Scored)
    assert isinstance(measured.measure(run), Scored)


def test_looks_are_taken_at_doubled_sizes_and_at_the_end(monkeypatch):
    looked_at = []
    monkeypatch.setattr(Judge, "certain_drop", lambda self, candidate: looked_at.append(len(candidate)) or 0.0)
    scorer().measure(identity, {"top1": 0.0})
    assert looked_at == [256, 512, 600]


def test_non_finite_outputs_of_one_batch():
    measured = scorer()
    assert measured.non_finite(LOGITS[:64]) is None
    broken = LOGITS[:64].copy()
    broken[3, 1], broken[5, 0] = np.nan, np.inf
    assert measured.non_finite(broken) == (
        "2 of 320 outputs of one batch are NaN or infinite where the baseline's are finite"
    )


def test_what_is_infinite_in_the_baseline_may_be_infinite():
    log_of_zero = lambda inputs: inputs[0].at[:, 0].set(-jnp.inf)
    measured = scorer(baseline=log_of_zero)
    assert measured.non_finite(log_of_zero((jnp.asarray(LOGITS[:64]),))) is None
    scored = measured.measure(log_of_zero)
    assert isinstance(scored, Scored)
    assert scored.quality.fidelity == 0.0


def test_non_finite_outputs_of_a_later_batch_are_found_whatever_the_metric_makes_of_them():
    last = LOGITS[-1]
    run = lambda inputs: jnp.where(jnp.all(inputs[0] == last, axis=1, keepdims=True), jnp.nan, inputs[0])
    outcome = scorer().measure(run)
    assert isinstance(outcome, NonFinite)
    assert "batch 9" in outcome.message
    assert outcome.batch == 9


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
    quality = scorer().baseline_scored().quality
    assert (quality.drop, quality.drop_low, quality.drop_high, quality.fidelity) == (0, 0, 0, 0)
    assert quality.value == pytest.approx((LOGITS.argmax(1) == LABELS).mean())
    assert quality.method == "mcnemar"


def test_large_splits_are_sent_batch_by_batch(monkeypatch):
    monkeypatch.setattr("tuner.measure.quality._RESIDENT_BYTES", 0)
    assert scorer().measure(lambda inputs: 1.5 * inputs[0]) == scorer().measure(lambda inputs: 1.5 * inputs[0])


def test_kept_outputs_are_bounded(monkeypatch):
    monkeypatch.setattr("tuner.measure.quality._KEPT_BYTES", 1)
    first_differs = lambda inputs: jnp.where(jnp.all(inputs[0] == LOGITS[:64]), 1.5, 3.0) * inputs[0]
    assert scorer().measure(first_differs).quality.fidelity == pytest.approx(0.5)


def count_calls(run):
    calls = []

    def counted(inputs):
        calls.append(inputs)
        return run(inputs)

    return counted, calls


def test_agreement_needs_no_labels_and_starts_from_one():
    measured = scorer("agreement", Split((LOGITS,)))
    assert measured.baseline_scored().quality.value == 1.0
    flipped = np.arange(EXAMPLES) < 60
    split = Split((LOGITS, flipped))
    run = lambda inputs: jnp.where(inputs[1][:, None], -inputs[0], inputs[0])
    quality = scorer("agreement", split).measure(run).quality
    assert (quality.value, quality.drop, quality.method) == (0.9, pytest.approx(0.1), "mcnemar")


def test_cosine_to_the_baseline_needs_no_labels():
    quality = scorer("cosine", Split((LOGITS,))).measure(lambda inputs: -inputs[0]).quality
    assert quality.value == pytest.approx(-1.0)
    assert quality.drop == pytest.approx(2.0)


def test_baseline_outputs_are_kept_while_they_fit_and_run_again_otherwise(monkeypatch):
    split, candidate = Split((LOGITS,)), lambda inputs: jnp.sin(inputs[0])
    run, calls = count_calls(identity)
    kept = scorer("agreement", split, run).measure(candidate)
    assert len(calls) == 10
    monkeypatch.setattr("tuner.measure.outputs._KEPT_BYTES", 3 * 64 * CLASSES * 4)
    run, calls = count_calls(identity)
    assert scorer("agreement", split, run).measure(candidate) == kept
    assert len(calls) == 10 + 7


def test_baseline_outputs_are_not_kept_for_metrics_that_read_labels(monkeypatch):
    def refuse(self, outputs):
        raise AssertionError

    monkeypatch.setattr("tuner.measure.outputs.BaselineOutputs.keep", refuse)
    assert isinstance(scorer().measure(identity), Scored)


def counts(outputs, labels):
    """What F1 of class 1 is made of."""
    said, is_one = jnp.argmax(outputs, axis=1) == 1, labels == 1
    return {"hit": said & is_one, "false": said & ~is_one, "missed": ~said & is_one}


def f1(statistics):
    hit, false, missed = (statistics[name].sum() for name in ("hit", "false", "missed"))
    return 2 * hit / (2 * hit + false + missed)


def test_a_metric_that_is_no_mean_over_examples():
    measured, run, wrong = wrong_on(0.1)
    metric = Metric(name="f1", score=counts, aggregate=f1)
    quality = Scorer(measured._split, 64, metric, identity, jax.devices()[0]).measure(run).quality
    before = f1(jax.tree_util.tree_map(np.asarray, counts(LOGITS, LABELS)))
    after = f1(jax.tree_util.tree_map(np.asarray, counts(np.where(wrong[:, None], -LOGITS, LOGITS), LABELS)))
    assert quality.value == pytest.approx(after, abs=1e-6)
    assert quality.drop == pytest.approx(before - after, abs=1e-6)
    assert quality.drop_low < quality.drop < quality.drop_high
    assert quality.method == "paired bootstrap"


def test_an_aggregate_whose_statistics_do_not_count_examples_is_refused():
    metric = Metric(name="f1", score=lambda outputs, labels: {"hit": outputs.sum()}, aggregate=f1)
    with pytest.raises(InputError, match=r"metric 'f1' gives statistics of shape \(\) for a batch of 64; it must give"):
        scorer(metric)


def test_several_metrics_are_scored_in_one_pass():
    run, calls = count_calls(lambda inputs: -inputs[0])
    constraints = read_constraints(
        {"cross_entropy": "2%rel", "agreement": 0.01, "perplexity": None}, find_metric("top1")
    )
    measured = Scorer(SPLIT, 64, find_metric("top1"), identity, jax.devices()[0], constraints=constraints)
    scored, own = measured.measure(run), measured.baseline_scored()
    assert len(calls) == 10
    assert scored.quality == scorer("top1").measure(lambda inputs: -inputs[0]).quality
    assert list(scored.metrics) == list(own.metrics) == ["cross_entropy", "agreement", "perplexity"]
    entropy, agreed, perplexity = scored.metrics.values()
    alone = scorer("cross_entropy").measure(lambda inputs: -inputs[0]).quality
    assert (entropy.value, entropy.drop, entropy.drop_low) == (alone.value, alone.drop, alone.drop_low)
    assert entropy.allowed == pytest.approx(0.02 * own.metrics["cross_entropy"].value)
    assert (agreed.allowed, agreed.holds) == (0.01, False)
    assert np.isnan(perplexity.allowed)
    assert perplexity.holds
    assert perplexity.value == pytest.approx(np.exp(entropy.value), rel=1e-5)


def test_any_metric_can_end_the_scoring():
    constraints = read_constraints({"agreement": 0.01}, find_metric("top1"))
    measured = Scorer(SPLIT, 64, find_metric("top1"), identity, jax.devices()[0], constraints=constraints)
    outcome = measured.measure(lambda inputs: -inputs[0], {"top1": 5.0, "agreement": 0.02})
    assert isinstance(outcome, GivenUp)
    assert (outcome.metric, outcome.limit, outcome.drop) == ("agreement", 0.02, 1.0)
