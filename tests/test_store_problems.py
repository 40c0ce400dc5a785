import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.factories import make_measurement, make_policy, make_study
from tests.test_files import ordinary_user
from tuner.errors import StoreError
from tuner.store import Owner, Store

ELSEWHERE = "--storage sqlite:///FILE"


def refusal(function, *args, **kwargs):
    with pytest.raises(StoreError) as caught:
        function(*args, **kwargs)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture
def folder():
    """A folder that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_missing_file_is_named_and_not_made(tmp_path):
    for kwargs in ({"create": False}, {"read_only": True}):
        assert refusal(Store.open, "sqlite:///precision.db", **kwargs) == (
            "precision.db does not exist; run `tuner search` to make it, or name another file with " + ELSEWHERE
        )
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_our_tables_is_named_and_not_changed(tmp_path):
    for kwargs in ({"create": False}, {"read_only": True}):
        connection = sqlite3.connect("other.db")
        connection.execute("CREATE TABLE IF NOT EXISTS mine (x)")
        connection.close()
        assert refusal(Store.open, "other.db", **kwargs) == (
            "other.db holds no studies of this tool; run `tuner search` to make one, or name another file with "
            + ELSEWHERE
        )
    connection = sqlite3.connect("other.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    connection.close()


@pytest.mark.parametrize("kwargs", [{}, {"create": False}, {"read_only": True}])
def test_a_file_that_is_no_database_is_named_and_not_changed(tmp_path, kwargs):
    (tmp_path / "notes.txt").write_text("something else\n" * 100)
    assert refusal(Store.open, "notes.txt", **kwargs) == (
        "notes.txt is not a SQLite database; choose another file with " + ELSEWHERE
    )
    assert (tmp_path / "notes.txt").read_text() == "something else\n" * 100


def test_a_damaged_file_is_named(tmp_path):
    with Store.open() as store:
        for number in range(30):
            store.create_study(make_study(f"study {number}"))
    file = tmp_path / "precision.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    for kwargs in ({}, {"read_only": True}):
        assert refusal(Store.open, **kwargs) == (
            "precision.db is damaged; restore a copy of it, or move it away and run `tuner search` again"
        )


def test_a_file_cut_short_is_named(tmp_path):
    with Store.open():
        pass
    os.truncate("precision.db", 6000)
    assert "precision.db is damaged" in refusal(Store.open)


def test_a_lost_table_is_named():
    with Store.open() as store:
        with store.writing() as session:
            session.execute(text("DROP TABLE tuner_layer"))
        message = refusal(store.layers, 1)
    assert message.startswith("precision.db lacks a part of its tables (no such table: tuner_layer); restore a copy")


def test_a_locked_file_is_named():
    with Store.open(timeout_s=0.05) as store:
        blocker = sqlite3.connect("precision.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        message = refusal(store.create_study, make_study())
        assert message == (
            "precision.db is locked by another process; wait for that one to finish or stop it, then run the same "
            "command again"
        )
        assert store.studies() == []  # reading needs no lock
        blocker.close()
        store.create_study(make_study())


def test_a_new_file_locked_by_another_program_is_named():
    blocker = sqlite3.connect("precision.db", isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    assert "precision.db is locked by another process" in refusal(Store.open, timeout_s=0.05)
    blocker.close()


def test_a_full_disk_is_named_and_the_trial_can_be_recorded_later():
    with Store.open() as store:
        study = store.create_study(make_study())
        claimed = store.claim(study.id, key="k", policy=make_policy(), label="baseline", trial=0, owner=Owner.current())
        with store.engine.connect() as connection:
            pages = connection.execute(text("PRAGMA page_count")).scalar_one()
            connection.execute(text(f"PRAGMA max_page_count={pages}"))
        effective = {f"layer {number}": "as requested" for number in range(2000)}
        outcome = make_measurement(effective=effective)
        assert refusal(store.record, claimed, outcome) == (
            "precision.db cannot grow because the disk is full; free some space, then run the same command again to "
            "resume"
        )
        (candidate,) = store.candidates(study.id)
        assert candidate.outcome is None
        assert not candidate.on_front
        with store.engine.connect() as connection:
            connection.execute(text("PRAGMA max_page_count=1000000"))
        store.record(claimed, outcome)
        assert store.candidates(study.id)[0].on_front


def test_a_folder_in_the_place_of_the_file_or_a_missing_folder_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    assert refusal(Store.open, "folder") == (
        "folder cannot be opened: it is a folder; name a file in it with " + ELSEWHERE
    )
    assert refusal(Store.open, "no/such.db") == (
        "no/such.db cannot be opened: there is no folder no; make it first, or choose another file with " + ELSEWHERE
    )
    assert refusal(Store.open, "folder", read_only=True).startswith("folder cannot be opened: it is a folder")


def test_whether_a_file_is_there_is_found_without_making_it(tmp_path):
    assert not Store.exists("sqlite:///precision.db")
    assert list(tmp_path.iterdir()) == []
    with Store.open():
        assert Store.exists()
    assert refusal(Store.exists, "no/such.db").startswith("no/such.db cannot be opened: there is no folder no")


def test_what_could_not_be_written_later_is_said_now():
    with Store.open(timeout_s=0.05) as store:
        store.check_writable()
        blocker = sqlite3.connect("precision.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        assert refusal(store.check_writable).startswith("precision.db is locked by another process")
        blocker.close()


def test_a_read_only_file_can_be_read_and_names_itself_when_written(folder):
    file = folder / "precision.db"
    with Store.open(file) as store:
        store.create_study(make_study())
    file.chmod(0o444)
    folder.chmod(0o777)
    with ordinary_user():
        with Store.open(file, read_only=True) as store:
            assert [study.name for study in store.studies()] == ["digits"]
        messages = {refusal(Store.open, file), refusal(Store.open, file, create=False)}
    assert messages == {
        f"{file} is read-only; make the file and its folder writable, or choose another file with {ELSEWHERE}"
    }
    assert list(folder.iterdir()) == [file]  # no journal files either


def test_a_file_in_a_read_only_folder_can_be_read(folder):
    file = folder / "precision.db"
    with Store.open(file) as store:
        store.create_study(make_study())
    folder.chmod(0o555)
    with ordinary_user():
        with Store.open(file, read_only=True) as store:
            assert [study.name for study in store.studies()] == ["digits"]
            assert "precision.db is read-only" in refusal(store.create_study, make_study("another"))
        assert f"{file} " in refusal(Store.open, file)


def test_unsaved_pages_in_a_read_only_folder_are_not_overlooked(folder):
    source = folder / "source"
    source.mkdir()
    with Store.open(source / "precision.db") as store:
        store.create_study(make_study())
        target = folder / "copy"
        target.mkdir()
        for name in ("precision.db", "precision.db-wal"):  # as after a crash; without the lock file
            shutil.copy(source / name, target / name)
    target.chmod(0o555)
    with ordinary_user():
        assert refusal(Store.open, target / "precision.db", read_only=True) == (
            f"{target / 'precision.db'} cannot be opened; make precision.db and its folder {target} readable and "
            f"writable, or choose another file with {ELSEWHERE}"
        )
    target.chmod(0o755)
    with Store.open(target / "precision.db", read_only=True) as store:
        assert len(store.studies()) == 1


@pytest.mark.parametrize("attempt", [Store.open, Store.exists])
def test_a_new_file_in_a_read_only_folder_is_named(folder, attempt):
    folder.chmod(0o555)
    with ordinary_user():
        assert f"make precision.db and its folder {folder} readable and writable" in refusal(
            attempt, folder / "precision.db"
        )
    assert list(folder.iterdir()) == []


def test_a_file_that_may_not_be_read_is_named(folder):
    file = folder / "precision.db"
    with Store.open(file):
        pass
    file.chmod(0o000)
    with ordinary_user():
        assert "make precision.db and its folder" in refusal(Store.open, file, read_only=True)


def test_what_sqlite_has_no_sentence_for_is_shown_as_it_is():
    with Store.open() as store:

        def misuse():
            with store.reading() as session:
                session.execute(text("SELEC"))

        assert refusal(misuse) == (
            'precision.db: the database refused (near "SELEC": syntax error); please report this'
        )
