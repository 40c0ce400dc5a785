"""Metrics: how well outputs fit labels, one score per example so that two programs can be compared pairwise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.errors import InputError
from tuner.fingerprint import hash_callable, hash_text

Score = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One score per example; the mean over examples is the quality.

    Args:
        name: what reports call it.
        score: `score(outputs, labels)`, traceable by `jax.jit`, gives an array of shape (examples,).
        binary: True when every score is 0 or 1, which allows an exact test.
        larger_is_better: False for losses and errors.
    """

    name: str
    score: Score
    binary: bool = False
    larger_is_better: bool = True

    @property
    def fingerprint(self) -> str:
        """Hex digest that changes with the name, the direction, or the code of the score."""
        code = "built in" if METRICS.get(self.name) is self else hash_callable(self.score)
        return hash_text(self.name, str(self.binary), str(self.larger_is_better), code)


def top1(outputs: Any, labels: Any) -> Any:
    """1 where the largest of (examples, classes) is the label, else 0."""
    import jax.numpy as jnp

    _require_class_labels("top1", outputs, labels, rank=2)
    return (jnp.argmax(outputs, axis=-1) == _whole(labels)).astype(jnp.float32)


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
    import jax.numpy as jnp

    _require_array("mse", outputs)
    _require_labels("mse", labels)
    if jnp.shape(outputs) != jnp.shape(labels):
        raise InputError(
            f"metric 'mse' compares outputs with labels of the same shape, got {jnp.shape(outputs)} and "
            f"{jnp.shape(labels)}; reshape one of them"
        )
    difference = jnp.asarray(outputs).astype(jnp.float32) - jnp.asarray(labels).astype(jnp.float32)
    return _mean_per_example(difference**2)


METRICS: dict[str, Metric] = {
    "top1": Metric(name="top1", score=top1, binary=True),
    "cross_entropy": Metric(name="cross_entropy", score=cross_entropy, larger_is_better=False),
    "mse": Metric(name="mse", score=mse, larger_is_better=False),
}


def find_metric(metric: str | Metric | Score) -> Metric:
    """The metric of this name, or a callable wrapped as one (larger is better unless given as a `Metric`)."""
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric not in METRICS:
            raise InputError(
                f"unknown metric {metric!r}; use one of {', '.join(METRICS)}, "
                "or a callable(outputs, labels) -> per-example scores"
            )
        return METRICS[metric]
    if callable(metric):
        return Metric(name=getattr(metric, "__name__", type(metric).__name__), score=metric)
    raise InputError(
        f"metric={metric!r} is a {type(metric).__name__}; give one of {', '.join(METRICS)}, "
        "or a callable(outputs, labels) -> per-example scores"
    )


def _whole(labels: Any) -> Any:
    """Labels as int32, so that strict dtype promotion has nothing to object to."""
    import jax.numpy as jnp

    return jnp.asarray(labels).astype(jnp.int32)


def _mean_per_example(scores: Any) -> Any:
    return scores.reshape(scores.shape[0], -1).mean(axis=1)


def _require_array(metric: str, outputs: Any) -> None:
    if not hasattr(outputs, "shape") or not hasattr(outputs, "dtype"):
        raise InputError(
            f"metric {metric!r} reads one array of outputs, got a {type(outputs).__name__}; "
            "let apply return the array alone, or give a callable metric"
        )


def _require_labels(metric: str, labels: Any) -> None:
    if labels is None:
        raise InputError(f"metric {metric!r} compares outputs with labels, and labels is None; give labels")


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
