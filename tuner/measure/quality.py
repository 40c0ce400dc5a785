"""Quality: a split scored example by example, paired with the baseline's scores on the same examples."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tuner.constraints import Constraint
from tuner.data import Split
from tuner.measure.executable import Place, commit
from tuner.measure.judge import Judge, join
from tuner.measure.outputs import BaselineOutputs, RelativeError, Run, count_non_finite, floating, widen
from tuner.measure.spread import Spread
from tuner.measurement import FurtherMetric, Quality
from tuner.metrics import BASELINE, Metric

PyTree = Any

# A split up to this size stays on the device; a larger one is sent batch by batch, every time.
_RESIDENT_BYTES = 256 * 2**20
# Baseline outputs kept for the fidelity: the first batch, and more while they fit.
_KEPT_BYTES = 32 * 2**20
_FIRST_LOOK = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Inputs and labels of one call; the mask is False where the last batch was filled up."""

    inputs: tuple[PyTree, ...]
    labels: PyTree
    mask: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """What all metrics say of a candidate."""

    quality: Quality
    metrics: Mapping[str, FurtherMetric] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFinite:
    """Scores or outputs that are NaN or infinite where the baseline's are not."""

    message: str
    batch: int = 0  # the last one that was looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """Scoring that was ended early because the candidate certainly loses."""

    metric: str
    drop: float
    certain: float
    limit: float
    examples: int

    @property
    def message(self) -> str:
        """Why there is no point in going on."""
        return (
            f"{self.metric} drops by {self.drop:.4g} on {self.examples} examples, certainly by more "
            f"than {self.certain:.4g}; twice the allowed drop is {self.limit:.4g}"
        )


