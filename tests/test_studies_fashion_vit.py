from functools import partial

import jax
import numpy as np
import pytest

from studies import _cache
from studies.fashion_vit import DEPTH, ViT, init_tied, patches, stack, start, untie
from tests.study_data import layer_kinds, load_or_skip, scores
from tuner.errors import InputError

IMAGES = np.random.default_rng(0).random((3, 784), dtype=np.float32)


def test_loop_and_scan_are_the_same_model():
    moved = lambda leaf, by: leaf + by * 0.01 * np.sin(np.arange(leaf.size)).reshape(leaf.shape)
    params = {name: jax.tree.map(partial(moved, by=by), part) for by, (name, part) in enumerate(start().items())}
    loop = ViT().apply({"params": params}, IMAGES)
    scan = ViT(scanned=True).apply({"params": stack(params)}, IMAGES)
    np.testing.assert_allclose(loop, scan, rtol=1e-5, atol=1e-5)


def test_every_matmul_is_a_layer_in_the_loop_and_one_per_block_under_scan():
    shape = (jax.ShapeDtypeStruct((2, 784), np.float32),)
    params = untie(init_tied())
    loop = layer_kinds(lambda params, images: ViT().apply({"params": params}, images), params, shape)
    scan = layer_kinds(lambda params, images: ViT(scanned=True).apply({"params": params}, images), stack(params), shape)
    assert (len(loop), len(scan)) == (3 + 8 * DEPTH, 3 + 8)
    assert [name for name in loop if name.startswith("block5/")] == [
        *(f"block5/attention/{part}" for part in ("query", "key", "value", "out")),
        "block5/up",
        "block5/down",
    ]


def test_a_patch_is_four_by_four_pixels():
    images = np.zeros((1, 28, 28), np.float32)
    images[0, 4:8, 8:12] = 1.0
    found = np.asarray(patches(images.reshape(1, 784)))
    assert found.shape == (1, 49, 16)
    assert np.flatnonzero(found[0, :, 0] > 0).tolist() == [7 + 2]


def test_training_starts_from_six_copies_of_one_small_block():
    params = start()
    for number in range(1, DEPTH):
        jax.tree.map(np.testing.assert_array_equal, params["block0"], params[f"block{number}"])
    assert (_cache.SHIPPED / "fashion_vit_start-v1.safetensors").stat().st_size < 3e6


@pytest.mark.parametrize("content", [None, b"", b"no safetensors"])
def test_a_start_that_is_missing_or_damaged_names_what_makes_it(tmp_path, monkeypatch, content):
    monkeypatch.setattr(_cache, "SHIPPED", tmp_path)
    if content is not None:
        (tmp_path / "fashion_vit_start-v1.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"fashion_vit_start-v1.*or train them with python -m studies\._fashion_vit_s"):
        start()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_reaches_its_score_on_images_that_were_not_trained_on():
    task, same = load_or_skip("studies.fashion_vit"), load_or_skip("studies.fashion_vit:scanned")
    correct = scores(task, task.holdout, batch_size=500)
    assert correct.mean() > 0.87 - 2 * correct.std() / np.sqrt(len(correct))
    few = task.holdout.pick(slice(500))
    np.testing.assert_array_equal(scores(task, few, batch_size=500), scores(same, few, batch_size=500))
    assert not np.array_equal(*(task.params[f"block{number}"]["up"]["kernel"] for number in (0, 5)))
