import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
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


def test_splits_of_the_data_set_may_be_the_splits_of_the_task(prepared):
    tfds = tuner.data.tfds
    task = Task(
        name="tiny",
        apply=lambda params, x: x @ params,
        params=np.ones((2, 10), np.float32),
        inputs=tfds("tiny", data_dir=prepared, split="test[:60%]", batch_size=4),
        holdout=tfds("tiny", data_dir=prepared, split="test[60%:]", batch_size=4),
        batch_size=4,
    )
    assert sorted(task.search.labels) == list(range(6))
    assert task.holdout.labels.tolist() == [6, 7, 8, 9]


class Pictures(tensorflow_datasets.core.GeneratorBasedBuilder, skip_registration=True):
    """Decoded images of one size or of several, features in a tree, and no supervised keys."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")
    BUILDER_CONFIGS = [  # noqa: RUF012  # the library's own name
        tensorflow_datasets.core.BuilderConfig(name="even"),
        tensorflow_datasets.core.BuilderConfig(name="ragged"),
    ]

    def _info(self):
        features = tensorflow_datasets.features
        return tensorflow_datasets.core.DatasetInfo(
            builder=self,
            features=features.FeaturesDict(
                {
                    "image": features.Image(shape=(None, None, 3)),
                    "both": {"size": np.int32, "text": np.int64},
                    "label": np.int64,
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {"test": self._generate_examples()}

    def _generate_examples(self):
        for number in range(3):
            size = 4 if self.builder_config.name == "even" else 4 + number
            image = PIL.Image.fromarray(np.full((size, size, 3), number, np.uint8))
            yield number, {"image": image, "both": {"size": size, "text": number}, "label": number}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    tensorflow_datasets.disable_progress_bar()
    folder = tmp_path_factory.mktemp("pictures")
    made = {}
    for config in ("even", "ragged"):
        made[config] = Pictures(data_dir=folder, config=config, file_format="array_record")
        made[config].download_and_prepare()
    return made


def test_images_are_decoded_and_a_tree_of_features_stays_one(pictures):
    ((images, labels),) = tuner.data.tfds(pictures["even"], keys=("image", "label"))
    assert (images.shape, images.dtype) == ((3, 4, 4, 3), np.uint8)
    assert images[:, 0, 0, 0].tolist() == labels.tolist()
    ((both, labels),) = tuner.data.tfds(pictures["even"], keys=("both", "label"))
    assert both["text"].tolist() == labels.tolist()
    assert both["size"].tolist() == [4, 4, 4]


def test_examples_of_several_sizes_are_refused(pictures):
    with pytest.raises(
        InputError, match=r"feature 'image' of data set 'pictures' do not fit together: .*pad or resize"
    ):
        list(tuner.data.tfds(pictures["ragged"], keys=("image", "label")))


def test_without_supervised_keys_they_must_be_named(pictures):
    with pytest.raises(InputError, match=r"features both, image, label, and keys=None does not name two of them"):
        tuner.data.tfds(pictures["even"])


@pytest.mark.parametrize("keep", [0, 100])
def test_a_damaged_file_names_the_folder_and_the_remedy(prepared, tmp_path, keep):
    shutil.copytree(prepared, tmp_path / "tfds")
    (record,) = (tmp_path / "tfds").rglob("*test.array_record*")
    record.write_bytes(record.read_bytes()[:keep])
    with pytest.raises(
        InputError, match=r"data set 'tiny' in .*tiny.1\.0\.0 is damaged .*; remove that folder and run"
    ):
        list(tuner.data.tfds(builder(tmp_path / "tfds")))


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match=r"'mnist' needs tensorflow_datasets; pip install tensorflow-datasets import"):
        tuner.data.tfds("mnist")


@pytest.mark.parametrize("size", [0, 2.5, True])
def test_a_batch_size_that_is_none_is_refused(prepared, size):
    with pytest.raises(InputError, match=rf"batch_size={size} of data set 'tiny' is not a whole number of at least 1"):
        tuner.data.tfds("tiny", data_dir=prepared, batch_size=size)


@pytest.mark.slow
def test_reading_loads_no_tensorflow(prepared):
    code = (
        "import sys, tuner.data\n"
        f"batches = list(tuner.data.tfds('tiny', data_dir={str(prepared)!r}))\n"
        "assert len(batches[0][1]) == 10\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'tensorflow'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout.strip() == "[]"


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
