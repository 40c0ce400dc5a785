"""Predict: what a policy that nobody measured will be, from what its layers do alone and what was measured since.

An objective is a constant, plus one cost per layer and choice. Times and bytes add up; errors of independent sources add
up in squares. Measured policies correct that: a linear regression on what the costs leave over, with a slope for all of
them, a term per layer and choice, and one per pair of neighbors (casts between them, rewrites across them), each held near
zero by how far such a cost can be trusted, and each measurement weighted by its interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Picks = NDArray[np.int64]
Options = Mapping[str, Sequence[str]]

SUM, ROOT, LOG_ROOT = "sum", "root", "log root"
LINKS = (SUM, ROOT, LOG_ROOT)

# How far a cost is trusted: the standard deviation of what is true of one layer alone, of all together, of neighbors.
_ALONE, _TOGETHER, _NEIGHBORS = 0.1, 0.2, 0.1
_ERROR_ALONE, _ERROR_TOGETHER = 0.3, 1.0
# With more parameters than these, neighbors are not looked at: their terms would be too many.
_MOST_WITH_NEIGHBORS = 100
_TINY = 1e-300
# The square of an error that is the order of additions.
_ROUNDING = 1e-14


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What an objective is expected to be.

    Attributes:
        base: the constant.
        costs: parameter -> choice -> cost; what is missing costs nothing.
        link: "sum": base + slope x the sum of the costs. "root": of their root, for costs that are squared errors.
            "log root": of the logarithm of that.
        slope: negative for what is to be made large.
    """

    base: float = 0.0
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    link: str = SUM
    slope: float = 1.0

    def tables(self, options: Options) -> list[Floats]:
        """Per parameter one cost per choice."""
        return [
            np.array([self.costs.get(name, {}).get(choice, 0.0) for choice in choices], float)
            for name, choices in options.items()
        ]


