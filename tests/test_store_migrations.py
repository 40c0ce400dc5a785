import math
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

import tuner
from tests.factories import DEVICE, SIGNATURE, make_layers, make_measurement, make_policy, make_study
from tests.optuna_files import open_storage
from tests.test_files import ordinary_user
from tuner.errors import StoreError
from tuner.store import Owner, Store, migrations
from tuner.store.migrations import MIGRATIONS, Migration

SCHEMA_1 = Path(__file__).parent / "assets" / "schema_1.db"


@pytest.fixture
def old(tmp_path):
    """The database of the first schema, to open and change."""
    return shutil.copy(SCHEMA_1, tmp_path / "precision.db")


def schema(file):
    """Every table and index of ours, as SQLite was told to make it."""
    connection = sqlite3.connect(file)
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE tbl_name LIKE 'tuner_%' AND sql IS NOT NULL ORDER BY name"
    ).fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows}


def ledger(file):
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT name, tool_version FROM tuner_schema ORDER BY applied, name").fetchall()
    connection.close()
    return rows


def test_a_new_file_has_seen_every_step():
    with Store.open():
        pass
    assert ledger("precision.db") == [(migration.name, tuner.__version__) for migration in MIGRATIONS]


def test_a_file_of_the_first_schema_becomes_what_a_new_one_is(old):
    with Store.open(old), Store.open("new.db"):
        pass
    assert schema(old) == schema("new.db")
    assert [name for name, _ in ledger(old)] == [migration.name for migration in MIGRATIONS]


@pytest.mark.parametrize("kwargs", [{}, {"create": False}, {"read_only": True}])
def test_a_file_of_the_first_schema_is_read(old, kwargs):
    with Store.open(old, **kwargs) as store:
        study = store.find_or_raise_study("schema 1")
        assert study.program == SIGNATURE
        assert study.baseline.latency.ratio == 1.0
        assert (study.counts.measured, study.counts.failed, study.counts.running) == (4, 1, 1)
        assert store.layers(study.id) == make_layers()
        assert store.find_probe(DEVICE, "kernel dense_0") == {"plain": 0.25}
        base, int8, nan, failed, waiting, cast = store.candidates(study.id)
        assert base.policy == make_policy()
        assert int8.confirmation.quality.drop == 0.006
        assert math.isnan(nan.outcome.quality.drop)
        latency = int8.outcome.latency
        assert all(math.isnan(value) for value in (latency.p95_ms, latency.throughput))
        assert (latency.calls, latency.baseline, latency.contended, study.refused) == (0, "resident", "", {})
        assert (dict(int8.outcome.metrics), dict(int8.confirmation.metrics), dict(study.constraints)) == ({}, {}, {})
        assert (dict(int8.outcome.shapes), dict(int8.confirmation.shapes)) == ({}, {})
        assert (failed.outcome.cause, failed.outcome.layer) == ("non-finite", "dense_1")
        assert waiting.outcome is None
        assert (cast.policy, cast.key) == (None, "cast:bf16")
        assert [c for c in store.candidates(study.id) if c.on_front] == [base, int8, cast]


def test_a_file_of_the_first_schema_is_used(old):
    import optuna
    from optuna.storages import RDBStorage

    with Store.open(old) as store:
        study = store.find_or_raise_study("schema 1")
        policy = make_policy("bf16", "bf16", "bf16")
        claimed = store.claim(study.id, key=policy.hash, policy=policy, label="new", trial=9, owner=Owner.current())
        store.record(claimed, make_measurement(0.2, 0.0, 1000))
        assert [c.label for c in store.candidates(study.id) if c.on_front] == ["new"]
        storage = RDBStorage(store.url, engine_kwargs=store.engine_options)
        assert optuna.get_all_study_names(storage) == ["schema 1"]
        storage.engine.dispose()
        store.remove_study("schema 1")
        assert store.studies() == []


def add_column(connection):
    connection.execute(text("ALTER TABLE tuner_study ADD COLUMN note VARCHAR"))


def fail_halfway(connection):
    add_column(connection)
    raise RuntimeError("killed here")


def with_step(monkeypatch, apply):
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, Migration(name="2_note", apply=apply)))


def test_an_old_file_takes_the_steps_that_it_has_not_seen_once(old, monkeypatch):
    with_step(monkeypatch, add_column)
    for _ in range(2):
        with Store.open(old, create=False) as store:
            assert store.find_study("schema 1") is not None
    assert "note VARCHAR" in schema(old)["tuner_study"]
    assert [name for name, _ in ledger(old)].count("2_note") == 1


def test_a_step_is_taken_whole_or_not_at_all(old, monkeypatch):
    with Store.open(old):
        pass
    before = schema(old)
    with_step(monkeypatch, fail_halfway)
    with pytest.raises(RuntimeError, match="killed here"):
        Store.open(old)
    assert schema(old) == before
    assert "2_note" not in [name for name, _ in ledger(old)]
    with_step(monkeypatch, add_column)
    with Store.open(old):
        pass
    assert "2_note" in [name for name, _ in ledger(old)]


def test_reading_an_old_file_brings_it_up_to_date_first(old, monkeypatch):
    with_step(monkeypatch, add_column)
    with Store.open(old, read_only=True) as store:
        assert store.find_study("schema 1") is not None
    assert "note VARCHAR" in schema(old)["tuner_study"]


def test_an_old_file_that_cannot_be_brought_up_to_date_is_named(monkeypatch):
    with_step(monkeypatch, add_column)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        old = Path(name) / "precision.db"
        shutil.copy(SCHEMA_1, old)
        old.chmod(0o444)
        Path(name).chmod(0o555)
        with ordinary_user(), pytest.raises(StoreError, match=r"precision\.db is read-only; make the file and its"):
            Store.open(old, read_only=True)


@pytest.mark.parametrize("kwargs", [{}, {"create": False}, {"read_only": True}])
def test_a_file_of_a_newer_version_is_named_and_left_alone(old, kwargs):
    connection = sqlite3.connect(old)
    connection.execute("INSERT INTO tuner_schema VALUES ('7_of_the_future', '2030-01-01', '9.1')")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError) as caught:
        Store.open(old, **kwargs)
    assert str(caught.value) == (
        f"{old} was written by jax-precision-tuner 9.1, whose schema '7_of_the_future' is newer than this version "
        f"({tuner.__version__}); upgrade with `pip install -U jax-precision-tuner`, or choose another file with "
        "--storage sqlite:///FILE"
    )


def test_our_tables_are_added_to_a_file_that_optuna_made():
    import optuna

    optuna.create_study(storage=open_storage("sqlite:///precision.db"), study_name="theirs")
    with Store.open() as store:
        store.create_study(make_study())
    assert "theirs" in optuna.get_all_study_names(open_storage("sqlite:///precision.db"))
