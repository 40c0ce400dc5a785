"""The loop of one search: what is tried next, when to stop, and the confirmation at its end."""

import time
from collections.abc import Callable, Sequence

from optuna.study import StudyDirection

from search_spaces import Precision
from tuner.drop import Drop
from tuner.effect import Screening
from tuner.kernel_choice import FusionCheck
from tuner.measure import KernelTable
from tuner.measurement import Measurement, broken_constraints
from tuner.policy import Policy
from tuner.program import Program
from tuner.report import numbers
from tuner.scales import Calibration
from tuner.search.accuracy import accuracy_note
from tuner.search.around import neighbors
from tuner.search.budget import Budget
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.estimates import make_estimates, reference_of
from tuner.search.first_candidates import (
    CASTS,
    FirstCandidate,
    cast_key,
    cast_label,
    cast_trial,
    first_candidates,
    label_of,
)
from tuner.search.goal import Stall
from tuner.search.interrupts import Interrupts
from tuner.search.objective import Measurer, Objective, Outcome, directions, values_of
from tuner.search.optuna_study import OptunaStudy
from tuner.search.outlook import Outlook
from tuner.search.progress import Progress, ProgressEvent
from tuner.search.resume import proposal_of, settle
from tuner.search.samplers import EXHAUSTIVE, TiedSampler, make_sampler
from tuner.search.scoreboard import Scoreboard, describe
from tuner.search.settings import Settings
from tuner.search.study_policy import study_policy
from tuner.store import CandidateRecord, Store, StudyRecord

Rank = Callable[[list[Precision]], list[Precision]]


def is_complete(store: Store, record: StudyRecord, trials: int | None) -> bool:
    """True when the study has all its trials, its reference points, and every front member confirmed."""
    candidates = store.candidates(record.id)
    measured = [c for c in candidates if c.outcome is not None]
    done = sum(c.policy is not None for c in measured)
    has_casts = {cast_key(name) for name in CASTS} <= {c.key for c in measured}
    return trials is not None and done >= trials and has_casts and not unconfirmed(candidates)


def unconfirmed(candidates: Sequence[CandidateRecord]) -> list[CandidateRecord]:
    """Front members that were not measured a second time; a hand-made cast cannot be exported and needs none."""
    return [c for c in candidates if c.on_front and c.policy is not None and c.confirmation is None]


