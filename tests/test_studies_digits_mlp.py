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


def test_it_is_what_it_says(task):
    check_task(task)
    assert task.reference == "studies.digits_mlp:task"
    assert (task.batch_size, len(task.search), len(task.holdout)) == (256, 500, 500)


@pytest.mark.slow
def test_it_reaches_its_score_on_images_that_were_not_trained_on(task):
    for split in (task.search, task.holdout):
        accuracy = np.mean(task.metric.score(task.apply(task.params, *split.inputs), split.labels))
        # The demo's .980 on 500 images, within their sampling error.
        assert abs(accuracy - 0.98) < 2.5 * np.sqrt(0.98 * 0.02 / 500)


def test_no_evaluated_image_was_trained_on(task):
    images, _ = digits_mlp.load_digits()
    trained = {row.tobytes() for row in images[: digits_mlp.TRAINED_ON]}
    for split in (task.search, task.holdout):
        assert trained.isdisjoint(row.tobytes() for row in split.inputs[0])


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"reads its data from scikit-learn; pip install scikit-learn"):
        digits_mlp.load_digits()
