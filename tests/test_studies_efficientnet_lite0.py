import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from studies import efficientnet_lite0
from tests.study_data import layer_kinds, load_or_skip, scores
from tuner.task import check_task

# Channels in, widened, and out of every block, and its kernel size, as the weights have them.
BLOCKS = [
    (32, 32, 16, 3),
    *[(16, 96, 24, 3), (24, 144, 24, 3)],
    *[(24, 144, 40, 5), (40, 240, 40, 5)],
    *[(40, 240, 80, 3), (80, 480, 80, 3), (80, 480, 80, 3)],
    *[(80, 480, 112, 5), (112, 672, 112, 5), (112, 672, 112, 5)],
    *[(112, 672, 192, 5), (192, 1152, 192, 5), (192, 1152, 192, 5), (192, 1152, 192, 5)],
    (192, 1152, 320, 3),
]


def convolution(size, inputs, outputs):
    return {
        "kernel": jax.ShapeDtypeStruct((size, size, inputs, outputs), jnp.float32),
        "bias": jax.ShapeDtypeStruct((outputs,), jnp.float32),
    }


def shapes():
    blocks = []
    for inputs, wide, outputs, size in BLOCKS:
        block = {"depthwise": convolution(size, 1, wide), "project": convolution(1, wide, outputs)}
        blocks.append(block if inputs == wide else {"expand": convolution(1, inputs, wide), **block})
    classifier = {
        "kernel": jax.ShapeDtypeStruct((1280, 10), jnp.float32),
        "bias": jax.ShapeDtypeStruct((10,), jnp.float32),
    }
    return {
        "stem": convolution(3, 3, 32),
        "blocks": blocks,
        "head": convolution(1, 320, 1280),
        "classifier": classifier,
    }


def test_every_convolution_is_named():
    images = jax.ShapeDtypeStruct((2, 64, 64, 3), jnp.float32)
    kinds = layer_kinds(efficientnet_lite0.apply, shapes(), (images,))
    inside = [f"blocks/{number}/{name}" for number in range(16) for name in ("expand", "depthwise", "project")]
    convolutions = dict.fromkeys(["stem", *inside, "head"], "conv")
    del convolutions["blocks/0/expand"]
    assert kinds == {"input": "input", **convolutions, "classifier": "matmul"}


def test_the_overlap_is_the_probability_that_stays():
    probabilities = jnp.array([[0.5, 0.5], [0.75, 0.25]])
    assert np.allclose(efficientnet_lite0.overlap(jnp.log(probabilities), probabilities), 1)
    assert np.allclose(efficientnet_lite0.overlap(jnp.log(probabilities[::-1]), probabilities), 0.75)


def test_the_middle_of_a_photograph_is_cropped():
    photograph = Image.new("L", (400, 256), 0)
    photograph.paste(255, (88, 16, 312, 240))
    middle = efficientnet_lite0.crop(photograph)
    assert (middle.shape, middle.dtype) == ((224, 224, 3), np.float32)
    assert (middle == 255).all()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_probe_reaches_its_score_on_images_that_fitted_nothing():
    task = load_or_skip("studies.efficientnet_lite0")
    check_task(task)
    shape = (64, 64, 3)
    assert (task.batch_size, task.search.inputs[0].shape, task.holdout.inputs[0].shape) == (
        32,
        (1000, *shape),
        (2000, *shape),
    )
    accuracy = np.mean(scores(task, task.search))
    # The expected score has the sampling error of 1,000 images, and so has this one.
    assert abs(accuracy - 0.848) < 2.5 * np.sqrt(0.848 * 0.152 * (1 / 1000 + 1 / 1000))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_photographs_are_recognized():
    task = load_or_skip("studies.efficientnet_lite0:photographs")
    check_task(task)
    assert (task.batch_size, len(task.search), len(task.holdout)) == (8, 10, 10)
    images, labels = efficientnet_lite0.load_photographs()
    logits = np.concatenate([efficientnet_lite0.classify(task.params, rows) for rows in np.split(images, 5)])
    assert np.sum(logits.argmax(axis=1) == labels) >= 17  # 18 in the published arithmetic
    inputs, expected, _ = next(task.search.batches(8))
    assert np.allclose(task.metric.score(task.apply(task.params, *inputs), expected), 1, atol=1e-4)
