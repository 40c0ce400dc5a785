"""The scores that ship: one number per example from outputs and labels, or from outputs and the baseline's outputs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import InputError

NEEDS_NO_LABELS = "agreement or cosine, which compare with the program as written"


def top1(outputs: Any, labels: Any) -> Any:
    """1 where the largest of (examples, classes) is the label, else 0."""
    import jax.numpy as jnp

    _require_class_labels("top1", outputs, labels, rank=2)
    return (jnp.argmax(outputs, axis=-1) == _whole(labels)).astype(jnp.float32)


@dataclass(frozen=True)  # no slots: JAX refers to what it traces weakly
class TopK:
    """1 where the label is among the k largest of (examples, classes), else 0; of equal outputs the first count."""

    k: int

    def __call__(self, outputs: Any, labels: Any) -> Any:
        """The scores."""
        import jax
        import jax.numpy as jnp

        name = f"top{self.k}"
        _require_class_labels(name, outputs, labels, rank=2)
        classes = jnp.shape(outputs)[-1]
        if self.k >= classes:
            raise InputError(
                f"metric {name!r} is 1 for every example of outputs with {classes} classes; give a k below {classes}"
            )
        _, best = jax.lax.top_k(jnp.asarray(outputs), self.k)
        return (best == _whole(labels)[..., None]).any(axis=-1).astype(jnp.float32)


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """Negative log-likelihood in nats of the labels under logits (or log-probabilities), averaged per example.

    Outputs are (examples, ..., classes) and labels (examples, ...); everything between is averaged.
    """
    import jax
    import jax.numpy as jnp

    _require_class_labels("cross_entropy", outputs, labels)
    log_probabilities = jax.nn.log_softmax(jnp.asarray(outputs).astype(jnp.float32), axis=-1)
    picked = jnp.take_along_axis(log_probabilities, _whole(labels)[..., None], axis=-1)[..., 0]
    return -_mean_per_example(picked)


def mse(outputs: Any, labels: Any) -> Any:
    """Mean squared error per example."""
    difference = _wide(outputs, labels, "mse", "labels")
    return _mean_per_example((difference[0] - difference[1]) ** 2)


def cosine(outputs: Any, reference: Any) -> Any:
    """Cosine similarity per example to reference outputs of the same shape; 1 where both are zero, 0 where one is."""
    import jax.numpy as jnp

    left, right = (_rows(array) for array in _wide(outputs, reference, "cosine", "the reference"))
    # Scaled first: the square of a large float32 is infinite.
    largest = [jnp.max(jnp.abs(array), axis=1, keepdims=True) for array in (left, right)]
    ones = [jnp.where(size == 0, jnp.ones_like(size), size) for size in largest]
    left, right = left / ones[0], right / ones[1]
    norms = jnp.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    both_zero = ((largest[0] == 0) & (largest[1] == 0))[:, 0]
    similar = (left * right).sum(axis=1) / jnp.where(norms == 0, jnp.ones_like(norms), norms)
    return jnp.where(both_zero, jnp.ones_like(similar), similar)


def agreement(outputs: Any, reference: Any) -> Any:
    """Share per example of positions that choose what the reference chooses.

    Floating outputs (examples, ..., classes) choose their largest class; whole numbers and booleans are choices already.
    """
    import jax.numpy as jnp

    _require_same_shape("agreement", outputs, reference, "the reference")
    if not jnp.issubdtype(outputs.dtype, jnp.floating):
        return _mean_per_example((jnp.asarray(outputs) == reference).astype(jnp.float32))
    if outputs.ndim < 2:
        raise InputError(
            f"metric 'agreement' compares the largest of (examples, ..., classes), got floating outputs of shape "
            f"{outputs.shape}; use cosine or mse for numbers that are no choice"
        )
    chosen = jnp.argmax(outputs, axis=-1) == jnp.argmax(reference, axis=-1)
    return _mean_per_example(chosen.astype(jnp.float32))


def perplexity_of(cross_entropies: Any) -> Any:
    """Perplexity from the cross-entropy of each example: e to the power of their mean."""
    return _numbers(cross_entropies).exp(cross_entropies.mean())


@dataclass(frozen=True)  # no slots: JAX refers to what it traces weakly
class PsnrOf:
    """Peak signal-to-noise ratio in decibels from the mean squared error of each example, over all of them."""

    peak: float

    def __call__(self, squared_errors: Any) -> Any:
        """The ratio; infinite without any error."""
        return -10 * _numbers(squared_errors).log10(squared_errors.mean() / self.peak**2)


def reads_class_numbers(score: Any) -> bool:
    """True for the scores here that take labels for class numbers, which must then be below the number of classes."""
    return score in (top1, cross_entropy) or isinstance(score, TopK)


def _numbers(array: Any) -> Any:
    """numpy for its own arrays, which may be wider than JAX would leave them; JAX for the rest."""
    import jax.numpy as jnp

    return np if isinstance(array, np.ndarray) else jnp


def _whole(labels: Any) -> Any:
    """Labels as int32, so that strict dtype promotion has nothing to object to."""
    import jax.numpy as jnp

    return jnp.asarray(labels).astype(jnp.int32)


def _wide(outputs: Any, other: Any, metric: str, what: str) -> tuple[Any, Any]:
    """Two arrays of one shape in float32."""
    import jax.numpy as jnp

    _require_same_shape(metric, outputs, other, what)
    return jnp.asarray(outputs).astype(jnp.float32), jnp.asarray(other).astype(jnp.float32)


def _rows(array: Any) -> Any:
    return array.reshape(array.shape[0], -1)


def _mean_per_example(scores: Any) -> Any:
    return _rows(scores).mean(axis=1)


def _require_array(metric: str, outputs: Any) -> None:
    if not hasattr(outputs, "shape") or not hasattr(outputs, "dtype"):
        raise InputError(
            f"metric {metric!r} reads one array of outputs, got a {type(outputs).__name__}; "
            "let apply return the array alone, or give a callable metric"
        )


def _require_labels(metric: str, labels: Any) -> None:
    if labels is None:
        raise InputError(
            f"metric {metric!r} compares outputs with labels, and labels is None; give labels, or use {NEEDS_NO_LABELS}"
        )


def _require_same_shape(metric: str, outputs: Any, other: Any, what: str) -> None:
    import jax.numpy as jnp

    _require_array(metric, outputs)
    _require_labels(metric, other)
    if jnp.shape(outputs) != jnp.shape(other):
        raise InputError(
            f"metric {metric!r} compares outputs with {what} of the same shape, got {jnp.shape(outputs)} and "
            f"{jnp.shape(other)}; reshape one of them"
        )


def _require_class_labels(metric: str, outputs: Any, labels: Any, rank: int | None = None) -> None:
    import jax.numpy as jnp

    _require_array(metric, outputs)
    _require_labels(metric, labels)
    shape, label_shape = jnp.shape(outputs), jnp.shape(labels)
    if len(shape) < 2 or (rank is not None and len(shape) != rank):
        expected = "(examples, classes)" if rank == 2 else "(examples, ..., classes)"
        raise InputError(
            f"metric {metric!r} reads outputs of shape {expected}, got {shape}; "
            "let apply return one score per class, or give a callable metric"
        )
    if label_shape != shape[:-1] or not jnp.issubdtype(jnp.asarray(labels).dtype, jnp.integer):
        raise InputError(
            f"metric {metric!r} reads whole-number labels of shape {shape[:-1]} for outputs of shape {shape}, got "
            f"{jnp.asarray(labels).dtype}{label_shape}; give class numbers (argmax of one-hot labels)"
        )
