import gzip
import shutil

import numpy as np
import pytest

from studies import _fashion_mnist, _mnist_builders
from tests.mnist_files import idx, pass_off_as_official, write_files
from tuner.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_mnist_builders, "INSTALLED", tmp_path / "installed")
    return tmp_path / "cache" / "jax-precision-tuner"


@pytest.fixture
def files(tmp_path, monkeypatch):
    folder = write_files(tmp_path / "files", 5)
    pass_off_as_official(folder, 5, monkeypatch)
    return folder


def test_an_idx_file_is_read(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    tmp_path.joinpath("a.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(_mnist_builders.read_idx(tmp_path / "a.gz"), array)


def test_the_official_header_carries_name_and_time_and_the_same_content():
    restored = _mnist_builders.restore_header(gzip.compress(b"content", mtime=0), "a-ubyte.gz", 1504176606)
    assert gzip.decompress(restored) == b"content"
    assert restored[:18] == b"\x1f\x8b\x08\x08\xde\xe9\xa7Y\x00\x03a-ubyte\x00"


def test_files_that_are_not_the_official_ones_are_refused(tmp_path, cache):
    builder = _mnist_builders.make_builder("fashion_mnist")
    with pytest.raises(InputError, match=r"a file of fashion_mnist is not the official one: .* wrong checksum; reinst"):
        _mnist_builders.prepare_from_debian(builder, write_files(tmp_path / "files", 5))
    assert not _mnist_builders.is_prepared(builder)
    assert [path.name for path in cache.iterdir()] == ["tensorflow_datasets"]


@pytest.mark.parametrize("name", _mnist_builders.NAMES)
def test_a_data_set_that_is_not_there_names_the_command(name):
    with pytest.raises(
        InputError, match=rf"the data set {name} is not in .*; run .*`python -m studies\.fetch {name}`,? once to"
    ):
        _fashion_mnist.load(name, "test")


def test_a_data_set_is_built_from_files_and_read_as_arrays(files, cache):
    builder = _mnist_builders.make_builder("fashion_mnist")
    _mnist_builders.prepare_from_debian(builder, files)
    for split in ("train", "test"):
        images, labels = _fashion_mnist.load("fashion_mnist", split)
        written = np.arange(5 * 784, dtype=np.uint8).reshape(5, 784)
        assert sorted(labels) == list(range(5))
        np.testing.assert_array_equal(images, (written[labels] / 255).astype(np.float32))
    # What was decoded is kept: the data set itself is not read again.
    shutil.rmtree(cache / "tensorflow_datasets")
    np.testing.assert_array_equal(_fashion_mnist.load("fashion_mnist", "test")[0], images)


def test_installed_files_of_the_debian_package_are_used_where_they_are(files, monkeypatch):
    monkeypatch.setattr(_mnist_builders, "INSTALLED", files)
    assert len(_fashion_mnist.load("fashion_mnist", "test")[0]) == 5


def test_a_damaged_data_set_names_the_command(files, cache):
    builder = _mnist_builders.make_builder("fashion_mnist")
    _mnist_builders.prepare_from_debian(builder, files)
    (record,) = cache.rglob("*test.array_record*")
    record.write_bytes(record.read_bytes()[:100])
    with pytest.raises(InputError, match=r"the data set fashion_mnist in .* is damaged .*; run `make data`, or `pyth"):
        _fashion_mnist.load("fashion_mnist", "test")
