"""Store: one SQLite file with everything a study is made of."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Engine, delete, func, select, update
from sqlalchemy.orm import Session

from tuner.errors import StoreError
from tuner.front import BASELINE
from tuner.kernel_choice import KernelChoice, choice_to_json
from tuner.measurement import LOSER, SLOW
from tuner.store import migrations, problems
from tuner.store.candidates import Candidates
from tuner.store.convert import layer_to_row, now, row_to_layer, row_to_study, study_to_row
from tuner.store.effects import Effects
from tuner.store.engine import engine_options, is_read_only, locate, may, reading_engine, translated, writable_engine
from tuner.store.models import SEARCH, CandidateRow, FrontRow, LayerRow, OutcomeRow, ProbeRow, StudyRow
from tuner.store.records import StudyCounts, StudyRecord

if TYPE_CHECKING:
    from tuner.program.layer import Layer

DEFAULT_STORAGE = "sqlite:///precision.db"
_TIMEOUT_S = 30.0
_NEW_STUDY = "choose another --study name to begin a new study"


class Store(Candidates, Effects):
    """Studies, layers, candidates, measurements and fronts in one file; rows stay inside, frozen records come out.

    Use as a context manager, or call `close`. Every method raises StoreError when the file is locked for longer than
    the timeout, read-only, damaged, or on a full disk; whatever was being written is then not there at all.

    Attributes:
        url: for others who keep their tables in the same file.
        file: the same as a path.
    """

    def __init__(self, engine: Engine, url: str, file: Path, timeout_s: float) -> None:
        super().__init__(engine, file)
        self.url = url
        self._timeout_s = timeout_s

    @staticmethod
    def exists(url: str | Path = DEFAULT_STORAGE) -> bool:
        """True when the file is there, False when it can be made.

        Raises:
            StoreError: it is not there and cannot be made.
        """
        _, file = locate(url)
        try:
            if file.exists():
                return True
        except OSError:  # a folder that may not even be looked at
            raise problems.not_opened(file) from None
        if not file.parent.is_dir() or not may(file.parent, os.W_OK | os.X_OK):
            raise problems.not_opened(file)
        return False

    @classmethod
    def open(
        cls,
        url: str | Path = DEFAULT_STORAGE,
        *,
        create: bool = True,
        read_only: bool = False,
        timeout_s: float = _TIMEOUT_S,
    ) -> "Store":
        """The store in a file, brought up to the schema of this version.

        Args:
            url: sqlite:///FILE, or a path.
            create: whether a missing file, or missing tables in it, are made.
            read_only: whether to promise not to change anything; implies `create=False`.
            timeout_s: how long to wait for other processes.

        Raises:
            StoreError: there is no such file, it is no database of ours, or a newer version wrote it.
        """
        url, file = locate(url)
        create = create and not read_only
        if not create and not file.exists():
            raise problems.missing(file)
        if read_only:
            engine = reading_engine(file, timeout_s)
            if _is_current(engine, file):
                return cls(engine, url, file, timeout_s)
            engine.dispose()  # an older schema: bring it up to date, which needs a writable file
        if is_read_only(file):
            raise problems.read_only(file)  # SQLite would find out later, and leave its journal files
        engine = writable_engine(url, timeout_s)
        try:
            with translated(file):
                if not create and migrations.pending(engine, file) is None:
                    raise _no_studies(file)
                migrations.upgrade(engine, file)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, url, file, timeout_s)

    def check_writable(self) -> None:
        """Returns when something could be written now.

        Raises:
            StoreError: it could not; says why.
        """
        with self.writing() as session:
            session.connection()  # takes the writer's lock

    def close(self) -> None:
        """Lets go of the file."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def engine_options(self) -> dict[str, Any]:
        """What `sqlalchemy.create_engine(store.url, ...)` needs to treat the file as we do.

        For Optuna: `RDBStorage(store.url, engine_kwargs=store.engine_options)`.
        """
        return engine_options(self._timeout_s)

    def create_study(self, study: StudyRecord) -> StudyRecord:
        """The study as it is kept, with its id.

        Raises:
            StoreError: a study of that name exists.
            ValueError: it has a baseline: that is recorded as the candidate labelled "baseline".
        """
        if study.baseline is not None:
            raise ValueError("record the baseline as a candidate labelled 'baseline', not with the study")
        with self.writing() as session:
            if _by_name(session, study.name) is not None:
                raise StoreError(
                    f"study {study.name!r} exists in {self.file}; resume it with the settings it was made with, or "
                    f"{_NEW_STUDY}"
                )
            row = study_to_row(study)
            session.add(row)
            session.flush()
            return row_to_study(row, None, StudyCounts())

    def find_study(self, name: str) -> StudyRecord | None:
        """The study of that name, None when there is none."""
        with self.reading() as session:
            row = _by_name(session, name)
            return None if row is None else _study_record(session, row)

    def find_or_raise_study(self, name: str) -> StudyRecord:
        """The study of that name.

        Raises:
            StoreError: there is none; names those there are.
        """
        study = self.find_study(name)
        if study is None:
            raise self._unknown(name)
        return study

    def studies(self) -> list[StudyRecord]:
        """Every study with its counts, oldest first."""
        with self.reading() as session:
            return [_study_record(session, row) for row in session.scalars(select(StudyRow).order_by(StudyRow.id))]

    def remove_study(self, name: str) -> None:
        """Deletes the study with all its candidates; Optuna's study of that name is Optuna's to delete.

        Raises:
            StoreError: there is none of that name.
        """
        with self.writing() as session:
            row = _by_name(session, name)
            if row is not None:
                session.execute(delete(StudyRow).where(StudyRow.id == row.id))  # the rest cascades
                return
        raise self._unknown(name)

    def check_fingerprints(
        self, study: StudyRecord, fingerprints: Mapping[str, str], device: Mapping[str, str] | None = None
    ) -> None:
        """Returns when a run with these fingerprints may continue the study.

        Args:
            study: what is to be continued.
            fingerprints: those of the task as it is now.
            device: fingerprint of the device as it is now; None to leave it unchecked.

        Raises:
            StoreError: one differs; the first is named with both values.
        """
        task = "" if study.task_reference is None else f" of task {study.task_reference}"
        kinds = [("", study.fingerprints, fingerprints)]
        if device is not None:
            kinds.append(("device ", study.device, device))
        for kind, before, after in kinds:
            for field in (*before, *(field for field in after if field not in before)):
                old, new = before.get(field), after.get(field)
                if old != new:
                    raise StoreError(
                        f"study {study.name!r}{task} in {self.file} was made with {kind}{field} {_shown(old)}, and this "
                        f"run has {_shown(new)}; restore the former to resume it, or {_NEW_STUDY}"
                    )

    def save_layers(self, study_id: int, layers: Iterable["Layer"]) -> None:
        """Keeps the layers of the study's program, in program order; replaces what was kept."""
        with self.writing() as session:
            self._study(session, study_id)
            session.execute(delete(LayerRow).where(LayerRow.study_id == study_id))
            session.add_all(layer_to_row(study_id, position, layer) for position, layer in enumerate(layers))

    def save_kernels(self, study_id: int, choice: KernelChoice) -> None:
        """Keeps the kernels that a study runs with."""
        with self.writing() as session:
            session.execute(update(StudyRow).where(StudyRow.id == study_id).values(kernels=choice_to_json(choice)))

    def layers(self, study_id: int) -> tuple["Layer", ...]:
        """The layers of the study's program, in program order."""
        with self.reading() as session:
            query = select(LayerRow).where(LayerRow.study_id == study_id).order_by(LayerRow.position)
            return tuple(row_to_layer(row) for row in session.scalars(query))

    def save_probe(self, device: Mapping[str, str], key: str, value: Any) -> None:
        """Keeps a JSON value found out about a device, in place of an earlier one."""
        digest = _device_hash(device)
        with self.writing() as session:
            session.execute(delete(ProbeRow).where(ProbeRow.device_hash == digest, ProbeRow.key == key))
            session.add(ProbeRow(device_hash=digest, device=dict(device), key=key, value=value, taken=now()))

    def find_probe(self, device: Mapping[str, str], key: str) -> Any:
        """What was found out about a device with exactly this fingerprint; None when nothing was."""
        with self.reading() as session:
            query = select(ProbeRow.value).where(ProbeRow.device_hash == _device_hash(device), ProbeRow.key == key)
            return session.scalars(query).one_or_none()

    def _unknown(self, name: str) -> StoreError:
        with self.reading() as session:
            names = session.scalars(select(StudyRow.name).order_by(StudyRow.name)).all()
        if not names:
            return StoreError(f"no study {name!r} in {self.file}, which holds none yet; run `tuner search` first")
        return StoreError(f"no study {name!r} in {self.file}; choose one of {', '.join(names)}")


