import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from tuner.measure import surroundings
from tuner.measure.device import lock_path
from tuner.measure.surroundings import check_surroundings
from tuner.measure.usage import Usage

USAGE = Usage(wall_s=0.0, own_s=0.0, busy_s=1.0, stolen_s=0.0, cpus=2, load=0.5)


@pytest.fixture(autouse=True)
def _calm(monkeypatch, tmp_path):
    monkeypatch.setattr(surroundings, "read_usage", lambda: USAGE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def checks(unlimited=None, database=Path("precision.db")):
    return {check.name: check for check in check_surroundings(database.absolute(), unlimited)}


def test_a_machine_that_has_everything_says_so():
    found = checks()
    assert [name for name, check in found.items() if not check.ok] == []
    assert found["isolation"].text == "candidates run in a process of their own"
    assert found["lock"].text == "free"
    assert found["database"].text.endswith(f" GB free in {Path.cwd()}")
    assert found["quiet machine"].text == "the load is 0.5 on 2 CPUs"


def test_what_is_missing_says_why(monkeypatch):
    monkeypatch.setattr(surroundings, "refusal", lambda platform: "a TPU belongs to one process at a time")
    busy = Usage(wall_s=0.0, own_s=0.0, busy_s=None, stolen_s=None, cpus=2, load=4.0)
    monkeypatch.setattr(surroundings, "read_usage", lambda: busy)
    found = checks("darwin has no limit on the memory of one process", Path("/no/such/folder/precision.db"))
    assert not any(found[name].ok for name in ("isolation", "memory limit", "database", "quiet machine"))
    assert found["memory limit"].text == "candidates have none: darwin has no limit on the memory of one process"
    assert found["database"].text == "/no/such/folder cannot be used: No such file or directory"
    assert (
        found["quiet machine"].text
        == "the load is 4.0 on 2 CPUs, and without /proc/stat neighbors show in timings alone"
    )


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path)
    check = surroundings._check_disk("database", tmp_path)
    assert (check.ok, check.text) == (False, f"{tmp_path} cannot be written")


def test_who_holds_the_lock_is_said():
    handle = os.open(lock_path(), os.O_RDWR | os.O_CREAT, 0o666)
    os.write(handle, b"process 7 on elsewhere")
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert checks()["lock"].text == "held by process 7 on elsewhere"
    os.close(handle)
    assert checks()["lock"].text == "free"


def test_a_lock_that_cannot_be_made_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    found = checks()
    assert not found["lock"].ok
    assert "), and two searches would disturb each other" in found["lock"].text
    assert not found["temp folder"].ok
