"""One candidate's way: trial -> policy -> store look-up and claim -> measured -> stored -> told to Optuna."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.front import LATENCY, MEMORY, QUALITY
from tuner.measurement import Failure, Measurement
from tuner.policy import Policy
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.interrupts import Interrupts
from tuner.store import CandidateRecord, Owner, Store

# The one user attribute of a trial, written in one transaction: what Optuna's own columns cannot hold.
ATTRIBUTE = "tuner"
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


class Objective:
    """Evaluates trials of one study.

    Args:
        study: Optuna's side.
        store: our side; it commits first.
        study_id: of the store's study.
        objectives: what Optuna is told, in order.
        space: what is proposed.
        make_policy: proposal -> policy.
        evaluator: measures.
        interrupts: where Ctrl-C may cut in.
    """

    def __init__(
        self,
        *,
        study: optuna.Study,
        store: Store,
        study_id: int,
        objectives: Sequence[str],
        space: ChoiceSpace,
        make_policy: PolicyMaker,
        evaluator: Measurer,
        interrupts: Interrupts,
    ) -> None:
        self._study = study
        self._store = store
        self._study_id = study_id
        self._objectives = tuple(objectives)
        self._space = space
        self._make_policy = make_policy
        self._evaluator = evaluator
        self._interrupts = interrupts
        self._owner = Owner.current()

    def ask(self) -> tuple[optuna.Trial, Proposal]:
        """A new trial with one parameter per layer."""
        trial = self._study.ask(fixed_distributions=dict(self._space.distributions))
        return trial, dict(trial.params)

    def running(self) -> list[FrozenTrial]:
        """Trials that were asked for and never told."""
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def run(self, trial: optuna.Trial, proposal: Proposal, label: str) -> tuple[Outcome | None, bool]:
        """(what came of the proposal, whether it was measured now); None when another process has it in hand.

        A policy that was measured before is told what came of it then.

        Raises:
            KeyboardInterrupt: Ctrl-C; the trial is failed and its claim given back.
        """
        policy = self._make_policy(proposal)
        known = self._store.find_candidate(self._study_id, policy.hash)
        if known is not None and known.outcome is not None:
            self.tell(trial.number, known.outcome, reused=known)
            return known.outcome, False
        candidate = None
        if known is None:
            candidate = self._store.claim(
                self._study_id, key=policy.hash, policy=policy, label=label, trial=trial.number, owner=self._owner
            )
        if candidate is None:
            self.fail(trial.number, TAKEN)
            return None, False
        try:
            with self._interrupts.allowed():
                outcome = self._evaluator.baseline if policy.is_original else self._evaluator.measure(policy)
        except BaseException as error:
            self._store.release(candidate)
            self.fail(trial.number, INTERRUPTED if isinstance(error, KeyboardInterrupt) else type(error).__name__)
            raise
        self._store.record(candidate, outcome)
        self.tell(trial.number, outcome, label=label)
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
        self._store.record(candidate, outcome)
        return outcome

    def tell(
        self, number: int, outcome: Outcome, *, label: str | None = None, reused: CandidateRecord | None = None
    ) -> None:
        """Finish Optuna's trial as the outcome says: COMPLETE, PRUNED or FAIL, with what else is known."""
        facts: dict[str, Any] = {} if label is None else {"label": label}
        if reused is not None:
            facts |= {"label": reused.label, "same_policy_as": reused.trial}
        if isinstance(outcome, Measurement):
            self._finish(number, TrialState.COMPLETE, facts, values_of(outcome, self._objectives))
            return
        facts |= {"cause": outcome.cause, "message": outcome.message}
        if outcome.layer is not None:
            facts["layer"] = outcome.layer
        self._finish(number, TrialState.PRUNED if outcome.pruned else TrialState.FAIL, facts)

    def fail(self, number: int, cause: str) -> None:
        """Finish Optuna's trial as one that was never measured."""
        self._finish(number, TrialState.FAIL, {"cause": cause})

    def _finish(
        self, number: int, state: TrialState, facts: Mapping[str, Any], values: Sequence[float] | None = None
    ) -> None:
        storage = self._study._storage
        trial_id = storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)
        storage.set_trial_user_attr(trial_id, ATTRIBUTE, dict(facts))
        self._study.tell(number, values, state=state, skip_if_finished=True)
