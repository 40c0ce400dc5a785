"""One candidate's way: trial -> policy -> store look-up and claim -> measured -> stored -> told to Optuna."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from optuna.study import StudyDirection
from optuna.trial import TrialState

from tuner.effect import Prediction
from tuner.errors import StoreError
from tuner.front import LATENCY, MEMORY, QUALITY
from tuner.measurement import ROUNDING, Failure, Measurement
from tuner.policy import Policy
from tuner.search.choices import Proposal
from tuner.search.interrupts import Interrupts
from tuner.search.lessons import INTERVALS
from tuner.search.optuna_study import Asked, OptunaStudy
from tuner.store import Owner, Store

INTERRUPTED = "interrupted"
DIED = "its process died"
TAKEN = "measured by another process"

Outcome = Measurement | Failure


class Measurer(Protocol):
    """What the search needs of an evaluator."""

    @property
    def baseline(self) -> Measurement:
        """The task as the user wrote it."""

    def measure(self, policy: Policy) -> Outcome:
        """One candidate, compiled, run, scored and timed."""

    def measure_cast(self, name: str) -> Outcome:
        """The whole program cast by hand."""

    def confirm(self, policies: Sequence[Policy]) -> Any:
        """All of them again, interleaved, and on the holdout split."""

    def check(self) -> None:
        """Raises MeasuringStopped when there is no point in going on."""


# Proposal -> policy, kernels chosen.
PolicyMaker = Callable[[Proposal], Policy]


def directions(objectives: Sequence[str], larger_is_better: bool) -> list[StudyDirection]:
    """Optuna's directions; Optuna gets the metric's own value, so its direction follows the metric."""
    ways = dict.fromkeys(objectives, StudyDirection.MINIMIZE)
    if QUALITY in ways and larger_is_better:
        ways[QUALITY] = StudyDirection.MAXIMIZE
    return list(ways.values())


def values_of(measurement: Measurement, objectives: Sequence[str]) -> list[float]:
    """What Optuna is told."""
    numbers = {
        LATENCY: measurement.latency.ratio,
        QUALITY: measurement.quality.value,
        MEMORY: float(measurement.memory.total_bytes),
    }
    return [numbers[name] for name in objectives]


def intervals_of(measurement: Measurement, objectives: Sequence[str]) -> list[list[float] | None]:
    """The 95 % interval of each value that Optuna is told."""
    latency, quality = measurement.latency, measurement.quality
    half = (quality.drop_high - quality.drop_low) / 2
    known = {
        LATENCY: [latency.low, latency.high],
        QUALITY: [quality.value - half, quality.value + half],
    }
    return [known[name] if name in known and _finite(known[name]) else None for name in objectives]


def excess_of(measurement: Measurement) -> dict[str, float]:
    """By how much each constrained metric drops more than it may; below zero where it keeps its constraint."""
    found = {name: metric.drop - metric.allowed - ROUNDING for name, metric in measurement.metrics.items()}
    return {name: excess for name, excess in found.items() if _finite([excess])}


def _finite(numbers: Sequence[float]) -> bool:
    return all(math.isfinite(number) for number in numbers)


class Objective:
    """Evaluates trials of one study.

    Args:
        study: Optuna's side.
        store: our side; it commits first.
        study_id: of the store's study.
        objectives: what Optuna is told, in order.
        make_policy: proposal -> policy.
        evaluator: measures.
        interrupts: where Ctrl-C may cut in.
    """

    def __init__(
        self,
        *,
        study: OptunaStudy,
        store: Store,
        study_id: int,
        objectives: Sequence[str],
        make_policy: PolicyMaker,
        evaluator: Measurer,
        interrupts: Interrupts,
    ) -> None:
        self._study = study
        self._store = store
        self._study_id = study_id
        self._objectives = tuple(objectives)
        self._make_policy = make_policy
        self._evaluator = evaluator
        self._interrupts = interrupts
        self._owner = Owner.current()

    def run(self, asked: Asked, label: str, predicted: Prediction | None = None) -> tuple[Outcome | None, bool]:
        """(what came of the proposal, whether it was measured now); None when another process has it in hand.

        A policy that was measured before is told what came of it then.

        Raises:
            KeyboardInterrupt: Ctrl-C; the trial is failed and its claim given back.
        """
        policy = self._make_policy(asked.params)
        candidate = self._store.claim(
            self._study_id,
            key=policy.hash,
            policy=policy,
            label=label,
            trial=asked.number,
            owner=self._owner,
            predicted=predicted,
        )
        if candidate is None:
            return self._reuse(asked, policy), False
        try:
            with self._interrupts.allowed():
                outcome = self._evaluator.baseline if policy.is_original else self._evaluator.measure(policy)
        except BaseException as error:
            self._store.release(candidate)
            self.fail(asked.number, INTERRUPTED if isinstance(error, KeyboardInterrupt) else type(error).__name__)
            raise
        self._record(candidate, outcome)
        self.tell(asked.number, outcome, {"label": label})
        return outcome, True

    def run_cast(self, name: str, key: str, label: str, number: int) -> Outcome | None:
        """Measure a hand-made reference point, unless the study has it."""
        candidate = self._store.claim(
            self._study_id, key=key, policy=None, label=label, trial=number, owner=self._owner
        )
        if candidate is None:
            return None
        try:
            with self._interrupts.allowed():
                outcome = self._evaluator.measure_cast(name)
        except BaseException:
            self._store.release(candidate)
            raise
        self._record(candidate, outcome)
        return outcome

    def tell(self, number: int, outcome: Outcome, facts: Mapping[str, Any]) -> None:
        """End Optuna's trial as the outcome says: COMPLETE, PRUNED or FAIL, with what else is known."""
        if isinstance(outcome, Measurement):
            more = {INTERVALS: intervals_of(outcome, self._objectives)}
            values = values_of(outcome, self._objectives)
            self._study.tell(number, TrialState.COMPLETE, values, {**facts, **more}, excess_of(outcome))
            return
        why = {"cause": outcome.cause, "message": outcome.message}
        if outcome.layer is not None:
            why["layer"] = outcome.layer
        self._study.tell(number, TrialState.PRUNED if outcome.pruned else TrialState.FAIL, None, {**facts, **why})

    def fail(self, number: int, cause: str) -> None:
        """End Optuna's trial as one that was never measured."""
        self._study.tell(number, TrialState.FAIL, None, {"cause": cause})

    def _record(self, candidate: int, outcome: Outcome) -> None:
        """Keep the outcome; where that fails, give the claim back as far as possible: a later run must not wait for us."""
        try:
            self._store.record(candidate, outcome)
        except StoreError:
            with suppress(StoreError):
                self._store.release(candidate)
            raise

    def _reuse(self, asked: Asked, policy: Policy) -> Outcome | None:
        """What came of the same policy before; None, and a failed trial, when that is not known yet."""
        known = self._store.find_candidate(self._study_id, policy.hash)
        if known is None or known.outcome is None:
            self.fail(asked.number, TAKEN)
            return None
        self.tell(asked.number, known.outcome, {"label": known.label, "same_policy_as": known.trial})
        return known.outcome
