import jax
import jax.numpy as jnp
import numpy as np
import pytest

from studies import minilm
from tests.study_data import layer_kinds, load_or_skip
from tuner.capturing import capture_shapes, capture_task
from tuner.task import check_task

PARTS = ("attention/query_proj", "attention/key_proj", "attention/value_proj", "attention/output_proj", "up", "down")


def test_every_product_is_named():
    params, static = minilm.split_model()
    tokens = jax.ShapeDtypeStruct((2, 16), jnp.int32)
    kinds = layer_kinds(lambda params, tokens: minilm.embed(static, params, tokens), params, (tokens,))
    blocks = [f"layers/{number}" for number in range(minilm.DEPTH)]
    weights = {f"{block}/{part}": "matmul" for block in blocks for part in PARTS}
    scores = {
        f"{block}/eqx.nn.MultiheadAttention/{part}/dot_0": "dot"
        for block in blocks
        for part in ("sd,Sd->sS", "sS,Sd->sd")
    }
    assert kinds == {"words": "embedding", **weights, **scores}


def test_every_parameter_has_a_published_name():
    params, _ = minilm.split_model()
    names = [minilm.published_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert len(set(names)) == len(names) == 5 + 16 * minilm.DEPTH
    assert "encoder.layer.3.attention.output.LayerNorm.bias" in names


def test_filling_up_changes_no_embedding():
    shapes, static = minilm.split_model()
    leaves, tree = jax.tree_util.tree_flatten(shapes)
    rng = np.random.default_rng(0)
    params = jax.tree_util.tree_unflatten(
        tree, [jnp.asarray(0.1 * rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    )
    tokens = np.array([[101, 2054, 2003, 102]], np.int32)
    short = minilm.embed(static, params, tokens)
    long = minilm.embed(static, params, np.pad(tokens, ((0, 0), (0, 5))))
    np.testing.assert_allclose(short, long, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, rtol=1e-5)


def test_the_metric_is_the_share_of_labels_read_rightly():
    heads = {
        "source/kernel": np.eye(3),
        "source/bias": np.zeros(3),
        "positive/kernel": np.eye(3)[:, :2],
        "positive/bias": np.array([0.0, 0.5]),
    }
    embeddings = jnp.eye(3, dtype=jnp.bfloat16)
    labels = {"source": np.array([0, 1, 1]), "positive": np.array([0, 1, 0])}
    assert minilm.accuracy(heads, embeddings, labels).tolist() == [1, 1, 0]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_reaches_its_scores_on_sentences_that_fitted_nothing():
    task = load_or_skip("studies.minilm")
    check_task(task)
    assert (task.batch_size, task.search.inputs[0].shape, task.holdout.inputs[0].shape) == (16, (800, 64), (2000, 64))
    assert [(one.metric.name, one.max_drop) for one in task.constraints] == [("cosine", None)]
    count = 800
    tokens = task.search.inputs[0]
    run = jax.jit(task.apply)
    order = np.argsort(np.sum(tokens != 0, axis=1))
    embeddings = np.empty((count, minilm.WIDTH), np.float32)
    for rows in np.split(order, count // 100):
        embeddings[rows] = run(task.params, minilm.trim(tokens[rows]))
    for label, expected in (("source", 0.906), ("positive", 0.800)):
        score = minilm.accuracy(task.metric.score.args[0], jnp.asarray(embeddings), {label: task.search.labels[label]})
        # The expected score has the sampling error of 500 sentences, this one that of 800.
        error = np.sqrt(expected * (1 - expected) * (1 / 500 + 1 / count))
        assert abs(np.mean(score) - expected) < 2.5 * error


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_one_sentence_at_a_time_is_a_study_too():
    task = load_or_skip("studies.minilm:single")
    check_task(task)
    assert (task.name, task.batch_size, task.holdout.inputs[0].shape) == ("minilm_single", 1, (2000, 32))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_batches_and_single_ones_together_are_a_study_too():
    task = load_or_skip("studies.minilm:mixed")
    check_task(task)
    assert (task.name, task.batch_size) == ("minilm_mixed", 16)
    calls = {name: (shape.weight, shape.call(task.search)[0].shape) for name, shape in task.shapes.items()}
    assert calls == {"batch": (1, (16, 64)), "single": (16, (1, 32))}
    assert [weight for weight, _ in capture_shapes(task, capture_task(task))] == [1, 16]
