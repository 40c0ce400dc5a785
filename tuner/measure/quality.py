"""Quality: a split scored example by example, paired with the baseline's scores on the same examples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tuner.data import Split
from tuner.errors import InputError
from tuner.measure.executable import Place, commit
from tuner.measure.intervals import BOOTSTRAP, MCNEMAR, Scores, certain_drop, drop_interval
from tuner.measure.outputs import RelativeError, count_non_finite, floating, widen
from tuner.measurement import Quality
from tuner.metrics import Metric

PyTree = Any
# From the inputs of one batch to its outputs.
Run = Callable[[tuple[PyTree, ...]], PyTree]
# Told the scores of baseline and candidate so far; True ends the scoring.
GiveUp = Callable[[Scores, Scores], bool]

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
class NonFinite:
    """Scores or outputs that are NaN or infinite where the baseline's are not."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """Scoring that was ended early because the candidate certainly loses."""

    drop: float
    certain: float
    examples: int


class Scorer:
    """One split and what the baseline scored on it.

    Args:
        split: the examples.
        batch_size: examples per call.
        metric: gives one score per example; it is handed outputs in float32 where they are narrower.
        baseline: scored first, and kept as scores and as outputs of the first batches.
        device: where inputs and labels go.
        seed: of the bootstrap.
    """

    def __init__(
        self, split: Split, batch_size: int, metric: Metric, baseline: Run, device: Place, seed: int = 0
    ) -> None:
        self._split = split
        self._batch_size = batch_size
        self._metric = metric
        self._device = device
        self._seed = seed
        self._score = jax.jit(lambda outputs, labels: (metric.score(widen(outputs), labels), count_non_finite(outputs)))
        self._resident: list[Batch] | None = None
        if _split_bytes(split) <= _RESIDENT_BYTES:
            self._resident = list(self._send())
        self._kept: list[list[NDArray[Any]]] = []
        # Per batch, how many baseline outputs are not finite (log-probabilities of minus infinity, say).
        self._non_finite: list[int] = []
        self.baseline_scores = self._score_baseline(baseline)

    @property
    def first_batch(self) -> Batch:
        """The first batch, on the device."""
        return next(self.batches())

    def batches(self) -> Iterator[Batch]:
        """Every batch, on the device."""
        return iter(self._resident) if self._resident is not None else self._send()

    def baseline_quality(self) -> Quality:
        """The baseline's own quality: no drop, by definition."""
        binary = bool(np.isin(self.baseline_scores, (0, 1)).all())
        return Quality(
            value=float(self.baseline_scores.mean()),
            drop=0.0,
            drop_low=0.0,
            drop_high=0.0,
            examples=len(self.baseline_scores),
            method=MCNEMAR if binary else BOOTSTRAP,
            fidelity=0.0,
        )

    def non_finite(self, outputs: PyTree) -> NonFinite | None:
        """What is not finite in a candidate's outputs of the first batch although it is in the baseline's, or None."""
        bad, total = 0, 0
        mask = self.first_batch.mask
        for leaf, reference in zip(floating(outputs, mask), self._kept[0], strict=True):
            comparable = np.isfinite(reference)
            bad += int((~np.isfinite(leaf) & comparable).sum())
            total += int(comparable.sum())
        if not bad:
            return None
        return NonFinite(
            message=f"{bad} of {total} outputs of one batch are NaN or infinite where the baseline's are finite"
        )

    def measure(self, run: Run, give_up: GiveUp | None = None) -> Quality | NonFinite | GivenUp:
        """The quality of a candidate, or why there is none.

        Args:
            run: from the inputs of one batch to its outputs.
            give_up: looked at after 256 examples, whenever they have doubled, and at the end.
        """
        scores: list[Scores] = []
        error, look_at, seen = RelativeError(), _FIRST_LOOK, 0
        for number, (batch_scores, non_finite) in enumerate(self._scored(run, error)):
            if non_finite > self._non_finite[number]:
                return NonFinite(
                    message=f"{non_finite} outputs of batch {number} are NaN or infinite, "
                    f"{self._non_finite[number]} of the baseline's"
                )
            scores.append(batch_scores)
            seen += len(batch_scores)
            if seen >= look_at or seen == len(self._split):
                look_at = 2 * seen
                failed = self._look(np.concatenate(scores), give_up)
                if failed is not None:
                    return failed
        return self._quality(np.concatenate(scores), error.value)

    def _look(self, candidate: Scores, give_up: GiveUp | None) -> NonFinite | GivenUp | None:
        baseline = self.baseline_scores[: len(candidate)]
        bad = int((~np.isfinite(candidate)).sum())
        if bad:
            return NonFinite(
                message=f"metric {self._metric.name!r} is NaN or infinite on {bad} of {len(candidate)} examples, "
                "and finite on all of them for the baseline"
            )
        if give_up is None or not give_up(baseline, candidate):
            return None
        larger = self._metric.larger_is_better
        return GivenUp(
            drop=drop_interval(baseline, candidate, larger_is_better=larger).drop,
            certain=certain_drop(baseline, candidate, larger_is_better=larger),
            examples=len(candidate),
        )

    def _quality(self, candidate: Scores, fidelity: float) -> Quality:
        drop = drop_interval(
            self.baseline_scores, candidate, larger_is_better=self._metric.larger_is_better, seed=self._seed
        )
        return Quality(
            value=float(candidate.mean()),
            drop=drop.drop,
            drop_low=drop.low,
            drop_high=drop.high,
            examples=len(candidate),
            method=drop.method,
            fidelity=fidelity,
        )

    def _score_baseline(self, run: Run) -> Scores:
        scores: list[Scores] = []
        kept_bytes = 0
        for batch in self.batches():
            outputs = run(batch.inputs)
            if not self._kept or kept_bytes < _KEPT_BYTES:
                self._kept.append(floating(outputs, batch.mask))
                kept_bytes += sum(leaf.nbytes for leaf in self._kept[-1])
            batch_scores, non_finite = self._score(outputs, batch.labels)
            scores.append(self._per_example(batch_scores, batch.mask))
            self._non_finite.append(int(non_finite))
        together = np.concatenate(scores)
        bad = np.flatnonzero(~np.isfinite(together))
        if len(bad):
            raise InputError(
                f"metric {self._metric.name!r} is {together[bad[0]]} on {len(bad)} of {len(together)} examples for the "
                "untouched program; nothing can be compared with that. Remove those examples or mend the metric"
            )
        return together

    def _scored(self, run: Run, error: "RelativeError") -> Iterator[tuple[Scores, int]]:
        """Scores and number of non-finite outputs batch by batch, one batch behind what runs on the device."""
        pending: tuple[Any, Any, NDArray[np.bool_]] | None = None
        for number, batch in enumerate(self.batches()):
            outputs = run(batch.inputs)
            scores, non_finite = self._score(outputs, batch.labels)
            if number < len(self._kept):
                error.add(floating(outputs, batch.mask), self._kept[number])
            if pending is not None:
                yield self._per_example(pending[0], pending[2]), int(pending[1])
            pending = scores, non_finite, batch.mask
        if pending is not None:
            yield self._per_example(pending[0], pending[2]), int(pending[1])

    def _per_example(self, scores: Any, mask: NDArray[np.bool_]) -> Scores:
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != mask.shape:
            raise InputError(
                f"metric {self._metric.name!r} gives scores of shape {values.shape} for a batch of {len(mask)}; "
                "it must give one score per example (do not average over the batch)"
            )
        return values[mask]

    def _send(self) -> Iterator[Batch]:
        for inputs, labels, mask in self._split.batches(self._batch_size):
            inputs, labels = commit((inputs, labels), self._device)
            yield Batch(inputs=inputs, labels=labels, mask=mask)


def _split_bytes(split: Split) -> int:
    leaves = jax.tree_util.tree_leaves((split.inputs, split.labels))
    return sum(int(leaf.nbytes) for leaf in leaves)
