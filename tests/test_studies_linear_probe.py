import numpy as np

from studies._linear_probe import fit_probe, in_batches


def test_a_probe_reads_what_the_features_say():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300).astype(np.int32)
    features = (np.eye(3)[labels] @ rng.normal(size=(3, 8)) + 5 + 0.1 * rng.normal(size=(300, 8))).astype(np.float32)
    probe = fit_probe(features[:200], labels[:200], penalty=0.01)
    assert {name: array.dtype for name, array in probe.items()} == {"kernel": np.float32, "bias": np.float32}
    scores = features[200:] @ probe["kernel"] + probe["bias"]
    assert np.mean(scores.argmax(axis=1) == labels[200:]) == 1


def test_batches_cover_every_row():
    np.testing.assert_array_equal(in_batches(lambda rows: rows[:3] * 2, np.arange(9), 3), np.arange(9) * 2)
