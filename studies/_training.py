"""Training small classifiers: Adam with a falling learning rate, one compiled call per step, a progress bar."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.example_libraries import optimizers
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from studies._cache import console

# Steps between two moves of the progress bar: each waits for the loss.
_STEPS = 20


def fit(apply: Callable[..., Any], params: Any, images: Any, labels: Any, **settings: Any) -> Any:
    """Parameters after minimizing the cross-entropy of `apply(params, images)` (logits); for settings see below."""

    def stateless(params: Any, state: None, images: jax.Array) -> tuple[jax.Array, None]:
        return apply(params, images), state

    return fit_with_state(stateless, params, None, images, labels, **settings)[0]


def fit_with_state(
    apply: Callable[..., tuple[Any, Any]],
    params: Any,
    state: Any,
    images: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    *,
    title: str,
    epochs: float,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    warm_up: float = 0.0,
    seed: int = 0,
) -> tuple[Any, Any]:
    """(parameters, state) after minimizing the cross-entropy of `apply(params, state, images) -> (logits, new state)`.

    Args:
        apply: the model. Its state is what training carries on without a gradient: running statistics, a random key.
        params: where to start.
        state: the state to start with.
        images: examples, on the first axis.
        labels: the class of each.
        title: what the progress bar says.
        epochs: how often each example is seen; every time in another order, which follows from the seed.
        batch_size: examples of one step.
        learning_rate: the highest of Adam. It rises over the first `warm_up` share of the steps, then falls to zero.
        warm_up: between 0 and 1.
        seed: of the order of examples.
    """
    steps = int(epochs * (len(images) // batch_size)) // _STEPS * _STEPS
    rising = max(1, int(warm_up * steps))
    start, update, read = optimizers.adam(
        lambda count: learning_rate * jnp.minimum((count + 1) / rising, (steps - count) / max(1, steps - rising))
    )

    def loss(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
        logits, state = apply(params, state, images)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
        return -picked.mean(), state

    @jax.jit
    def step(count: Any, optimizer: Any, state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, ...]:
        (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(read(optimizer), state, images, labels)
        return count + 1, update(count, gradient, optimizer), state, value

    count, optimizer = jnp.int32(0), start(params)
    with _progress() as progress:
        bar = progress.add_task(f"training {title}", total=steps, loss=float("nan"))
        for numbers in _order(len(images), steps * batch_size, seed).reshape(-1, _STEPS, batch_size):
            losses = []
            for chosen in numbers:
                count, optimizer, state, value = step(count, optimizer, state, images[chosen], labels[chosen])
                losses.append(value)
            progress.update(bar, advance=_STEPS, loss=float(np.mean(losses)))
    return read(optimizer), state


def _order(examples: int, wanted: int, seed: int) -> np.ndarray[Any, Any]:
    """Numbers of examples, every epoch in another order."""
    rng = np.random.default_rng(seed)
    epochs = -(-wanted // examples)
    return np.concatenate([rng.permutation(examples) for _ in range(epochs)])[:wanted]


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
    )
    return Progress(*columns, TimeRemainingColumn(), console=console)
