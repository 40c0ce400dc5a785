"""Accuracy: how well a search foresaw what it then measured."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.measurement import Measurement
from tuner.store import CandidateRecord

_FEWEST = 3
# A policy that is no faster than the program as written is of little interest, and how slow it is as well.
_RATIO = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """Predictions against measurements."""

    count: int
    spearman: float  # NaN where all are equal
    median_error: float  # relative


def accuracy_of(predicted: Sequence[float], measured: Sequence[float]) -> Accuracy | None:
    """How well numbers foresaw others; None for fewer than three."""
    if len(measured) < _FEWEST:
        return None
    ours, theirs = np.array(predicted, float), np.array(measured, float)
    errors = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)
    return Accuracy(
        count=len(theirs), spearman=_correlation(_ranks(ours), _ranks(theirs)), median_error=float(np.median(errors))
    )


def accuracy_note(candidates: Iterable[CandidateRecord]) -> str | None:
    """A sentence on what was predicted before it was measured; None where there is too little of it."""
    pairs = [(c.predicted, c.outcome) for c in candidates if c.predicted is not None and c.label != "baseline"]
    found = [(predicted, outcome) for predicted, outcome in pairs if isinstance(outcome, Measurement)]
    fast = [(p, m) for p, m in found if m.latency.ratio <= _RATIO]
    chosen, which = (fast, " no slower than the baseline") if len(fast) >= _FEWEST else (found, "")
    latency = accuracy_of(
        [p.latency for p, _ in chosen if p.latency is not None],
        [m.latency.ratio for p, m in chosen if p.latency is not None],
    )
    told = [(p.fidelity, m.quality.fidelity) for p, m in found if p.fidelity and m.quality.fidelity > 1e-7]
    fidelity = accuracy_of([ours for ours, _ in told], [theirs for _, theirs in told])
    parts = []
    if latency is not None:
        parts.append(_text("latency", latency, f"policies{which}"))
    if fidelity is not None:
        parts.append(_text("fidelity", fidelity, "policies that change the outputs"))
    return f"Predicted before it was measured: {'; '.join(parts)}." if parts else None


def _text(what: str, accuracy: Accuracy, which: str) -> str:
    order = "-" if math.isnan(accuracy.spearman) else f"{accuracy.spearman:.2f}"
    return f"{what} with Spearman {order}, median error {accuracy.median_error:.1%}, of {accuracy.count} {which}"


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The place of each value, equal ones at their mean place."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    places: NDArray[np.float64] = (ends - (counts - 1) / 2.0)[inverse]
    return places


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    first, second = first - first.mean(), second - second.mean()
    size = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size else math.nan
