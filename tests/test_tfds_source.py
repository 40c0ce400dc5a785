import numpy as np
import pytest
import tensorflow_datasets

import tuner.data
from tuner.errors import InputError
from tuner.task import Task, check_task

X = np.arange(20, dtype=np.float32).reshape(10, 2)


class Tiny(tensorflow_datasets.core.GeneratorBasedBuilder, skip_registration=True):
    """A real builder with ten examples."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")

    def _info(self):
        features = tensorflow_datasets.features
        return tensorflow_datasets.core.DatasetInfo(
            builder=self,
            features=features.FeaturesDict(
                {"x": features.Tensor(shape=(2,), dtype=np.float32), "y": features.ClassLabel(num_classes=10)}
            ),
            supervised_keys=("x", "y"),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {"test": self._generate_examples()}

    def _generate_examples(self):
        for number in range(10):
            yield number, {"x": X[number], "y": number}


def builder(folder, **options):
    return Tiny(data_dir=folder, **options)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    tensorflow_datasets.disable_progress_bar()
    folder = tmp_path_factory.mktemp("tfds")
    builder(folder, file_format="array_record").download_and_prepare()
    return folder


def test_a_prepared_data_set_is_read_in_batches_by_builder_or_by_name(prepared):
    for source in (builder(prepared), "tiny"):
        batches = list(tuner.data.tfds(source, data_dir=prepared, batch_size=4))
        assert [len(labels) for _, labels in batches] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate([inputs for inputs, _ in batches]), X)
        np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), np.arange(10))


def test_slices_and_keys_choose(prepared):
    ((labels, inputs),) = tuner.data.tfds("tiny", data_dir=prepared, split="test[:30%]", keys=("y", "x"))
    assert labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(inputs, X[:3])


def test_a_task_takes_it_as_its_inputs(prepared):
    task = Task(
        name="tiny",
        apply=lambda params, x: x @ params,
        params=np.ones((2, 10), np.float32),
        inputs=tuner.data.tfds("tiny", data_dir=prepared),
        batch_size=4,
    )
    check_task(task)
    assert sorted([*task.search.labels, *task.holdout.labels]) == list(range(10))


def test_what_cannot_be_read_is_named(prepared, tmp_path):
    tfds = tuner.data.tfds
    with pytest.raises(InputError, match="unknown tensorflow-datasets data set 'no_such_set'"):
        tfds("no_such_set", data_dir=tmp_path)
    with pytest.raises(InputError, match=r"'mnist' is not prepared in .*; run tensorflow_datasets.builder\('mnist'"):
        tfds("mnist", data_dir=tmp_path)
    with pytest.raises(InputError, match=r"no split 'train' .* use one of test"):
        tfds("tiny", data_dir=prepared, split="train")
    with pytest.raises(InputError, match=r"features x, y, and keys=\('x', 'z'\)"):
        tfds("tiny", data_dir=prepared, keys=("x", "z"))


def test_a_data_set_in_another_file_format_says_how_to_prepare_it(prepared, tmp_path, monkeypatch):
    def refuse(split):
        raise NotImplementedError("Random access data source for file format FileFormat.TFRECORD is not supported.")

    source = builder(prepared)
    monkeypatch.setattr(source, "as_data_source", refuse)
    with pytest.raises(InputError, match=r'not stored as array_record.*file_format="array_record"'):
        tuner.data.tfds(source)
