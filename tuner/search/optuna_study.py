"""Optuna's side of a study: in the same database, under the same name, and quiet."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection

from tuner.errors import InputError
from tuner.store import Store


def open_optuna_study(
    store: Store, name: str, directions: Sequence[StudyDirection], sampler: BaseSampler
) -> optuna.Study:
    """Optuna's study of that name, made when there is none.

    Raises:
        InputError: one that is not ours has the name.
    """
    storage = RDBStorage(store.url, engine_kwargs=dict(store.engine_options))
    study = optuna.create_study(
        storage=storage, study_name=name, directions=list(directions), sampler=sampler, load_if_exists=True
    )
    if list(study.directions) != list(directions):
        raise InputError(
            f"the database has an Optuna study {name!r} with other objectives; choose another name with --study"
        )
    return study


def delete_optuna_study(store: Store, name: str) -> None:
    """Remove Optuna's study of that name, if there is one."""
    storage = RDBStorage(store.url, engine_kwargs=dict(store.engine_options))
    if name in optuna.get_all_study_names(storage):
        optuna.delete_study(study_name=name, storage=storage)


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna without its log lines and its warnings on what is experimental; as before afterwards."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
