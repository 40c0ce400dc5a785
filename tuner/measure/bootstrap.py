"""Bootstrap of metrics that are no mean over examples: examples are drawn anew, for both programs alike, and aggregated.

A draw of n examples out of n, with replacement, gives one value of the metric for the baseline and one for the candidate;
the 2.5 % and 97.5 % percentiles of their differences are the interval. Examples are taken as independent, and like every
bootstrap it is too narrow for a handful of them. Draws depend on the seed and the number of examples alone, so what the
baseline has in them is computed once.

An aggregate that JAX can trace runs on many draws at once; any other runs draw by draw, on fewer.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tuner.errors import InputError, error_line
from tuner.metrics import Metric

PyTree = Any
Values = NDArray[np.float64]

_DRAWS = 2000
_DRAWS_ONE_BY_ONE = 400
_FEWEST_DRAWS = 200
# Examples drawn in all: beyond that fewer draws are made, so that large splits do not take minutes.
_MOST_DRAWN = 200_000_000
# Numbers gathered at once.
_CHUNK = 8_000_000
# How near one traced value must come to the untraced one to be believed.
_TOLERANCE = 1e-3


class Resampler:
    """One metric's aggregate on redrawn examples.

    Args:
        metric: with an aggregate.
        seed: of the draws.
    """

    def __init__(self, metric: Metric, seed: int) -> None:
        if metric.aggregate is None:
            raise ValueError(f"metric {metric.name!r} has no aggregate")
        self._name = metric.name
        self._aggregate: Callable[[PyTree], Any] = metric.aggregate
        self._seed = seed
        self._traced: bool | None = None

    def value(self, statistics: PyTree) -> float:
        """The metric of all examples.

        Raises:
            InputError: the aggregate fails, or gives something else than one number.
        """
        try:
            found = self._aggregate(statistics)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"aggregate of metric {self._name!r} fails: {error_line(error)}; it is called with what the score gave, "
                "as numpy arrays whose first axis counts the examples"
            ) from error
        number = np.asarray(found)
        if number.size != 1 or number.dtype.kind not in "biuf":
            raise InputError(
                f"aggregate of metric {self._name!r} gives {number.dtype}{number.shape}; it must give one number"
            )
        return float(number.reshape(()))

    def values(self, statistics: PyTree, draws: int | None = None) -> Values:
        """The metric of each redrawn set of examples.

        Args:
            statistics: numpy arrays with a leading example axis.
            draws: how many; as many as are worth it when None.
        """
        examples = len(jax.tree_util.tree_leaves(statistics)[0])
        traced = self._can_be_traced(statistics)
        most = _DRAWS if traced else _DRAWS_ONE_BY_ONE
        wanted = max(_FEWEST_DRAWS, min(most, _MOST_DRAWN // examples)) if draws is None else draws
        generator = np.random.default_rng(self._seed)
        size = _chunk(statistics) if traced else 1
        found: list[Values] = []
        while sum(map(len, found)) < wanted:
            numbers = generator.integers(examples, size=(size, examples), dtype=np.int32)
            found.append(self._many(statistics, numbers) if traced else self._one(statistics, numbers[0]))
        return np.concatenate(found)[:wanted]

    @cached_property
    def _vectorized(self) -> Callable[[PyTree, Any], Any]:
        def one(statistics: PyTree, numbers: Any) -> Any:
            return self._aggregate(jax.tree_util.tree_map(lambda leaf: leaf[numbers], statistics))

        return jax.jit(jax.vmap(one, in_axes=(None, 0)))

    def _many(self, statistics: PyTree, numbers: NDArray[np.int32]) -> Values:
        return np.asarray(self._vectorized(_narrow(statistics), numbers), np.float64).reshape(-1)

    def _one(self, statistics: PyTree, numbers: NDArray[np.int32]) -> Values:
        return np.array([self.value(jax.tree_util.tree_map(lambda leaf: leaf[numbers], statistics))])

    def _can_be_traced(self, statistics: PyTree) -> bool:
        """Whether JAX can run the aggregate, and gets what it gives on plain arrays."""
        if self._traced is None:
            examples = len(jax.tree_util.tree_leaves(statistics)[0])
            everything = np.arange(examples, dtype=np.int32)[None]
            try:
                (found,) = self._many(statistics, everything)
            except Exception:  # noqa: BLE001  whatever tracing makes of code that was not written for it
                self._traced = False
            else:
                expected = self.value(statistics)
                self._traced = bool(np.isclose(found, expected, rtol=_TOLERANCE, equal_nan=True))
        return self._traced


def percentiles(differences: Values, confidence: float = 0.95) -> tuple[float, float]:
    """The interval that the differences of many draws span; unbounded where half of them are no numbers."""
    finite = differences[np.isfinite(differences)]
    if 2 * len(finite) < len(differences):
        return -np.inf, np.inf
    tail = 50 * (1 - confidence)
    low, high = np.percentile(finite, [tail, 100 - tail])
    return float(low), float(high)


def _chunk(statistics: PyTree) -> int:
    """Draws made at once: a power of two, so that few programs are compiled."""
    numbers = sum(leaf.size for leaf in jax.tree_util.tree_leaves(statistics))
    most: int = max(1, min(_DRAWS, _CHUNK // max(1, numbers)))
    return 1 << (most.bit_length() - 1)


def _narrow(statistics: PyTree) -> PyTree:
    """The arrays as JAX holds them without x64."""
    narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(narrow.get(leaf.dtype, leaf.dtype)), statistics)
