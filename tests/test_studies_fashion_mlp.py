import numpy as np
import pytest

from studies import fashion_mlp
from studies._mnist_builders import INSTALLED, is_prepared, make_builder
from tuner.task import check_task
from tuner.task_reference import load_task


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_reaches_its_score_on_images_that_were_not_trained_on():
    if not is_prepared(make_builder("fashion_mnist")) and not INSTALLED.is_dir():
        pytest.skip("Fashion-MNIST is not there: python -m studies.fetch")
    task = load_task("studies.fashion_mlp")
    check_task(task)
    assert (task.batch_size, len(task.search), len(task.holdout)) == (256, 5000, 5000)
    for split in (task.search, task.holdout):
        assert np.mean(task.metric.score(task.apply(task.params, *split.inputs), split.labels)) > 0.88
    assert [np.shape(layer[0]) for layer in task.params if layer] == [(784, 512), (512, 512), (512, 10)]


def test_mnist_is_selectable(monkeypatch):
    loaded = []
    monkeypatch.setattr(fashion_mlp, "load", lambda *which: loaded.append(which) or (np.eye(10, 784), np.arange(10)))
    monkeypatch.setattr(fashion_mlp, "cached_params", lambda name, init, train: init())
    task = load_task("studies.fashion_mlp:mnist")
    assert (task.name, loaded) == ("mnist_mlp", [("mnist", "test")])