def _is_current(engine: Engine, file: Path) -> bool:
    """False when the schema is older than ours.

    Raises:
        StoreError: the file holds none of our tables, or a newer version wrote it.
    """
    try:
        with translated(file):
            steps = migrations.pending(engine, file)
        if steps is None:
            raise _no_studies(file)
    except BaseException:
        engine.dispose()
        raise
    return not steps


def _no_studies(file: Path) -> StoreError:
    return StoreError(
        f"{file} holds no studies of this tool; run `tuner search` to make one, or name another file with "
        "--storage sqlite:///FILE"
    )


def _by_name(session: Session, name: str) -> StudyRow | None:
    return session.scalars(select(StudyRow).where(StudyRow.name == name)).one_or_none()


def _study_record(session: Session, row: StudyRow) -> StudyRecord:
    baseline = (
        select(OutcomeRow)
        .join(CandidateRow, OutcomeRow.candidate_id == CandidateRow.id)
        .where(CandidateRow.study_id == row.id, CandidateRow.label == BASELINE, OutcomeRow.kind == SEARCH)
        .order_by(CandidateRow.id)
    )
    return row_to_study(row, session.scalars(baseline).first(), _counts(session, row.id))


def _counts(session: Session, study_id: int) -> StudyCounts:
    outcomes = (
        select(OutcomeRow.failure_cause, func.count())
        .join(CandidateRow, OutcomeRow.candidate_id == CandidateRow.id)
        .where(CandidateRow.study_id == study_id, OutcomeRow.kind == SEARCH)
        .group_by(OutcomeRow.failure_cause)
    )
    by_cause: dict[str | None, int] = {row[0]: row[1] for row in session.execute(outcomes)}
    mine = CandidateRow.study_id == study_id
    running = select(func.count()).select_from(CandidateRow).where(mine, CandidateRow.finished.is_(None))
    on_front = select(func.count()).select_from(FrontRow).where(FrontRow.study_id == study_id)
    references = select(func.count()).select_from(CandidateRow).where(mine, CandidateRow.policy.is_(None))
    pruned = sum(by_cause.get(cause, 0) for cause in (SLOW, LOSER))
    measured = by_cause.get(None, 0)
    return StudyCounts(
        measured=measured,
        pruned=pruned,
        failed=sum(by_cause.values()) - measured - pruned,
        running=session.scalars(running).one(),
        on_front=session.scalars(on_front).one(),
        references=session.scalars(references).one(),
    )


def _device_hash(device: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(device), sort_keys=True).encode()).hexdigest()


def _shown(value: str | None) -> str:
    """A fingerprint for a message: digests are cut to what tells them apart."""
    if value is None:
        return "no value"
    return f"{value[:12]}..." if len(value) == 64 else repr(value)
