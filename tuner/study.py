"""Study: what a search has found so far, read from its database whenever asked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from tuner.drop import Drop
from tuner.errors import InputError
from tuner.front import LATENCY, OBJECTIVES, Point, choose, knee, values
from tuner.measurement import Measurement
from tuner.policy import Policy
from tuner.provenance import with_provenance
from tuner.ties import find_ties

if TYPE_CHECKING:  # loads SQLAlchemy
    from tuner.stability import Stability
    from tuner.store import CandidateRecord, StudyRecord

DEFAULT_STORAGE = "sqlite:///precision.db"


def open_study(name: str, storage: str = DEFAULT_STORAGE) -> "Study":
    """The study of that name in that database.

    Raises:
        StoreError: the database cannot be read, or has no study of that name.
    """
    study = Study(name=name, storage=storage)
    _ = study.record
    return study


class Front(Sequence[Point]):
    """The non-dominated points of a study, best in its first objective first."""

    def __init__(
        self,
        study: str,
        points: Iterable[Point],
        references: Iterable[Point],
        objectives: Sequence[str] = OBJECTIVES,
    ) -> None:
        self.study = study
        self.objectives = tuple(objectives)
        self.points = tuple(points)
        # Baseline and hand-made casts that are not on the front: what it is compared with.
        self.references = tuple(references)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, index: int | slice) -> Point | tuple[Point, ...]:
        return self.points[index]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def ties(self) -> dict[int, Point]:
        """Trial of a member -> the cheapest member whose quality differs from its own by no more than the noise."""
        return find_ties(self.points, self.objectives)

    def __repr__(self) -> str:
        import io

        from tuner.report.front import write_front

        text = io.StringIO()
        write_front(self.points, self.references, text, ties=self.ties)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from tuner.report.html import front_html

        return front_html(self.study, self.points, self.references, self.ties)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A point to export, and the better-looking ones that the confirmation rejected."""

    point: Point
    rejected: tuple[Point, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A view of one study; every call reads the database anew, so it can be watched while a search runs."""

    name: str
    storage: str = DEFAULT_STORAGE

    @property
    def record(self) -> "StudyRecord":
        """Its settings, fingerprints and counts."""
        return self._read()[0]

    def trials(self) -> list["CandidateRecord"]:
        """Everything it tried, failures included, in the order tried; hand-made reference points are not trials."""
        _, candidates = self._read()
        return sorted((c for c in candidates if c.policy is not None), key=lambda c: c.trial)

    def points(self) -> list[Point]:
        """Every candidate that was measured, hand-made reference points included."""
        return _points(*self._read())

    def front(self) -> Front:
        """The points that none dominates, and what they are compared with."""
        record, candidates = self._read()
        points = _points(record, candidates)
        best = sorted((p for p in points if p.on_front), key=lambda p: (*values(p, record.objectives), p.trial))
        references = [p for p in points if not p.on_front and (p.is_reference or p.is_baseline)]
        return Front(record.name, best, references, record.objectives)

    def point(self, wanted: int | str) -> Point:
        """The measured point with that trial number, or that label.

        Raises:
            InputError: there is none; says what became of the trial, or which points there are.
        """
        record, candidates = self._read()
        text = str(wanted).strip()
        found = [c for c in candidates if text in (str(c.trial), c.label)]
        measured = [c for c in found if isinstance(c.outcome, Measurement)]
        if measured:
            return _points(record, measured)[0]
        if found and found[0].outcome is not None:
            failure = found[0].outcome
            raise InputError(
                f"trial {found[0].trial} of study {self.name!r} has no measurement "
                f"({getattr(failure, 'cause', 'failed')}: {getattr(failure, 'message', '')}); choose a measured point"
            )
        known = (
            ", ".join(str(p.trial) if p.trial >= 0 else repr(p.label) for p in _points(record, candidates)) or "none"
        )
        raise InputError(f"study {self.name!r} has no point {text!r}; its points are {known}")

    def candidate(self, wanted: int | str) -> "CandidateRecord":
        """Whatever has that trial number, or that label: measured, failed or running.

        Raises:
            InputError: there is none.
        """
        _, candidates = self._read()
        text = str(wanted).strip()
        found = [candidate for candidate in candidates if text in (str(candidate.trial), candidate.label)]
        if not found:
            raise InputError(f"study {self.name!r} has no trial {text!r}; `tuner trials {self.name}` lists them")
        return found[0]

    def stability(self, wanted: int | str) -> "Stability":
        """What every layer sees when the policy of a trial, failed or not, runs on one batch, and what goes wrong first.

        Raises:
            InputError: there is no such trial, it has no policy, or its task cannot be loaded here.
        """
        from tuner.capturing import capture_task
        from tuner.measure import device_lock
        from tuner.program.stability import find_stability
        from tuner.task_reference import load_task

        record, candidate = self.record, self.candidate(wanted)
        if candidate.policy is None:
            raise InputError(
                f"trial {candidate.label!r} of study {self.name!r} is a hand-made cast without a policy, so its layers "
                "cannot be told apart; name a trial by its number"
            )
        if record.task_reference is None:
            raise InputError(
                f"study {self.name!r} was made from a live task, which is not known here; call tuner.find_stability(apply, "
                f"params, study.candidate({candidate.trial}).policy, inputs) where it is"
            )
        task = load_task(record.task_reference).with_batch_size(record.batch_size)
        inputs, _, _ = next(task.search.batches(task.batch_size))
        with device_lock():
            return find_stability(task.apply, task.params, candidate.policy, inputs, program=capture_task(task))

    def decide(
        self,
        *,
        max_drop: Drop | str | float | None = None,
        minimize: str = LATENCY,
        confirmed_only: bool = True,
    ) -> Choice:
        """The best point inside the allowed drop (by default the study's own), with what was rejected on the way.

        Raises:
            GoalMissed: nothing measured meets the goal; says how near the best came.
        """
        record, candidates = self._read()
        drop = Drop.parse(record.max_drop if max_drop is None else max_drop)
        point, rejected = choose(
            _points(record, candidates, drop),
            max_drop=drop,
            baseline_quality=_baseline_quality(record),
            minimize=minimize,
            confirmed_only=confirmed_only,
        )
        return Choice(point=point, rejected=tuple(rejected))

    def choose(
        self,
        *,
        max_drop: Drop | str | float | None = None,
        minimize: str = LATENCY,
        confirmed_only: bool = True,
    ) -> Point:
        """The best point inside the allowed drop; `point.policy.save("policy.json")` exports it.

        Args:
            max_drop: quality that may be lost, as in `tuner.search`; by default the study's own.
            minimize: "latency" or "memory".
            confirmed_only: whether a point must be confirmed on the holdout split.

        Raises:
            GoalMissed: nothing measured meets the goal; says how near the best came.
        """
        return self.decide(max_drop=max_drop, minimize=minimize, confirmed_only=confirmed_only).point

    def knee(self) -> Point:
        """The point of the front where giving up a little of one objective stops gaining much of the others."""
        record, candidates = self._read()
        return knee([p for p in _points(record, candidates) if p.on_front], record.objectives)

    def _repr_html_(self) -> str:
        from tuner.report.html import study_html

        front = self.front()
        return study_html(self.record, front.points, front.references)

    def _read(self) -> tuple["StudyRecord", list["CandidateRecord"]]:
        from tuner.store import Store

        with Store.open(self.storage, create=False, read_only=True) as store:
            record = store.find_or_raise_study(self.name)
            return record, store.candidates(record.id)


def _points(
    record: "StudyRecord", candidates: Iterable["CandidateRecord"], max_drop: Drop | None = None
) -> list[Point]:
    """The measured candidates, their policies knowing where they come from and what drop they were chosen under."""
    allowed = record.max_drop if max_drop is None else str(max_drop)
    return [
        Point(
            trial=candidate.trial,
            label=candidate.label,
            policy=None if candidate.policy is None else _with_drop(with_provenance(record, candidate), allowed),
            measurement=candidate.outcome,
            confirmation=candidate.confirmation,
            on_front=candidate.on_front,
        )
        for candidate in candidates
        if isinstance(candidate.outcome, Measurement)
    ]


def _with_drop(policy: Policy, max_drop: str) -> Policy:
    return replace(policy, provenance={**(policy.provenance or {}), "max_drop": max_drop})


def _baseline_quality(record: "StudyRecord") -> float:
    if record.baseline is None:
        raise InputError(f"study {record.name!r} has no measured baseline yet; run `tuner search` again to resume it")
    return record.baseline.quality.value
