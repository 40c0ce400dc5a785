import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import InputError
from tuner.metrics import Metric, find_metric

LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], np.float32)


def score(name, outputs, labels):
    return np.asarray(jax.jit(find_metric(name).score)(outputs, labels))


def test_top1_is_one_where_the_largest_output_is_the_label():
    assert score("top1", LOGITS, np.array([0, 2])).tolist() == [1.0, 0.0]
    assert find_metric("top1").binary


def test_cross_entropy_reads_logits_and_log_probabilities_alike():
    labels = np.array([0, 2], np.int64)
    expected = -np.log([np.exp(2) / np.exp([2, 1, 0]).sum(), np.exp(1) / np.exp([0, 3, 1]).sum()])
    np.testing.assert_allclose(score("cross_entropy", LOGITS, labels), expected, rtol=1e-6)
    np.testing.assert_allclose(score("cross_entropy", jax.nn.log_softmax(LOGITS), labels), expected, rtol=1e-5)
    assert not find_metric("cross_entropy").larger_is_better


def test_cross_entropy_averages_over_the_tokens_of_an_example():
    tokens = score("cross_entropy", np.stack([LOGITS, LOGITS]), np.array([[0, 2], [0, 0]]))
    single = score("cross_entropy", LOGITS, np.array([0, 2]))
    assert tokens.shape == (2,)
    assert tokens[0] == pytest.approx(single.mean())


def test_mse_averages_over_all_but_the_examples():
    outputs = np.zeros((2, 3, 2), np.float32)
    assert score("mse", outputs, outputs + np.array([1.0, 3.0])).tolist() == [5.0, 5.0]


def test_metrics_run_under_strict_promotion_on_half_precision_outputs():
    with jax.numpy_dtype_promotion("strict"):
        assert score("top1", jnp.asarray(LOGITS, jnp.bfloat16), np.array([0, 1], np.int8)).tolist() == [1.0, 1.0]
        assert score("cross_entropy", jnp.asarray(LOGITS, jnp.bfloat16), np.array([0, 1])).dtype == np.float32


def test_a_callable_becomes_a_metric_named_after_it():
    def hits(outputs, labels):
        return outputs[:, 0] > labels

    metric = find_metric(hits)
    assert (metric.name, metric.score, metric.binary, metric.larger_is_better) == ("hits", hits, False, True)
    assert find_metric(metric) is metric


@pytest.mark.parametrize("wrong", ["accuracy", "TOP1", 3])
def test_an_unknown_metric_lists_only_names_that_are_accepted(wrong):
    with pytest.raises(InputError, match=r"one of top1, cross_entropy, mse,? or a callable") as caught:
        find_metric(wrong)
    assert repr(wrong) in str(caught.value)
    for name in ("top1", "cross_entropy", "mse"):
        find_metric(name)


@pytest.mark.parametrize(
    ("name", "outputs", "labels", "message"),
    [
        ("top1", LOGITS[0], np.array([0, 1, 2]), r"outputs of shape \(examples, classes\), got \(3,\)"),
        ("top1", LOGITS, np.eye(3, dtype=np.float32)[:2], r"argmax of one-hot"),
        ("top1", LOGITS, np.array([0.0, 1.0]), r"whole-number labels of shape \(2,\).*got float"),
        ("top1", (LOGITS,), np.array([0, 1]), r"one array of outputs, got a tuple"),
        ("top1", LOGITS, None, r"labels is None"),
        ("mse", LOGITS, LOGITS[:, :2], r"\(2, 3\) and \(2, 2\)"),
    ],
)
def test_outputs_a_metric_cannot_read_are_refused_with_both_shapes(name, outputs, labels, message):
    with pytest.raises(InputError, match=message):
        find_metric(name).score(outputs, labels)


def test_the_fingerprint_follows_the_code_of_a_callable():
    def make(power):
        return find_metric(lambda outputs, labels: (outputs - labels) ** power)

    assert make(2).fingerprint == make(2).fingerprint
    assert make(2).fingerprint != make(4).fingerprint
    down = Metric(name="<lambda>", score=make(2).score, larger_is_better=False)
    assert down.fingerprint != make(2).fingerprint
    assert find_metric("top1").fingerprint != find_metric("mse").fingerprint
