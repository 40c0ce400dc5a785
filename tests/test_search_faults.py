"""What a long search meets: a full disk, a file made read-only, a clock set back, other searches and viewers on the file."""

import json
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from tests.optuna_files import load_study
from tests.search_bench import Bench, FakeEvaluator
from tuner.errors import StoreError
from tuner.front import OBJECTIVES, Point, pareto
from tuner.measurement import Measurement
from tuner.store import convert
from tuner.study import open_study

ROOT = Path(__file__).resolve().parent.parent


def check_whole(bench):
    """Nothing is lost, doubled or left running, and the front is that of the stored measurements."""
    candidates = bench.candidates()
    assert all(one.outcome is not None for one in candidates)
    assert len({one.key for one in candidates}) == len(candidates)
    points = [
        Point(trial=one.trial, label=one.label, policy=one.policy, measurement=one.outcome)
        for one in candidates
        if isinstance(one.outcome, Measurement)
    ]
    assert {p.trial for p in pareto(points, OBJECTIVES)} == {one.trial for one in candidates if one.on_front}
    states = [trial.state.name for trial in load_study(bench.url, bench.name).trials]
    assert "RUNNING" not in states
    connection = sqlite3.connect(bench.file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "precision.db", layers=6)


@pytest.fixture
def pragma():
    """Makes every connection of this process meet a fault, once it is set; SQLite itself raises it."""
    faults = []

    def apply(connection, _record, _proxy=None):
        for text in faults:
            connection.execute(text)

    event.listen(Pool, "checkout", apply)
    event.listen(Pool, "connect", apply)
    yield faults
    event.remove(Pool, "checkout", apply)
    event.remove(Pool, "connect", apply)


@pytest.mark.parametrize(
    ("fault", "mended", "words"),
    [
        ("PRAGMA max_page_count=1", "PRAGMA max_page_count=1073741823", "cannot grow because the disk is full; free"),
        ("PRAGMA query_only=ON", "PRAGMA query_only=OFF", "is read-only; make the file and its folder writable"),
    ],
)
@pytest.mark.parametrize("after", [3, 9])
def test_a_disk_that_fills_up_ends_the_search_with_a_sentence_and_a_resume_goes_on(
    bench, pragma, fault, mended, words, after
):
    def strike(count):
        if count == after:
            pragma[:] = [fault]

    with pytest.raises(StoreError, match=words):
        bench.search(trials=400, evaluator=FakeEvaluator(strike))
    pragma[:] = [mended]
    kept = [one.key for one in bench.candidates() if one.outcome is not None]
    assert len(kept) >= after
    again = FakeEvaluator()
    bench.search(trials=len(kept) + 5, evaluator=again)
    assert {policy.hash for policy in again.measured}.isdisjoint(kept)
    check_whole(bench)


def test_a_clock_set_back_changes_nothing(bench, monkeypatch):
    bench.search(trials=6)
    before = [one.key for one in bench.candidates()]
    monkeypatch.setattr(convert, "now", lambda: (datetime.now(UTC) - timedelta(days=400)).isoformat())
    again = FakeEvaluator()
    bench.search(trials=12, evaluator=again)
    assert [one.key for one in bench.candidates()][: len(before)] == before
    assert {policy.hash for policy in again.measured}.isdisjoint(before)
    check_whole(bench)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("bench", "bench"), ("bench", "other")])
def test_searches_on_one_file_at_once_measure_everything_once_while_others_look_on(tmp_path, names):
    bench = Bench(tmp_path / "precision.db", layers=6)
    bench.search(trials=2)  # both resume: who begins a study first is another matter
    for name in names:
        Bench(bench.file, layers=6, name=name).search(trials=2)
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fault_bench", str(bench.file), name, "60", str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number, name in enumerate(names)
    ]
    looked, problems, ended = [], [], threading.Event()

    def look():
        while not ended.is_set():
            try:
                study = open_study(names[0], bench.url)
                looked.append((len(study.trials()), len(study.front()), repr(study.front())))
            except Exception as problem:  # noqa: BLE001  whatever it is, a viewer must never see it
                problems.append(problem)

    viewer = threading.Thread(target=look)
    viewer.start()
    said = [run.communicate(timeout=240) for run in runs]
    ended.set()
    viewer.join()
    assert [run.returncode for run in runs] == [0, 0], [err for _, err in said]
    assert problems == []
    assert len(looked) > 10
    measured = [json.loads(out) for out, _ in said]
    if names[0] == names[1]:
        assert not set(measured[0]) & set(measured[1])
    for name in names:
        check_whole(Bench(bench.file, layers=6, name=name))
