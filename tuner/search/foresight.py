"""Foresight: the policy that a search would try first, and the one it would try next, before anything is measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.drop import Drop
from tuner.effect import Prediction
from tuner.measurement import Quality
from tuner.policy import Policy
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.estimates import make_estimates
from tuner.search.outlook import Outlook
from tuner.search.screening import ScreenedTask, kernels_of, screening_task
from tuner.search.spaces import Space
from tuner.search.study_policy import study_policy
from tuner.task import Task

_SCORED_AT_MOST = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """A policy that nobody measured."""

    policy: Policy
    prediction: Prediction
    # What it scored on the search examples, run on the switchboard; None where it could not be.
    quality: Quality | None
    baseline_bytes: int
    notes: tuple[str, ...] = ()


def foresee_task(
    task: Task, *, max_drop: Drop, space: Space | None, storage: str, say: Callable[[str], object]
) -> Foreseen:
    """The fastest policy that is predicted to lose no more than the drop; its layers are timed and run alone first.

    Of the members of the predicted front, a few are scored on the search examples without being compiled, to find the
    first that keeps the drop.

    Raises:
        TunerError: as of `screen_task`.
    """
    with screening_task(task, space=space, storage=storage, say=say) as (screened, evaluator):
        allowed = max_drop.allowed(screened.baseline.quality.value)
        outlook = outlook_of(screened, allowed, task.metric.larger_is_better)
        front = sorted(outlook.front(_SCORED_AT_MOST), key=lambda one: one[1].latency or 0.0)
        choices = screened.resolved.resolution.choices
        ordered = [outlook.space.precisions(proposal) for proposal, _ in front]
        scored: Sequence[Quality | None] = [None] * len(front)
        if screened.screening.refusal is None:
            say("Scoring a few members of the predicted front on the search examples.")
            scored = evaluator.foresee(choices, kernels_of(screened.table, choices), ordered, allowed)
        number = next((n for n, quality in enumerate(scored) if quality is not None and quality.drop <= allowed), 0)
        proposal, prediction = front[number]
        quality = scored[number]
        if quality is not None:
            prediction = replace(prediction, drop=quality.drop)
        return Foreseen(
            policy=policy_of(screened, outlook.space, proposal),
            prediction=prediction,
            quality=quality,
            baseline_bytes=screened.baseline.memory.total_bytes,
            notes=screened.notes,
        )


def outlook_of(screened: ScreenedTask, allowed_drop: float, larger_is_better: bool) -> Outlook:
    """What is expected of the policies of a screened task."""
    space = ChoiceSpace.from_resolution(screened.resolved.resolution)
    estimates = make_estimates(
        screened.program.layers,
        space,
        screened.table,
        screened.screening,
        screened.baseline,
        allowed_drop=allowed_drop,
        larger_is_better=larger_is_better,
    )
    return Outlook(space, estimates, screened.baseline, larger_is_better=larger_is_better)


def policy_of(screened: ScreenedTask, space: ChoiceSpace, proposal: Proposal) -> Policy:
    """The policy of a proposal, kernels chosen."""
    return study_policy(screened.program, space.precisions(proposal), screened.table, screened.calibration)
