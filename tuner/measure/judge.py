"""Judge: one metric on one split; what the baseline scored, and how far a candidate falls behind it on the same examples."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tuner.errors import InputError
from tuner.measure.bootstrap import Resampler, Values, percentiles
from tuner.measure.intervals import BOOTSTRAP, MCNEMAR, DropInterval, certain_drop, drop_interval, is_binary
from tuner.metrics import Metric

PyTree = Any
Mask = NDArray[np.bool_]

# As of `certain_drop`: what is certain lies so many standard errors away.
_CERTAIN_ERRORS = 4
_DRAWS_AT_A_LOOK = 200


class Judge:
    """What one metric says of candidates.

    Args:
        metric: gives one score per example, or with an aggregate statistics of every example.
        seed: of the bootstrap.
    """

    def __init__(self, metric: Metric, seed: int = 0) -> None:
        self.metric = metric
        self._seed = seed
        self._resampler = None if metric.aggregate is None else Resampler(metric, seed)
        self._baseline: PyTree = None
        # Values of the baseline on redrawn examples, by number of examples and of draws.
        self._redrawn: dict[tuple[int, int | None], Values] = {}
        self.baseline_value = 0.0

    def keep_baseline(self, batches: Sequence[PyTree]) -> None:
        """Takes what the baseline scored, batch by batch.

        Raises:
            InputError: it is not finite, so nothing can be compared with it.
        """
        self._baseline = join(batches)
        bad, value = self._bad(self._baseline), self.value(self._baseline)
        if not bad and np.isfinite(value):
            self.baseline_value = value
            return
        where = f"on {bad} of {self.examples} examples" if bad else f"over all {self.examples} examples"
        found = _first_bad(self._baseline) if bad else value
        raise InputError(
            f"metric {self.metric.name!r} is {found} {where} for the "
            "untouched program; nothing can be compared with that. Remove those examples or mend the metric"
        )

    @property
    def examples(self) -> int:
        """How many the baseline was scored on."""
        return len(jax.tree_util.tree_leaves(self._baseline)[0])

    @property
    def method(self) -> str:
        """How the interval of a drop is found, as far as the baseline tells."""
        return MCNEMAR if self._resampler is None and is_binary(self._baseline) else BOOTSTRAP

    def value(self, statistics: PyTree) -> float:
        """The metric of these examples."""
        return float(statistics.mean()) if self._resampler is None else self._resampler.value(statistics)

    def per_example(self, scores: PyTree, mask: Mask) -> PyTree:
        """What the score gave for one batch as numpy arrays, without padding.

        Raises:
            InputError: its first axis does not count the examples.
        """
        if self._resampler is None:
            values = np.asarray(scores, dtype=np.float64)
            if values.shape != mask.shape:
                raise self._wrong_shape(f"scores of shape {values.shape}", len(mask))
            return values[mask]
        arrays = jax.tree_util.tree_map(_widen, scores)
        leaves = jax.tree_util.tree_leaves(arrays)
        for leaf in leaves:
            if leaf.ndim == 0 or len(leaf) != len(mask):
                raise self._wrong_shape(f"statistics of shape {leaf.shape}", len(mask))
        if not leaves:
            raise self._wrong_shape("no array", len(mask))
        return jax.tree_util.tree_map(lambda leaf: leaf[mask], arrays)

    def not_finite(self, candidate: PyTree) -> str | None:
        """What is NaN or infinite in a candidate's scores, in words; None when nothing is."""
        bad = self._bad(candidate)
        if bad:
            return (
                f"metric {self.metric.name!r} is NaN or infinite on {bad} of {_length(candidate)} examples, "
                "and finite on all of them for the baseline"
            )
        if self._resampler is None or np.isfinite(value := self.value(candidate)):
            return None
        return f"metric {self.metric.name!r} is {value} over {_length(candidate)} examples"

    def certain_drop(self, candidate: PyTree) -> float:
        """A drop on the first examples that is exceeded for certain, minus infinity where nothing is."""
        baseline = self._first(_length(candidate))
        larger = self.metric.larger_is_better
        if self._resampler is None:
            return certain_drop(baseline, candidate, larger_is_better=larger)
        differences = self._differences(candidate, _DRAWS_AT_A_LOOK)
        drop = self.drop(candidate)
        error = float(np.std(differences, ddof=1)) if np.isfinite(differences).all() else np.inf
        return drop - _CERTAIN_ERRORS * error if np.isfinite(drop) else -np.inf

    def drop(self, candidate: PyTree) -> float:
        """How much worse a candidate is on the first examples."""
        return self._worsening(self.value(self._first(_length(candidate))), self.value(candidate))

    def interval(self, candidate: PyTree) -> DropInterval:
        """The drop on all examples, with its interval."""
        if self._resampler is None:
            larger = self.metric.larger_is_better
            return drop_interval(self._baseline, candidate, larger_is_better=larger, seed=self._seed)
        low, high = percentiles(self._differences(candidate, None))
        return DropInterval(drop=self.drop(candidate), low=low, high=high, method=BOOTSTRAP)

    def _differences(self, candidate: PyTree, draws: int | None) -> Values:
        if self._resampler is None:
            raise TypeError("a mean over examples is not redrawn here")
        key = _length(candidate), draws
        if key not in self._redrawn:
            self._redrawn[key] = self._resampler.values(self._first(key[0]), draws)
        theirs = self._resampler.values(candidate, draws)
        with np.errstate(invalid="ignore"):  # a draw in which the metric is infinite for both
            return self._redrawn[key] - theirs if self.metric.larger_is_better else theirs - self._redrawn[key]

    def _worsening(self, baseline: float, candidate: float) -> float:
        return baseline - candidate if self.metric.larger_is_better else candidate - baseline

    def _first(self, examples: int) -> PyTree:
        return jax.tree_util.tree_map(lambda leaf: leaf[:examples], self._baseline)

    def _bad(self, statistics: PyTree) -> int:
        """How many examples have a number that is NaN or infinite."""
        bad = np.zeros(_length(statistics), bool)
        for leaf in jax.tree_util.tree_leaves(statistics):
            bad |= ~np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1)
        return int(bad.sum())

    def _wrong_shape(self, what: str, batch: int) -> InputError:
        return InputError(
            f"metric {self.metric.name!r} gives {what} for a batch of {batch}; "
            "it must give one score per example (do not average over the batch)"
        )


def join(batches: Sequence[PyTree]) -> PyTree:
    """What was scored in several batches as one."""
    return jax.tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *batches)


def _length(statistics: PyTree) -> int:
    return len(jax.tree_util.tree_leaves(statistics)[0])


def _first_bad(statistics: PyTree) -> float:
    leaves = (leaf[~np.isfinite(leaf)] for leaf in jax.tree_util.tree_leaves(statistics))
    return next(float(found[0]) for found in leaves if found.size)


def _widen(scores: Any) -> NDArray[Any]:
    """Floats in float64, whole numbers in int64, so that sums are exact."""
    array = np.asarray(scores)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array if array.dtype.kind == "b" else array.astype(np.float64)
