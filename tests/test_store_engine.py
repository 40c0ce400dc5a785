import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.factories import make_study
from tuner.errors import StoreError
from tuner.store import Store
from tuner.store.engine import locate
from tuner.store.migrations import MIGRATIONS


def pragma(engine, name):
    with engine.connect() as connection:
        return connection.execute(text(f"PRAGMA {name}")).scalar_one()


def pragmas(engine):
    return {name: pragma(engine, name) for name in ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")}


def test_ours_and_optunas_connections_have_the_same_pragmas():
    from optuna.storages import RDBStorage

    with Store.open(timeout_s=7) as store:
        expected = {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 7000, "synchronous": 1}
        assert pragmas(store.engine) == expected
        storage = RDBStorage(store.url, engine_kwargs=store.engine_options)
        assert pragmas(storage.engine) == expected
        storage.engine.dispose()


def test_other_engines_are_left_alone(tmp_path):
    with Store.open():
        engine = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
        assert pragma(engine, "foreign_keys") == 0
        engine.dispose()


def test_optuna_works_and_deletes_in_the_same_file():
    import optuna
    from optuna.storages import RDBStorage

    with Store.open() as store:
        store.create_study(make_study())
        storage = RDBStorage(store.url, engine_kwargs=store.engine_options)
        study = optuna.create_study(storage=storage, study_name="digits", directions=["minimize", "maximize"])
        trial = study.ask()
        trial.suggest_categorical("layer", ["original", "i8/i8/i32"])
        trial.set_user_attr("key", "value")
        study.tell(trial, [0.5, 0.9])
        optuna.delete_study(study_name="digits", storage=storage)
        assert optuna.get_all_study_names(storage) == []
        assert store.find_study("digits") is not None
        storage.engine.dispose()


def test_what_optuna_meets_is_explained_too(tmp_path):
    from optuna.storages import RDBStorage
    from optuna.study import StudyDirection

    with Store.open(timeout_s=0.05) as store:
        storage = RDBStorage(store.url, engine_kwargs=store.engine_options)
        blocker = sqlite3.connect("precision.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"precision\.db is locked by another process"), store.translating():
            storage.create_new_study([StudyDirection.MINIMIZE], "digits")
        blocker.close()
        storage.engine.dispose()


def test_other_errors_pass_unchanged():
    with Store.open() as store:
        with pytest.raises(ZeroDivisionError), store.translating():
            _ = 1 / 0
        with pytest.raises(StoreError, match="as it was"), store.translating():
            raise StoreError("as it was")


def test_what_a_transaction_wrote_is_gone_when_it_fails():
    with Store.open() as store:
        with suppress(RuntimeError), store.writing() as session:
            session.execute(text("DELETE FROM tuner_schema"))
            raise RuntimeError("killed here")
        with store.reading() as session:
            assert session.execute(text("SELECT count(*) FROM tuner_schema")).scalar_one() == len(MIGRATIONS)


def test_a_reader_sees_one_state_while_others_write():
    count = text("SELECT count(*) FROM tuner_study")
    with Store.open() as one, Store.open() as other:
        with one.reading() as session:
            assert session.execute(count).scalar_one() == 0
            other.create_study(make_study())
            assert session.execute(count).scalar_one() == 0
        with one.reading() as session:
            assert session.execute(count).scalar_one() == 1


OPENER = "import sys; from tuner.store import Store\nfor _ in range(5):\n    with Store.open(): pass\n"


def test_processes_that_open_a_new_file_at_once_do_not_collide(tmp_path):
    started = [subprocess.Popen([sys.executable, "-c", OPENER], stderr=subprocess.PIPE) for _ in range(3)]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert errors == [b""] * 3


@pytest.mark.parametrize(
    ("storage", "url", "file"),
    [
        ("sqlite:///precision.db", "sqlite:///precision.db", "precision.db"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db", "/tmp/a.db"),
        ("runs/a b.db", "sqlite:///runs/a b.db", "runs/a b.db"),
        (Path("/tmp/a.db"), "sqlite:////tmp/a.db", "/tmp/a.db"),
    ],
)
def test_a_storage_is_a_url_or_a_path(storage, url, file):
    assert locate(storage) == (url, Path(file))


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("sqlite://", "storage 'sqlite://' names no file that processes can share; write sqlite:///FILE"),
        ("sqlite:///:memory:", "storage 'sqlite:///:memory:' names no file that processes can share"),
        ("sqlite:///a.db?mode=ro", "names no file that processes can share"),
        ("", "storage '' names no file"),
        ("postgresql://me:secret@host/db", "storage 'postgresql://me:***@host/db' is not available yet"),
        ("file://a.db", "storage 'file://a.db' is not available yet: studies are kept in SQLite files"),
        ("://", "storage '://' is not a database URL; write sqlite:///FILE, for example sqlite:///precision.db"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named(storage, message):
    with pytest.raises(StoreError) as caught:
        locate(storage)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