class Loop:
    """One run of a search over one study.

    Args:
        store: holds the study.
        record: the study, stored already.
        program: what is tuned.
        space: what may be proposed.
        larger_is_better: the metric's direction.
        evaluator: measures.
        settings: of this run.
        budget: running already.
        display: where progress goes.
        interrupts: where Ctrl-C may cut in.
        table: of kernel times; an empty one means plain kernels.
        calibration: the numbers that precisions need.
        fusions: what each kind of fusion does to the whole program.
        rank: orders precisions, fastest first; by default as the table predicts.
        screening: what single layers do to the outputs.
    """

    def __init__(
        self,
        *,
        store: Store,
        record: StudyRecord,
        program: Program,
        space: ChoiceSpace,
        larger_is_better: bool,
        evaluator: Measurer,
        settings: Settings,
        budget: Budget,
        display: Progress,
        interrupts: Interrupts,
        table: KernelTable | None = None,
        calibration: Calibration | None = None,
        fusions: Sequence[FusionCheck] = (),
        rank: Rank | None = None,
        screening: Screening = Screening(),  # noqa: B008  # frozen
    ) -> None:
        self._table = KernelTable() if table is None else table
        self._calibration = Calibration() if calibration is None else calibration
        self._fusions = fusions
        self._rank = rank if rank is not None else lambda precisions: sorted(precisions, key=self._table.predicted)
        self._store = store
        self._record = record
        self._program = program
        self._space = space
        self._evaluator = evaluator
        self._budget = budget
        self._display = display
        self._interrupts = interrupts
        self._labels: dict[tuple[str, ...], str] = {}
        self._board = Scoreboard(Drop.parse(record.max_drop), evaluator.baseline.quality.value, record.objectives)
        known = store.candidates(record.id)
        # A resumed study must not draw what it drew before.
        seed = (settings.seed + len(known)) % 2**32
        estimates = make_estimates(
            program.layers,
            space,
            self._table,
            screening,
            evaluator.baseline,
            allowed_drop=self._board.allowed,
            larger_is_better=larger_is_better,
        )
        signs = [
            -1.0 if way == StudyDirection.MAXIMIZE else 1.0 for way in directions(record.objectives, larger_is_better)
        ]
        self._signs, self._goal = signs, settings.goal
        self._reached: int | None = None
        self._outlook = Outlook(space, estimates, evaluator.baseline, larger_is_better=larger_is_better)
        reference = reference_of(record.objectives, evaluator.baseline, self._board.allowed, larger_is_better)
        patience = settings.patience_for(len(space.free))
        self._stall = Stall([sign * one for sign, one in zip(signs, reference, strict=True)], patience)
        inner = make_sampler(settings.sampler, seed, estimates.of(record.objectives), reference)
        self._sampler = TiedSampler(inner, space, seed)
        ways = directions(record.objectives, larger_is_better)
        self._study = OptunaStudy(store, record.name, ways, self._sampler)
        self._objective = Objective(
            study=self._study,
            store=store,
            study_id=record.id,
            objectives=record.objectives,
            make_policy=self._make_policy,
            evaluator=evaluator,
            interrupts=interrupts,
        )
        measured = {candidate.key for candidate in known if candidate.outcome is not None}
        self._casts = [name for name in CASTS if cast_key(name) not in measured]
        self._remember(known)
        self._plan(settings)

    def run(self) -> None:
        """Measure until the budget ends or nothing is left to try; around a point, what is around it.

        Raises:
            MeasuringStopped: candidates end the process they are measured in, one after the other.
            KeyboardInterrupt: Ctrl-C; the running trial is failed, everything else kept.
        """
        while self._goes_on() and self._budget.allows(self._board.done, self._board.front_size):
            if not self._sampler.has_plan:
                self._measure_casts()
            self._one_trial()
        self._measure_casts()
        self._display.note(self._how_complete())
        foreseen = accuracy_note(self._store.candidates(self._record.id))
        if foreseen is not None:
            self._display.note(foreseen)

    def confirm(self) -> None:
        """Measure the front members that are not confirmed yet again, interleaved, and on the holdout split."""
        waiting = unconfirmed(self._store.candidates(self._record.id))
        if not waiting:
            return
        what = "front member" if len(waiting) == 1 else "front members"
        self._display.note(f"Confirming {len(waiting)} {what} on the holdout examples.")
        policies = [record.policy for record in waiting if record.policy is not None]
        with self._interrupts.allowed():
            confirmations = self._evaluator.confirm(policies)
        for record, confirmation in zip(waiting, confirmations, strict=True):
            self._store.confirm(record.id, confirmation)

    def _look_at(self, number: int, outcome: Outcome, *, counts: bool = True) -> None:
        """Takes an outcome into account for when to stop."""
        values = None
        if isinstance(outcome, Measurement) and not broken_constraints(outcome):
            told = values_of(outcome, self._record.objectives)
            values = [sign * value for sign, value in zip(self._signs, told, strict=True)]
        self._stall.add(values, counts=counts)
        if self._reached is None and self._goal is not None and self._goal.is_met(outcome, self._evaluator.baseline):
            self._reached = number

    def _goes_on(self) -> bool:
        if self._reached is not None or self._stall.stalled:
            return False
        return self._sampler.has_plan if self._only_planned else not self._sampler.exhausted

    def _one_trial(self) -> None:
        self._interrupts.check()
        self._evaluator.check()
        began = time.monotonic()
        asked = self._study.ask(self._space.distributions)
        label = self._labels.get(self._space.key(asked.params)) or label_of(self._space, asked.params)
        outcome, is_new = self._objective.run(asked, label, self._outlook.predict(asked.params))
        self._sampler.mark_seen(asked.params)
        self._budget.note_trial(time.monotonic() - began)
        if outcome is None:
            return
        self._outlook.learn(asked.params, outcome)
        self._look_at(asked.number, outcome)
        if is_new:
            self._board.keep(asked.number, label, self._make_policy(asked.params), outcome)
        self._show(label, outcome)

    def _how_complete(self) -> str:
        """What share of the space the front is the best of."""
        if self._space.size == 1:
            return "This space allows the program as written and nothing else; `tuner layers` says why."
        size = numbers.amount(self._space.size)
        if self._reached is not None:
            return f"The goal {self._goal} is reached by trial {self._reached}; {self._sampler.seen} of {size} policies are tried."
        if self._sampler.exhausted:
            return f"All {size} policies of this space are tried: the front is complete."
        if self._stall.stalled:
            return (
                f"{self._sampler.seen} of {size} policies of this space are tried, and the last {self._stall.patience} added "
                "less than a thousandth to the hypervolume of the front: it stops here; --trials or --patience asks for more."
            )
        missed = "" if self._goal is None else f"The goal {self._goal} is not reached. "
        return (
            f"{missed}{self._sampler.seen} of {size} policies of this space are tried, and the front is the best of those; "
            "the same command with more --trials or --budget goes on."
        )

    def _measure_casts(self) -> None:
        """The hand-made reference points, those that the study does not have yet."""
        while self._casts:
            self._interrupts.check()
            self._evaluator.check()
            name = self._casts.pop(0)
            number, label = cast_trial(name), cast_label(name)
            outcome = self._objective.run_cast(name, cast_key(name), label, number)
            if outcome is not None:
                self._board.keep(number, label, None, outcome)
                self._show(label, outcome)

    def _make_policy(self, proposal: Proposal) -> Policy:
        precisions = self._space.precisions(proposal)
        return study_policy(self._program, precisions, self._table, self._calibration, self._fusions)

    def _show(self, label: str, outcome: Outcome) -> None:
        board, budget = self._board, self._budget
        self._display.update(
            ProgressEvent(
                done=board.done,
                total=budget.trials,
                label=label,
                outcome=describe(outcome),
                best_ratio=board.best_ratio,
                max_drop=board.drop,
                front_size=board.front_size,
                elapsed_s=budget.elapsed,
                left_s=budget.left(board.done),
            )
        )

    def _remember(self, known: Sequence[CandidateRecord]) -> None:
        """Take over what earlier runs measured."""
        for record in known:
            if record.outcome is None:
                continue
            self._board.keep(record.trial, record.label, record.policy, record.outcome)
            if record.policy is not None and self._space.contains(proposal_of(record.policy)):
                self._sampler.mark_seen(proposal_of(record.policy))
                self._outlook.learn(proposal_of(record.policy), record.outcome)
                self._look_at(record.trial, record.outcome, counts=False)

    def _plan(self, settings: Settings) -> None:
        """Settle what an earlier run left, then plan what it lost and the first candidates, and for some samplers all."""
        lost = settle(self._study, self._objective, self._store, self._record.id, self._space, self._make_policy)
        self._study.load()
        first = first_candidates(self._program.layers, self._space, self._rank, settings.start)
        # The baseline stays first even when an earlier run lost something else.
        planned: list[FirstCandidate] = [first[0], *lost, *first[1:]]
        self._only_planned = settings.only_around
        if settings.around is not None:
            near = neighbors(settings.around, self._store.candidates(self._record.id), self._space)
            planned = [first[0], *lost, *near] if self._only_planned else [first[0], *near, *lost, *first[1:]]
        self._labels = {self._space.key(candidate.proposal): candidate.label for candidate in reversed(planned)}
        self._sampler.plan(candidate.proposal for candidate in planned)
        if settings.sampler == EXHAUSTIVE:
            self._sampler.plan(self._space.all())
