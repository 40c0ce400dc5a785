import jax
import numpy as np
import pytest
from flax import nnx

import tuner
from studies import fashion_resnet
from studies._cache import SHIPPED
from studies._fashion_mnist import load
from studies.fashion_resnet import ResNet
from tests.study_data import layer_kinds, load_or_skip, scores


def test_it_is_a_stem_five_blocks_and_a_head():
    images, labels = np.zeros((4, 784), np.float32), np.zeros(4, int)
    task = tuner.Task.from_nnx(ResNet(nnx.Rngs(0)), name="net", inputs=images, labels=labels, batch_size=2)
    kinds = layer_kinds(task.apply, task.params, (jax.ShapeDtypeStruct((2, 784), np.float32),))
    convolutions = [name for name, kind in kinds.items() if kind == "conv"]
    assert len(convolutions) == 1 + 5 * 2 + 2
    assert convolutions[:4] == ["stem", "blocks/0/conv1", "blocks/0/conv2", "blocks/1/conv1"]
    assert list(kinds)[-1] == "head"


def test_the_trained_file_is_small_enough_for_the_repository():
    assert (SHIPPED / "fashion_resnet-v1.safetensors").stat().st_size < 3e6


@pytest.mark.slow
def test_it_reaches_its_score_on_images_that_were_not_trained_on():
    task = load_or_skip("studies.fashion_resnet")
    assert task.batch_size == 64
    correct = scores(task, task.holdout.pick(slice(2000)), batch_size=500)
    assert correct.mean() > 0.90


@pytest.mark.slow
def test_the_running_statistics_are_those_of_the_images():
    load_or_skip("studies.fashion_resnet")
    images, _ = load("fashion_mnist", "train")
    model = fashion_resnet.trained()
    before = np.concatenate([np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.BatchStat))])
    model.train()
    for module in (module for _, module in nnx.iter_modules(model) if isinstance(module, nnx.BatchNorm)):
        module.momentum = 0.0  # keep what the next batch has
    model(images[:1000])
    after = np.concatenate([np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.BatchStat))])
    assert np.median(np.abs(after - before) / (np.abs(after) + 0.1)) < 0.1
