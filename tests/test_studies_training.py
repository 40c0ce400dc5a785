import jax
import numpy as np

from studies._training import fit


def apply(params, x):
    return x @ params["kernel"]


def test_training_learns_and_repeats_itself():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 96)
    points = (np.eye(3)[labels] + rng.normal(size=(96, 3)) * 0.1).astype(np.float32)
    start = {"kernel": np.zeros((3, 3), np.float32)}

    def train():
        return fit(apply, start, points, labels, title="points", epochs=5, batch_size=16, learning_rate=0.1)

    params = train()
    assert (np.argmax(apply(params, points), axis=1) == labels).mean() > 0.9
    assert jax.tree_util.tree_all(jax.tree_util.tree_map(np.array_equal, params, train()))
