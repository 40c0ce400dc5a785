import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import InputError
from tuner.metrics import find_metric, psnr

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


def test_top_k_is_one_where_the_label_is_among_the_k_largest():
    assert score("top2", LOGITS, np.array([1, 0])).tolist() == [1.0, 0.0]
    assert score("top2", LOGITS, np.array([2, 2])).tolist() == [0.0, 1.0]
    assert find_metric("top2").binary


def test_top_k_of_as_many_classes_is_refused():
    with pytest.raises(
        InputError, match=r"metric 'top3' is 1 for every example of outputs with 3 classes; give a k below 3"
    ):
        score("top3", LOGITS, np.array([0, 1]))


def test_perplexity_is_the_exponential_of_the_mean_cross_entropy():
    metric, labels = find_metric("perplexity"), np.array([0, 2])
    entropies = score("perplexity", LOGITS, labels)
    np.testing.assert_array_equal(entropies, score("cross_entropy", LOGITS, labels))
    assert metric.aggregate(entropies.astype(np.float64)) == pytest.approx(np.exp(entropies.mean()), rel=1e-6)
    assert metric.aggregate(jnp.asarray(entropies)) == pytest.approx(np.exp(entropies.mean()), rel=1e-5)


def test_psnr_is_taken_of_the_squared_errors_of_all_examples():
    metric = find_metric("psnr")
    assert metric.aggregate(np.array([0.01, 0.03])) == pytest.approx(10 * np.log10(1 / 0.02))
    assert metric.aggregate(jnp.array([0.01, 0.03])) == pytest.approx(10 * np.log10(1 / 0.02), rel=1e-5)
    assert psnr(255).aggregate(np.array([0.01, 0.03])) == pytest.approx(10 * np.log10(255**2 / 0.02))


def test_cosine_compares_directions():
    outputs = np.array([[[3.0, 0.0]], [[0.0, 2.0]], [[1.0, 1.0]]], np.float32)
    reference = np.array([[[6.0, 0.0]], [[0.0, -1.0]], [[1.0, 0.0]]], np.float32)
    np.testing.assert_allclose(score("cosine", outputs, reference), [1.0, -1.0, np.sqrt(0.5)], rtol=1e-6)


def test_cosine_of_zero_and_of_huge_vectors_is_defined():
    outputs = np.array([[0.0, 0.0], [0.0, 0.0], [1e30, 1e30]], np.float32)
    reference = np.array([[0.0, 0.0], [1.0, 0.0], [1e30, 1e30]], np.float32)
    np.testing.assert_allclose(score("cosine", outputs, reference), [1.0, 0.0, 1.0], rtol=1e-6)


def test_agreement_is_the_share_of_equal_choices():
    assert score("agreement", LOGITS, LOGITS[::-1]).tolist() == [0.0, 0.0]
    assert score("agreement", LOGITS, 2 * LOGITS).tolist() == [1.0, 1.0]
    tokens = np.stack([LOGITS, LOGITS[::-1]], axis=1)
    assert score("agreement", tokens, np.stack([LOGITS, LOGITS], axis=1)).tolist() == [0.5, 0.5]


def test_agreement_takes_whole_numbers_for_choices():
    assert score("agreement", np.array([1, 2, 3]), np.array([1, 0, 3])).tolist() == [1.0, 0.0, 1.0]
    assert score("agreement", np.array([[True, False]]), np.array([[True, True]])).tolist() == [0.5]


@pytest.mark.parametrize(
    ("name", "outputs", "labels", "message"),
    [
        ("top1", LOGITS[0], np.array([0, 1, 2]), r"outputs of shape \(examples, classes\), got \(3,\)"),
        ("top1", LOGITS, np.eye(3, dtype=np.float32)[:2], r"argmax of one-hot"),
        ("top1", LOGITS, np.array([0.0, 1.0]), r"whole-number labels of shape \(2,\).*got float"),
        ("top1", (LOGITS,), np.array([0, 1]), r"one array of outputs, got a tuple"),
        ("top1", LOGITS, None, r"labels is None"),
        (
            "top1",
            LOGITS,
            None,
            r"labels is None; give labels, or use agreement or cosine, which compare with the program",
        ),
        (
            "top2",
            LOGITS[0],
            np.array([0, 1, 2]),
            r"metric 'top2' reads outputs of shape \(examples, classes\), got \(3,\)",
        ),
        ("mse", LOGITS, LOGITS[:, :2], r"\(2, 3\) and \(2, 2\)"),
        ("cosine", LOGITS, LOGITS[:, :2], r"compares outputs with the reference of the same shape, got \(2, 3\) and"),
        (
            "agreement",
            LOGITS[0],
            LOGITS[0],
            r"'agreement' compares the largest of .* got floating outputs of shape \(3,\)",
        ),
        ("agreement", (LOGITS,), (LOGITS,), r"one array of outputs, got a tuple"),
    ],
)
def test_outputs_a_metric_cannot_read_are_refused_with_both_shapes(name, outputs, labels, message):
    with pytest.raises(InputError, match=message):
        find_metric(name).score(outputs, labels)
