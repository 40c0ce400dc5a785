"""Resuming: what a stopped or killed run left behind is told, given up or planned again."""

from optuna.trial import FrozenTrial

from tuner.policy import Policy
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.first_candidates import FirstCandidate
from tuner.search.objective import DIED, Objective, PolicyMaker
from tuner.search.optuna_study import OptunaStudy
from tuner.store import CandidateRecord, Store


def settle(
    study: OptunaStudy, objective: Objective, store: Store, study_id: int, space: ChoiceSpace, make_policy: PolicyMaker
) -> list[FirstCandidate]:
    """Finish every trial that no living process works on; returns what has to be measured again.

    A RUNNING trial of Optuna whose measurement exists is told from the store: ours commits first, so a kill between
    the two leaves exactly that. One whose owner is dead is failed, and its proposal returned.
    """
    released = store.release_dead(study_id)
    lost = [again for record in released if (again := _again(record, space)) is not None]
    by_trial = {record.trial: record for record in store.candidates(study_id)}
    for trial in study.running():
        record = by_trial.get(trial.number) or _same_policy(trial, store, study_id, space, make_policy)
        if record is None:
            objective.fail(trial.number, DIED)
        elif record.outcome is not None:
            objective.tell(trial.number, record.outcome, {"label": record.label})
        elif record.trial != trial.number:
            objective.fail(trial.number, DIED)
        # Else a living process measures it right now.
    return lost


def proposal_of(policy: Policy) -> Proposal:
    """The proposal behind a policy."""
    return {name: str(precision) for name, precision in policy.precisions.items()}


def _again(record: CandidateRecord, space: ChoiceSpace) -> FirstCandidate | None:
    if record.policy is None or not space.contains(proposal_of(record.policy)):
        return None
    return FirstCandidate(record.label, proposal_of(record.policy))


def _same_policy(
    trial: FrozenTrial, store: Store, study_id: int, space: ChoiceSpace, make_policy: PolicyMaker
) -> CandidateRecord | None:
    """The candidate of an earlier trial with the same policy, when this one got as far as proposing all of it."""
    if not space.contains(trial.params):
        return None
    return store.find_candidate(study_id, make_policy(trial.params).hash)