class Predictor:
    """One objective: what is estimated of it, corrected by what was measured.

    Args:
        options: parameter -> its choices.
        estimate: None where nothing is known: all is learned then.
    """

    def __init__(self, options: Options, estimate: Estimate | None) -> None:
        self._sizes = [len(choices) for choices in options.values()]
        self._starts = np.concatenate(([0], np.cumsum(self._sizes)))[:-1].astype(int)
        self._estimate = estimate if estimate is not None else Estimate()
        self._known = estimate is not None
        self._tables = self._estimate.tables(options)
        self._flat = np.concatenate(self._tables) if self._tables else np.zeros(0)
        self._mean, self._scale = 0.0, 1.0
        self._spread: Floats = self._trust()
        self._features: Floats | None = None
        self._factor: Floats = np.zeros((0, 0))
        self._weights: Floats = np.zeros(0)

    def fit(self, picks: Picks, values: Floats, noise: Floats) -> None:
        """Learns from measurements.

        Args:
            picks: one row of option numbers per policy.
            values: what each was measured to be.
            noise: the standard deviation of each.
        """
        if not len(values):
            return
        if not self._known:
            self._mean, self._scale = float(values.mean()), float(values.std()) or 1.0
        self._features = self._features_of(picks)
        floor = 1e-4 * (float(np.abs(values).max()) or 1.0)
        kernel = self._features @ self._features.T + np.diag(np.maximum(noise, floor) ** 2)
        self._factor = np.asarray(np.linalg.inv(kernel), np.float64)
        self._weights = self._features.T @ (self._factor @ (values - self._prior(picks)))

    def predict(self, picks: Picks) -> tuple[Floats, Floats]:
        """(expected value, standard deviation) of each policy."""
        features, prior = self._features_of(picks), self._prior(picks)
        variance = np.einsum("ij,ij->i", features, features)
        if self._features is None:
            return prior, np.sqrt(variance)
        shared = features @ self._features.T
        variance = variance - np.einsum("ij,jk,ik->i", shared, self._factor, shared)
        return prior + features @ self._weights, np.sqrt(np.maximum(variance, 0.0))

    def costs(self) -> list[Floats]:
        """Per parameter one cost per choice, as corrected, in the direction of the objective; for a root, squares."""
        own = self._weights[2 : 2 + len(self._flat)] if self._features is not None else np.zeros(len(self._flat))
        if self._estimate.link == SUM:
            slope = self._estimate.slope
            shared = 1.0 + _TOGETHER * (float(self._weights[1]) if self._features is not None and self._known else 0.0)
            corrected = slope * shared * self._flat + own * self._trusted
        else:
            corrected = self._flat * np.maximum(1.0 + _ERROR_ALONE * own, 0.1) ** 2
        return np.split(corrected, self._starts[1:]) if self._sizes else []

    @property
    def is_root(self) -> bool:
        """True where the costs are squares that are added up before a root is taken."""
        return self._estimate.link != SUM

    @property
    def _trusted(self) -> Floats:
        return self._spread * (1.0 if self._known else self._scale)

    def _prior(self, picks: Picks) -> Floats:
        if not self._known:
            return np.full(len(picks), self._mean)
        return self._estimate.base + self._estimate.slope * self._linked(picks)

    def _linked(self, picks: Picks) -> Floats:
        total: Floats = self._chosen(picks).sum(axis=1)
        if self._estimate.link == ROOT:
            total = np.sqrt(total)
        return total if self._estimate.link != LOG_ROOT else 0.5 * np.log(np.maximum(total, _ROUNDING))

    def _chosen(self, picks: Picks) -> Floats:
        chosen: Floats = self._flat[self._starts + picks] if self._sizes else np.zeros((len(picks), 0))
        return chosen

    def _trust(self) -> Floats:
        """Per parameter and choice how far its cost may be off."""
        if not self._known:
            return np.full(len(self._flat), 1.0 / np.sqrt(max(1, len(self._sizes))))
        if self._estimate.link != SUM:
            return np.full(len(self._flat), _ERROR_ALONE)
        ranges = (
            np.concatenate([np.full(len(one), np.ptp(one)) for one in self._tables]) if self._tables else self._flat
        )
        return np.asarray(abs(self._estimate.slope) * _ALONE * (np.abs(self._flat) + ranges))

    def _features_of(self, picks: Picks) -> Floats:
        """Columns: a constant, what all costs share, one per parameter and choice, one per pair of neighbors."""
        count, link, slope = len(picks), self._estimate.link, abs(self._estimate.slope)
        own = self._trusted[self._starts + picks] if self._sizes else np.zeros((count, 0))
        if link != SUM:
            # What one error does to a root grows with its share in it.
            chosen = self._chosen(picks)
            share = chosen / np.maximum(chosen.sum(axis=1, keepdims=True), _TINY)
            size = self._linked(picks)[:, None] if link == ROOT else 1.0
            own = own * slope * size * share
        columns = np.zeros((count, len(self._flat)))
        if self._sizes:
            np.put_along_axis(columns, self._starts + picks, own, axis=1)
        constant, shared = self._common(picks, slope)
        parts = [constant[:, None], shared[:, None], columns]
        if link == SUM and 1 < len(self._sizes) <= _MOST_WITH_NEIGHBORS:
            parts.append(self._neighbors(picks, own))
        return np.concatenate(parts, axis=1)

    def _common(self, picks: Picks, slope: float) -> tuple[Floats, Floats]:
        """The columns of what is off by the same for all policies, and of what all costs have in common."""
        if not self._known:
            return np.full(len(picks), self._scale), np.zeros(len(picks))
        linked = self._linked(picks)
        if self._estimate.link == LOG_ROOT:
            return np.full(len(picks), _ERROR_TOGETHER), np.zeros(len(picks))
        if self._estimate.link == ROOT:
            return np.zeros(len(picks)), _ERROR_TOGETHER * slope * linked
        first = self._linked(np.zeros((1, picks.shape[1]), np.int64))[0]
        return np.full(len(picks), 0.02 * abs(self._estimate.base + first)), _TOGETHER * slope * linked

    def _neighbors(self, picks: Picks, own: Floats) -> Floats:
        """One column per pair of choices of neighbors."""
        pairs = [a * b for a, b in zip(self._sizes[:-1], self._sizes[1:], strict=True)]
        starts = np.concatenate(([0], np.cumsum(pairs)))
        columns = np.zeros((len(picks), int(starts[-1])))
        positions = starts[:-1] + picks[:, :-1] * np.array(self._sizes[1:]) + picks[:, 1:]
        scale = _NEIGHBORS / _ALONE if self._known else 0.3
        np.put_along_axis(columns, positions.astype(int), scale * 0.5 * np.minimum(own[:, :-1], own[:, 1:]), axis=1)
        return columns
