"""Ready studies in tests: with their data where the machine has them, else with the shapes of their parameters."""

import numpy as np
import pytest

from tuner.errors import InputError
from tuner.program import capture
from tuner.task_reference import load_task


def load_or_skip(reference):
    """The task; skips, saying how to fetch it, when its data are not in the cache."""
    try:
        return load_task(reference)
    except InputError as error:
        if "once to fetch it" in str(error):
            pytest.skip(str(error))
        raise


def layer_kinds(apply, params, inputs) -> dict[str, str]:
    """Layer name -> kind, of a program that is only traced."""
    layers = capture(apply, params, inputs).layers
    assert all(layer.searchable for layer in layers)
    return {layer.name: layer.kind for layer in layers}


def scores(task, split, batch_size=50) -> np.ndarray:
    """What the metric says of each example, a whole number of batches of them."""
    import jax

    score = jax.jit(lambda params, inputs, labels: task.metric.score(task.apply(params, *inputs), labels))
    return np.concatenate([score(task.params, inputs, labels) for inputs, labels, _ in split.batches(batch_size)])