class Scorer:
    """One split and what the baseline scored on it.

    Args:
        split: the examples.
        batch_size: examples per call.
        metric: what quality is in; it is handed outputs in float32 where they are narrower.
        baseline: scored first, and kept as scores and as outputs of the first batches; run again for metrics that
            compare with outputs that were not kept.
        device: where inputs and labels go.
        seed: of the bootstrap.
        constraints: further metrics.
        again: whether the baseline can be run again beside a candidate.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        metric: Metric,
        baseline: Run,
        device: Place,
        seed: int = 0,
        constraints: Sequence[Constraint] = (),
        *,
        again: bool = True,
    ) -> None:
        self._split = split
        self._batch_size = batch_size
        self._device = device
        metrics = (metric, *(constraint.metric for constraint in constraints))
        self._constraints = tuple(constraints)
        self._judges = tuple(Judge(metric, seed) for metric in metrics)
        self._score = jax.jit(
            lambda outputs, labels, reference: (
                _all_scores(metrics, outputs, labels, reference),
                count_non_finite(outputs),
            )
        )
        self._references = (
            BaselineOutputs(baseline, again=again) if any(m.against == BASELINE for m in metrics) else None
        )
        self._resident: list[Batch] | None = None
        if _split_bytes(split) <= _RESIDENT_BYTES:
            self._resident = list(self._send())
        self._kept: list[list[NDArray[Any]]] = []
        # Per batch, how many baseline outputs are not finite (log-probabilities of minus infinity, say).
        self._non_finite: list[int] = []
        self._score_baseline(baseline)

    @property
    def first_batch(self) -> Batch:
        """The first batch, on the device."""
        return next(self.batches())

    def batches(self) -> Iterator[Batch]:
        """Every batch, on the device."""
        return iter(self._resident) if self._resident is not None else self._send()

    def inputs_of(self, number: int) -> tuple[PyTree, ...]:
        """The inputs of the batch of that number, on the device."""
        return next(batch for position, batch in enumerate(self.batches()) if position == number).inputs

    def baseline_scored(self) -> Scored:
        """The baseline's own quality: no drop, by definition."""
        first, *others = self._judges
        quality = Quality(
            value=first.baseline_value,
            drop=0.0,
            drop_low=0.0,
            drop_high=0.0,
            examples=first.examples,
            method=first.method,
            fidelity=0.0,
        )
        metrics = {
            judge.metric.name: FurtherMetric(
                value=judge.baseline_value, drop=0.0, drop_low=0.0, drop_high=0.0, method=judge.method, allowed=allowed
            )
            for judge, allowed in zip(others, self._allowed(), strict=True)
        }
        return Scored(quality=quality, metrics=MappingProxyType(metrics))

    def non_finite(self, outputs: PyTree) -> str | None:
        """What is not finite in a candidate's outputs of the first batch although it is in the baseline's, or None."""
        bad, total = 0, 0
        mask = self.first_batch.mask
        for leaf, reference in zip(floating(outputs, mask), self._kept[0], strict=True):
            comparable = np.isfinite(reference)
            bad += int((~np.isfinite(leaf) & comparable).sum())
            total += int(comparable.sum())
        if not bad:
            return None
        return f"{bad} of {total} outputs of one batch are NaN or infinite where the baseline's are finite"

    def measure(
        self, run: Run | Spread, limits: Mapping[str, float] = MappingProxyType({})
    ) -> Scored | NonFinite | GivenUp:
        """The quality of a candidate, or why there is none.

        Args:
            run: from the inputs of one batch to its outputs, or what runs several batches at once.
            limits: metric -> drop; one that is certainly exceeded ends the scoring. Looked at after 256 examples,
                whenever they have doubled, and at the end.
        """
        scores: list[list[PyTree]] = [[] for _ in self._judges]
        error, look_at, seen = RelativeError(), _FIRST_LOOK, 0
        for number, (batch_scores, non_finite) in enumerate(self._scored(run, error)):
            if non_finite > self._non_finite[number]:
                return NonFinite(
                    message=f"{non_finite} outputs of batch {number} are NaN or infinite, "
                    f"{self._non_finite[number]} of the baseline's",
                    batch=number,
                )
            for kept, new in zip(scores, batch_scores, strict=True):
                kept.append(new)
            seen = min(seen + self._batch_size, len(self._split))
            if seen >= look_at or seen == len(self._split):
                look_at = 2 * seen
                failed = self._look([join(kept) for kept in scores], seen, number, limits)
                if failed is not None:
                    return failed
        return self._all([join(kept) for kept in scores], error.value)

    def _look(
        self, candidate: Sequence[PyTree], examples: int, batch: int, limits: Mapping[str, float]
    ) -> NonFinite | GivenUp | None:
        for judge, scores in zip(self._judges, candidate, strict=True):
            message = judge.not_finite(scores)
            if message is not None:
                return NonFinite(message=message, batch=batch)
        for judge, scores in zip(self._judges, candidate, strict=True):
            limit = limits.get(judge.metric.name)
            if limit is not None and (certain := judge.certain_drop(scores)) > limit:
                drop = judge.drop(scores)
                return GivenUp(metric=judge.metric.name, drop=drop, certain=certain, limit=limit, examples=examples)
        return None

    def _all(self, candidate: Sequence[PyTree], fidelity: float) -> Scored:
        """The quality and every further metric."""
        (first, *others), (scores, *further) = self._judges, candidate
        drop = first.interval(scores)
        quality = Quality(
            value=first.value(scores),
            drop=drop.drop,
            drop_low=drop.low,
            drop_high=drop.high,
            examples=first.examples,
            method=drop.method,
            fidelity=fidelity,
        )
        metrics = {}
        for judge, its_scores, allowed in zip(others, further, self._allowed(), strict=True):
            drop = judge.interval(its_scores)
            metrics[judge.metric.name] = FurtherMetric(
                value=judge.value(its_scores),
                drop=drop.drop,
                drop_low=drop.low,
                drop_high=drop.high,
                method=drop.method,
                allowed=allowed,
            )
        return Scored(quality=quality, metrics=MappingProxyType(metrics))

    def _allowed(self) -> list[float]:
        """The drop that each constraint allows, NaN where it allows any."""
        limits = [constraint.max_drop for constraint in self._constraints]
        values = [judge.baseline_value for judge in self._judges[1:]]
        return [math.nan if drop is None else drop.allowed(value) for drop, value in zip(limits, values, strict=True)]

    def _score_baseline(self, run: Run) -> None:
        scores: list[list[PyTree]] = [[] for _ in self._judges]
        kept_bytes = 0
        for batch in self.batches():
            outputs = run(batch.inputs)
            if not self._kept or kept_bytes < _KEPT_BYTES:
                self._kept.append(floating(outputs, batch.mask))
                kept_bytes += sum(leaf.nbytes for leaf in self._kept[-1])
            if self._references is not None:
                self._references.keep(outputs)
            batch_scores, non_finite = self._score(outputs, batch.labels, outputs)
            for kept, new in zip(scores, self._per_example(batch_scores, batch.mask), strict=True):
                kept.append(new)
            self._non_finite.append(int(non_finite))
        for judge, kept in zip(self._judges, scores, strict=True):
            judge.keep_baseline(kept)

    def _scored(self, run: Run | Spread, error: "RelativeError") -> Iterator[tuple[list[PyTree], int]]:
        """Scores and number of non-finite outputs batch by batch, one batch behind what runs on the device."""
        pending: tuple[Any, Any, NDArray[np.bool_]] | None = None
        for number, (batch, outputs) in enumerate(self._run(run)):
            reference = None if self._references is None else self._references.of(number, batch.inputs)
            scores, non_finite = self._score(outputs, batch.labels, reference)
            if number < len(self._kept):
                error.add(floating(outputs, batch.mask), self._kept[number])
            if pending is not None:
                yield self._per_example(pending[0], pending[2]), int(pending[1])
            pending = scores, non_finite, batch.mask
        if pending is not None:
            yield self._per_example(pending[0], pending[2]), int(pending[1])

    def _run(self, run: Run | Spread) -> Iterator[tuple[Batch, PyTree]]:
        """Every batch with its outputs."""
        if not isinstance(run, Spread):
            return ((batch, run(batch.inputs)) for batch in self.batches())
        batches, again = itertools.tee(self.batches())
        return zip(batches, run.outputs(batch.inputs for batch in again), strict=True)

    def _per_example(self, scores: Sequence[Any], mask: NDArray[np.bool_]) -> list[PyTree]:
        return [judge.per_example(given, mask) for judge, given in zip(self._judges, scores, strict=True)]

    def _send(self) -> Iterator[Batch]:
        for inputs, labels, mask in self._split.batches(self._batch_size):
            inputs, labels = commit((inputs, labels), self._device)
            yield Batch(inputs=inputs, labels=labels, mask=mask)


def _split_bytes(split: Split) -> int:
    leaves = jax.tree_util.tree_leaves((split.inputs, split.labels))
    return sum(int(leaf.nbytes) for leaf in leaves)


def _all_scores(metrics: Sequence[Metric], outputs: PyTree, labels: PyTree, reference: PyTree) -> list[Any]:
    """What each metric says of one batch; `reference` are the baseline's outputs where a metric reads them."""
    outputs, reference = widen(outputs), widen(reference)
    return [metric.score(outputs, reference if metric.against == BASELINE else labels) for metric in metrics]
