import sys

import numpy as np
import pytest

from studies import digits_mlp
from tuner.errors import InputError
from tuner.task import check_task
from tuner.task_reference import load_task


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        task = load_task("studies.digits_mlp")
        # From the cache now, and the same.
        assert load_task("studies.digits_mlp").fingerprints() == task.fingerprints()
    return task


def test_it_is_accurate_on_both_splits(task):
    check_task(task)
    assert task.reference == "studies.digits_mlp:task"
    for split in (task.search, task.holdout):
        outputs = task.apply(task.params, *split.inputs)
        assert np.mean(task.metric.score(outputs, split.labels)) > 0.95


def test_no_evaluated_image_was_trained_on(task):
    images, _ = digits_mlp.load_digits()
    trained = {row.tobytes() for row in images[: digits_mlp.TRAINED_ON]}
    for split in (task.search, task.holdout):
        assert trained.isdisjoint(row.tobytes() for row in split.inputs[0])


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"reads its data from scikit-learn; pip install scikit-learn"):
        digits_mlp.load_digits()
