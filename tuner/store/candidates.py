"""Candidates: claimed by one process, recorded together with the front, confirmed, and released when the process dies."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from tuner.effect import Prediction
from tuner.errors import StoreError
from tuner.front import pareto
from tuner.measurement import Confirmation, Failure, Measurement
from tuner.policy import Policy
from tuner.store.convert import (
    now,
    outcome_to_row,
    policy_to_column,
    row_to_candidate,
    row_to_owner,
    row_to_point,
    row_to_signature,
)
from tuner.store.engine import Sessions
from tuner.store.models import CONFIRMATION, SEARCH, CandidateRow, FrontRow, OutcomeRow, StudyRow
from tuner.store.owner import Owner
from tuner.store.records import CandidateRecord, Outcome


class Candidates(Sessions):
    """The part of the store that keeps candidates and what came of them."""

    # (file, candidate) of every claim that this process works on: a search that ended with an error may have been unable
    # to give its claim back, and the process that it ran in, a notebook say, lives on.
    _held: ClassVar[set[tuple[str, int]]] = set()

    def claim(
        self,
        study_id: int,
        *,
        key: str,
        policy: Policy | None,
        label: str,
        trial: int,
        owner: Owner,
        predicted: Prediction | None = None,
    ) -> int | None:
        """The id of a new candidate that only this caller may measure; None when someone has or had the same one.

        Args:
            study_id: the study.
            key: what makes candidates equal: the policy's hash, or "cast:bf16" for a reference point.
            policy: what is measured; None for a reference point.
            label: what made it, for people.
            trial: Optuna's number of the trial that asks.
            owner: the process that will measure it.
            predicted: what is expected of it.

        Raises:
            StoreError: the study is gone, or the file cannot be written.
        """
        row = CandidateRow(
            study_id=study_id,
            key=key,
            label=label,
            trial=trial,
            policy=policy_to_column(policy),
            owner_host=owner.host,
            owner_pid=owner.pid,
            owner_started=owner.started,
            started=now(),
            predicted=None if predicted is None else dataclasses.asdict(predicted),
        )
        with self.writing() as session:
            self._study(session, study_id)
            if _by_key(session, study_id, key) is not None:  # nobody writes between this and the commit
                return None
            session.add(row)
        self._held.add(self._claim_of(row.id))
        return row.id

    def record(self, candidate_id: int, outcome: Outcome) -> None:
        """Writes what came of a claimed candidate, and the front that follows, in one transaction.

        Raises:
            StoreError: the claim is gone, or has an outcome already.
        """
        with self.writing() as session:
            row = self._candidate(session, candidate_id)
            if any(existing.kind == SEARCH for existing in row.outcomes):
                raise StoreError(
                    f"candidate {candidate_id} in {self.file} has an outcome already; claim it before measuring it"
                )
            row.outcomes.append(outcome_to_row(candidate_id, outcome, SEARCH))
            row.finished = now()
            if isinstance(outcome, Measurement):
                self._renew_front(session, row)
        self._held.discard(self._claim_of(candidate_id))

    def confirm(self, candidate_id: int, confirmation: Confirmation | Failure) -> None:
        """Writes the second measurement of a candidate; a later round replaces an earlier one.

        Raises:
            StoreError: the candidate is gone.
        """
        with self.writing() as session:
            row = self._candidate(session, candidate_id)
            session.execute(
                delete(OutcomeRow).where(OutcomeRow.candidate_id == row.id, OutcomeRow.kind == CONFIRMATION)
            )
            session.add(outcome_to_row(row.id, confirmation, CONFIRMATION))

    def find_candidate(self, study_id: int, key: str) -> CandidateRecord | None:
        """The candidate with that key, measured or being measured; None when nobody claimed it."""
        with self.reading() as session:
            row = _by_key(session, study_id, key)
            return None if row is None else self._records(session, study_id, [row])[0]

    def candidates(self, study_id: int) -> list[CandidateRecord]:
        """Every candidate of the study, in the order in which they were claimed."""
        with self.reading() as session:
            query = select(CandidateRow).where(CandidateRow.study_id == study_id).order_by(CandidateRow.id)
            return self._records(session, study_id, session.scalars(query).all())

    def release(self, candidate_id: int) -> None:
        """Gives up a claim without an outcome, so that the candidate can be claimed again; harmless otherwise."""
        self._held.discard(self._claim_of(candidate_id))  # first: what cannot be written now is given up later
        with self.writing() as session:
            session.execute(
                delete(CandidateRow).where(CandidateRow.id == candidate_id, CandidateRow.finished.is_(None))
            )

    def release_dead(self, study_id: int) -> list[CandidateRecord]:
        """Gives up every claim of the study that no process works on any more, and returns what was given up."""
        with self.writing() as session:
            query = select(CandidateRow).where(CandidateRow.study_id == study_id, CandidateRow.finished.is_(None))
            dead = [row for row in session.scalars(query) if self._is_abandoned(row)]
            records = self._records(session, study_id, dead)
            for row in dead:
                session.delete(row)
            return records

    def _is_abandoned(self, row: CandidateRow) -> bool:
        owner = row_to_owner(row)
        if owner == Owner.current():
            return self._claim_of(row.id) not in self._held
        return not owner.alive()

    def _claim_of(self, candidate_id: int) -> tuple[str, int]:
        return str(self.file.resolve()), candidate_id

    def _records(self, session: Session, study_id: int, rows: Sequence[CandidateRow]) -> list[CandidateRecord]:
        if not rows:
            return []
        program = row_to_signature(self._study(session, study_id))
        return [row_to_candidate(row, program, self.file) for row in rows]

    def _study(self, session: Session, study_id: int) -> StudyRow:
        study = session.get(StudyRow, study_id)
        if study is None:
            raise StoreError(f"study {study_id} is no longer in {self.file}: it was removed; run `tuner search` again")
        return study

    def _candidate(self, session: Session, candidate_id: int) -> CandidateRow:
        row = session.get(CandidateRow, candidate_id)
        if row is None:
            raise StoreError(
                f"candidate {candidate_id} is no longer in {self.file}: its study was removed or its claim given up; "
                "run the same `tuner search` again"
            )
        return row

    def _renew_front(self, session: Session, newcomer: CandidateRow) -> None:
        """The front of the old front and the newcomer: what was dominated once stays dominated."""
        study = self._study(session, newcomer.study_id)
        session.flush()
        # Without the policies, which are long and not needed here.
        entries = session.execute(
            select(OutcomeRow, CandidateRow.trial, CandidateRow.label, CandidateRow.policy.is_not(None))
            .join(CandidateRow, OutcomeRow.candidate_id == CandidateRow.id)
            .outerjoin(FrontRow, FrontRow.candidate_id == CandidateRow.id)
            .where(OutcomeRow.kind == SEARCH, or_(FrontRow.study_id == study.id, CandidateRow.id == newcomer.id))
        )
        points = {e[0].candidate_id: row_to_point(e[0], e[1], e[2], e[3]) for e in entries}
        kept = {id(point) for point in pareto(points.values(), study.objectives)}
        gone = [candidate for candidate, point in points.items() if id(point) not in kept]
        session.execute(delete(FrontRow).where(FrontRow.candidate_id.in_(gone)))
        if newcomer.id not in gone:
            session.add(FrontRow(candidate_id=newcomer.id, study_id=study.id))


def _by_key(session: Session, study_id: int, key: str) -> CandidateRow | None:
    query = select(CandidateRow).where(CandidateRow.study_id == study_id, CandidateRow.key == key)
    return session.scalars(query).one_or_none()
