"""Optuna's side of a study: in the same database, under the same name, readable by any Optuna tool, and quiet.

The sampler works on a copy in memory. Asked through the database, Optuna reads all its trials several times and writes
one transaction per layer; here each trial is two writes, one when it begins and one when it ends.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import InputError, StoreError
from tuner.store import Store

# The one user attribute of a trial, written in one transaction: what Optuna's own columns cannot hold.
ATTRIBUTE = "tuner"


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial that runs: its number in the database, and what the sampler proposes for it."""

    number: int
    params: dict[str, str]


class OptunaStudy:
    """Trials of one study, in Optuna's tables.

    Args:
        store: whose database it is.
        name: of the study, there and here.
        directions: one per objective.
        sampler: proposes.

    Every method raises StoreError when the file is locked, read-only, damaged, or on a full disk.

    Raises:
        InputError: an Optuna study of that name exists and has other objectives.
        StoreError: Optuna's tables are of a version that this one cannot use.
    """

    def __init__(self, store: Store, name: str, directions: Sequence[StudyDirection], sampler: BaseSampler) -> None:
        self._store = store
        self._storage = _open_storage(store)
        with store.translating():
            study = optuna.create_study(
                storage=self._storage, study_name=name, directions=list(directions), load_if_exists=True
            )
            self._id = self._storage.get_study_id_from_name(name)
        if list(study.directions) != list(directions):
            raise InputError(
                f"the database has an Optuna study {name!r} with other objectives; choose another name with --study"
            )
        self._copy = optuna.create_study(directions=list(directions), sampler=sampler)
        # Number in the database -> trial of the copy, for those that run now.
        self._running: dict[int, optuna.Trial] = {}

    def load(self) -> None:
        """Show the sampler what earlier runs told."""
        finished = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
        self._copy.add_trials(self._trials(finished))

    def running(self) -> list[FrozenTrial]:
        """Trials of any process that began and were never told."""
        return self._trials((TrialState.RUNNING,))

    def ask(self, distributions: Mapping[str, BaseDistribution]) -> Asked:
        """A new trial with one parameter per distribution."""
        trial = self._copy.ask(dict(distributions))
        frozen = self._copy.get_trials(deepcopy=False)[trial.number]
        template = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=dict(trial.params),
            distributions=dict(distributions),
            system_attrs=dict(frozen.system_attrs),  # NSGA-II counts generations there
        )
        with self._store.translating():
            number = self._storage.get_trial_number_from_id(self._storage.create_new_trial(self._id, template))
        self._running[number] = trial
        return Asked(number, dict(trial.params))

    def tell(
        self,
        number: int,
        state: TrialState,
        values: Sequence[float] | None,
        facts: Mapping[str, Any],
        constraints: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """End a trial, unless it has ended: in the database first, then for the sampler.

        Args:
            number: of the trial.
            state: that it ends in.
            values: one per objective.
            facts: what Optuna has no place for.
            constraints: name -> number that is above zero where the constraint is broken.
        """
        with self._store.translating():
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
            try:
                self._storage.set_trial_user_attr(trial_id, ATTRIBUTE, dict(facts))
                for name, value in constraints.items():  # where Trial.set_constraint keeps them
                    self._storage.set_trial_system_attr(trial_id, f"constraints:{name}", value)
                self._storage.set_trial_state_values(trial_id, state, values)
            except optuna.exceptions.UpdateFinishedTrialError:
                return
        trial = self._running.pop(number, None)
        if trial is not None:
            trial.set_user_attr(ATTRIBUTE, dict(facts))
            for name, value in constraints.items():
                trial.set_constraint(name, value)
            self._copy.tell(trial, values, state=state)

    def _trials(self, states: tuple[TrialState, ...]) -> list[FrozenTrial]:
        with self._store.translating():
            return self._storage.get_all_trials(self._id, deepcopy=False, states=states)


def check_optuna(store: Store) -> None:
    """Returns when Optuna can keep its part of a study in this database.

    Raises:
        StoreError: as for OptunaStudy.
    """
    _open_storage(store)


def delete_optuna_study(store: Store, name: str) -> None:
    """Remove Optuna's study of that name, if there is one.

    Raises:
        StoreError: as for OptunaStudy.
    """
    storage = _open_storage(store)
    with store.translating():
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna without its log lines and its warnings on what is experimental; as before afterwards."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _open_storage(store: Store) -> RDBStorage:
    try:
        with store.translating():
            return RDBStorage(store.url, engine_kwargs=dict(store.engine_options))
    except RuntimeError as problem:  # what Optuna raises when its tables are of another version
        said = " ".join(str(problem).split()).rstrip(".")
        raise StoreError(
            f"{store.file} holds the tables of another version of Optuna: {said}; or choose another file with "
            "--storage sqlite:///FILE"
        ) from problem
