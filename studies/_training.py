"""Training small classifiers: Adam with a falling learning rate, one compiled call per epoch, a progress bar."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.example_libraries import optimizers
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from studies._cache import console


def fit(
    apply: Callable[..., Any],
    params: Any,
    images: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    *,
    title: str,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Any:
    """Parameters after some epochs of minimizing the cross-entropy of `apply(params, images)` (logits); repeatable."""
    steps = len(images) // batch_size
    start, update, read = optimizers.adam(lambda count: learning_rate * (1 - count / (epochs * steps)))

    def loss(params: Any, numbers: jax.Array) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(apply(params, jnp.take(images_on_device, numbers, axis=0)))
        picked = jnp.take_along_axis(log_probabilities, labels_on_device[numbers, None], axis=-1)
        return -picked.mean()

    def step(state: tuple[Any, Any], numbers: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        count, optimizer = state
        value, gradient = jax.value_and_grad(loss)(read(optimizer), numbers)
        return (count + 1, update(count, gradient, optimizer)), value

    @jax.jit
    def epoch(state: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        order = jax.random.permutation(key, len(images))[: steps * batch_size]
        state, losses = jax.lax.scan(step, state, order.reshape(steps, batch_size))
        return state, losses.mean()

    images_on_device, labels_on_device = jnp.asarray(images), jnp.asarray(labels)
    state = (jnp.int32(0), start(params))
    with _progress() as progress:
        bar = progress.add_task(f"training {title}", total=epochs, loss=float("nan"))
        for key in jax.random.split(jax.random.key(seed), epochs):
            state, mean = epoch(state, key)
            progress.update(bar, advance=1, loss=float(mean))
    return read(state[1])


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("loss {task.fields[loss]:.3f}")
    return Progress(*columns, TimeRemainingColumn(), console=console)
