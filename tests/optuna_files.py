"""Optuna's own way into a database, as other tools take it, with every connection closed after its use."""

import optuna
from optuna.storages import RDBStorage
from sqlalchemy.pool import NullPool


def open_storage(url: str) -> RDBStorage:
    # Optuna never closes the engine that it makes of a plain URL, and Python 3.13 says so.
    return RDBStorage(url, engine_kwargs={"poolclass": NullPool})


def load_study(url: str, name: str = "bench") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=open_storage(url))
