"""Observers: from what calibration saw of a layer's activations to their scale and zero point. Plain numpy.

Values are counted in bins by the upper half of their float32 bits, so that one pass, without knowing the range beforehand,
tells each value to 1 in 128. The three observers:

    max      the whole range: nothing is cut off, and one outlier coarsens everything else
    p99.9    cuts off the largest one in a thousand
    mse      cuts off where the mean squared error, of rounding and of cutting together, is least
"""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from search_spaces import Format

_BINS = 1 << 16
_SIGN = 1 << 15
_INFINITE = 0x7F80
_SHARE = 0.999
_CANDIDATES = np.linspace(0.2, 1.0, 81)
_SMALLEST_SCALE = 2.0**-126


@dataclass
class Observed:
    """What was seen of one array in all calibration batches: its range, and how often which value."""

    smallest: float = np.inf
    largest: float = -np.inf
    non_finite: int = 0
    executions: int = 0
    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    # By the weight's precision: sums over executions of the mean error of each output channel.
    errors: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def add(self, extremes: Any, values: Any, errors: dict[str, Any]) -> None:
        """Takes in one execution.

        Args:
            extremes: smallest and largest finite value, and how many are not finite.
            values: all of them in float32, None where their distribution is not asked for.
            errors: mean error of each output channel, by the weight's precision.
        """
        smallest, largest, non_finite = np.asarray(extremes, np.float64).tolist()
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)
        self.non_finite += int(non_finite)
        self.executions += 1
        if values is not None:
            bits = np.asarray(values, np.float32).ravel().view(np.uint32) >> 16
            self._add_bins(np.bincount(bits, minlength=_BINS))
        for key, error in errors.items():
            self.errors[key] = self.errors.get(key, np.zeros(1)) + np.asarray(error, np.float64).ravel()

    def merged(self, other: "Observed") -> "Observed":
        """Both taken together."""
        if not (self.executions and other.executions):
            return self if self.executions else other
        both = Observed(
            smallest=min(self.smallest, other.smallest),
            largest=max(self.largest, other.largest),
            non_finite=self.non_finite + other.non_finite,
            executions=self.executions + other.executions,
            errors={key: self.errors[key] + other.errors[key] for key in self.errors if key in other.errors},
        )
        for bins in (self.bins, other.bins):
            both._add_bins(bins)
        return both

    def _add_bins(self, bins: NDArray[Any]) -> None:
        if len(bins):
            self.bins = bins.astype(np.int64) if not len(self.bins) else self.bins + bins


def choose_scale(observed: Observed, format: Format, observer: str, symmetric: bool) -> tuple[float, int]:
    """Scale and zero point (0 where symmetric) of values like those that were observed."""
    low, high = min(observed.smallest, 0.0), max(observed.largest, 0.0)
    if observer != "max":
        values, counts = _distribution(observed)
        cut = _percentile if observer == "p99.9" else _least_error
        low, high = cut(values, counts, low, high, format, symmetric)
    return _scale_of(low, high, format, symmetric)


def _scale_of(low: float, high: float, format: Format, symmetric: bool) -> tuple[float, int]:
    if low == high:
        return 1.0, 0 if symmetric else round(-format.max - 1)
    if symmetric:
        return _short(max(max(-low, high) / format.max, _SMALLEST_SCALE)), 0
    scale = _short(max((high - low) / (2 * format.max + 1), _SMALLEST_SCALE))
    return scale, int(np.rint(-format.max - 1 - low / scale))


def _short(value: float) -> float:
    """The nearest float32, in the digits that it takes to tell it."""
    return float(f"{np.float32(value):.9g}")


def _distribution(observed: Observed) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values in ascending order and how often each was seen; those near zero count as zero."""
    order = np.concatenate([np.arange(_SIGN + _INFINITE - 1, _SIGN - 1, -1), np.arange(_INFINITE)])
    counts = observed.bins[order].astype(np.float64)
    middle = ((order.astype(np.uint32) << 16) | 0x8000).view(np.float32).astype(np.float64)
    middle = np.where(np.abs(middle) < 2.0**-120, 0.0, middle)
    seen = counts > 0
    return np.clip(middle[seen], observed.smallest, observed.largest), counts[seen]


def _percentile(
    values: NDArray[Any], counts: NDArray[Any], low: float, high: float, format: Format, symmetric: bool
) -> tuple[float, float]:
    if symmetric:
        order = np.argsort(np.abs(values), kind="stable")
        limit = _quantile(np.abs(values)[order], counts[order], _SHARE)
        return -limit, limit
    return min(_quantile(values, counts, 1 - _SHARE), 0.0), max(_quantile(values, counts, _SHARE), 0.0)


def _quantile(values: NDArray[Any], counts: NDArray[Any], share: float) -> float:
    reached = np.cumsum(counts)
    return float(values[min(int(np.searchsorted(reached, share * reached[-1])), len(values) - 1)])


def _least_error(
    values: NDArray[Any], counts: NDArray[Any], low: float, high: float, format: Format, symmetric: bool
) -> tuple[float, float]:
    if symmetric:
        low, high = -max(-low, high), max(-low, high)
    errors = [_error(values, counts, share * low, share * high, format, symmetric) for share in _CANDIDATES]
    best = _CANDIDATES[len(errors) - 1 - int(np.argmin(errors[::-1]))]  # of equals the widest
    return float(best * low), float(best * high)


def _error(
    values: NDArray[Any], counts: NDArray[Any], low: float, high: float, format: Format, symmetric: bool
) -> float:
    """Squared error of rounding what is inside, as if evenly spread between two steps, and of cutting what is not."""
    scale, _ = _scale_of(low, high, format, symmetric)
    beyond = values - np.clip(values, low, high)
    step = np.full(values.shape, scale)
    if format.kind == "float":
        info: Any = jnp.finfo(format.dtype)  # type: ignore[no-untyped-call]  # JAX has no types there
        steps = np.abs(values) / scale
        exponent = np.floor(np.log2(np.maximum(steps, float(info.smallest_normal))))
        step = scale * 2.0 ** (exponent - info.nmant)
    rounding = np.minimum(values**2, step**2 / 12)  # below half a step the value itself is lost
    return float(np.sum(counts * np.where(beyond != 0, beyond**2, rounding)))
