import sqlite3

import optuna
import pytest
from sqlalchemy import create_engine, text

from tests.factories import make_study
from tuner.errors import StoreError
from tuner.search.objective import directions
from tuner.search.optuna_study import OptunaStudy, check_optuna, delete_optuna_study, quiet_optuna
from tuner.store import Store

LAYER = {"layer": optuna.distributions.CategoricalDistribution(("original", "i8/i8/i32"))}
LOCKED = r"^precision\.db is locked by another process; wait for that one to finish"


def make(store):
    return OptunaStudy(store, "digits", directions(("latency",), True), optuna.samplers.RandomSampler(seed=0))


@pytest.fixture
def store():
    with quiet_optuna(), Store.open(timeout_s=0.05) as store:
        store.create_study(make_study())
        yield store


@pytest.fixture
def locked():
    """Call it to lock the file against writers."""
    blocker = sqlite3.connect("precision.db", isolation_level=None)
    yield lambda: blocker.execute("BEGIN IMMEDIATE")
    blocker.close()


def test_a_locked_file_is_named_wherever_optuna_meets_it(store, locked):
    study = make(store)
    asked = study.ask(LAYER)
    locked()
    with pytest.raises(StoreError, match=LOCKED):
        make(store)
    with pytest.raises(StoreError, match=LOCKED):
        study.ask(LAYER)
    with pytest.raises(StoreError, match=LOCKED):
        study.tell(asked.number, optuna.trial.TrialState.COMPLETE, [1.0], {})
    with pytest.raises(StoreError, match=LOCKED):
        delete_optuna_study(store, "digits")
    assert [trial.number for trial in study.running()] == [asked.number]


def test_tables_of_a_newer_optuna_are_named_and_what_to_do(store):
    make(store)
    engine = create_engine(store.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE version_info SET library_version = '9.0'"))
        connection.execute(text("UPDATE alembic_version SET version_num = 'v9.0.0.a'"))
    engine.dispose()
    message = (
        r"^precision\.db holds the tables of another version of Optuna: .*set up by optuna 9\.0\)\. Please try updating "
        r"optuna .*`; or choose another file with --storage sqlite:///FILE$"
    )
    for attempt in (lambda: make(store), lambda: check_optuna(store), lambda: delete_optuna_study(store, "digits")):
        with pytest.raises(StoreError, match=message):
            attempt()
