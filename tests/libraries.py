"""What the adapter tests share: a task on a library's own model, held to the checks of every program, here and elsewhere."""

import jax
import numpy as np

from tests.conformance import checks
from tests.conformance.checks import Case
from tests.programs import Example, normal
from tuner import Task
from tuner.measure.child import _load
from tuner.measure.sending import pack_task


def images(size: int = 16, examples: int = 8) -> np.ndarray:
    return normal(examples, size, size, 3)


def settings(inputs, **changes):
    """The rest of a task; the metric only has to exist."""
    return {"name": "toy", "inputs": inputs, "batch_size": 4, "metric": lambda outputs, labels: outputs} | changes


def check(task: Task, layers: list[str], expected, precisions=("bf16/bf16/f32->bf16", "i8/i8/i32")) -> None:
    """Names, the library's own result to the bit, and what holds for every program.

    Args:
        task: what the adapter made.
        layers: the names of the layers that have parameters, in any order.
        expected: the library's own outputs for `batch(task)`, jitted.
        precisions: the uniform policies to run.
    """
    case = Case(Example(task.apply, task.params, batch(task), ()))
    assert sorted(layer.name for layer in case.program.layers if layer.params) == sorted(layers)
    np.testing.assert_array_equal(case.reference, expected)
    received = _load({"reference": None}, pack_task(task))  # as the process that measures candidates has it
    np.testing.assert_array_equal(jax.jit(received.apply)(received.params, *batch(received)), expected)
    checks.all_original_is_identical(case)
    for text in precisions:
        checks.holds_in(case, text)


def batch(task: Task):
    return next(task.search.batches(task.batch_size))[0]
