import jax.numpy as jnp
import numpy as np
import pytest

from studies import _cache
from tuner.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "jax-precision-tuner"


def init():
    return [(jnp.zeros((2, 3)), {"bias": jnp.zeros(3)}), ()]


def train(params):
    (kernel, rest), nothing = params
    return [(kernel + 1, rest), nothing]


def forbidden(params):
    raise AssertionError("trained again")


def test_parameters_are_trained_once_and_come_back_in_their_structure(cache):
    first = _cache.cached_params("net-v1", init, train)
    again = _cache.cached_params("net-v1", init, forbidden)
    for params in (first, again):
        (kernel, rest), nothing = params
        np.testing.assert_array_equal(kernel, np.ones((2, 3), np.float32))
        assert (rest["bias"].dtype, nothing) == (np.float32, ())
    assert [path.name for path in cache.iterdir()] == ["net-v1.safetensors"]


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_a_truncated_file_is_said_and_made_again(cache, capsys, keep):
    _cache.cached_params("net-v1", init, train)
    path = cache / "net-v1.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    _cache.cached_params("net-v1", init, train)
    assert f"{path} is damaged" in capsys.readouterr().err
    _cache.cached_params("net-v1", init, forbidden)


def test_a_file_of_other_shapes_is_said_and_made_again(capsys):
    _cache.cached_arrays("net-v1", lambda: {"a": np.zeros(3)})
    arrays = _cache.cached_arrays("net-v1", lambda: {"a": np.zeros(4)}, {"a": (4,)})
    assert arrays["a"].shape == (4,)
    assert "holds other shapes: making it again" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(cache):
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder belongs")
    with pytest.raises(InputError, match=r"cannot write .*jax-precision-tuner .*set XDG_CACHE_HOME"):
        _cache.cached_params("net-v1", init, train)


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_trained(monkeypatch):
    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(_cache.tempfile, "TemporaryFile", read_only)
    with pytest.raises(InputError, match=r"cannot write .*jax-precision-tuner \(Read-only file system\); make room or"):
        _cache.cached_params("net-v1", init, forbidden)


def test_a_failed_write_leaves_nothing_behind(cache, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match=r"net-v1.safetensors \(No space left on device\); make room or set"):
        _cache.cached_params("net-v1", init, train)
    assert list(cache.iterdir()) == []
