"""Kill -9 of the search, of the process it measures in, and of both, at random moments, again and again."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.kill_bench import CHILD, make_bench, measured, search
from tests.optuna_files import load_study
from tuner.front import OBJECTIVES, Point, pareto
from tuner.measurement import CRASH, Failure, Measurement

ROOT = Path(__file__).resolve().parent.parent
# KILLS=100 pytest tests/test_search_kills.py for more of the same.
ROUNDS = int(os.environ.get("KILLS", "15"))
SEED = int(os.environ.get("KILLS_SEED", "1"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * ROUNDS)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and asks /proc")
def test_kills_lose_nothing_but_what_was_running(tmp_path):
    command = [sys.executable, "-m", "tests.kill_bench", str(tmp_path), str(ROUNDS), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * ROUNDS, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == ROUNDS

    before: dict[str, str] = {}
    for one in rounds:
        begun = [line.split()[1] for line in one["log"] if line.startswith("begin")]
        ended = [line.split()[1] for line in one["log"] if line.startswith("end")]
        assert set(begun).isdisjoint(before), "measured again although its measurement was kept"
        assert len(begun) == len(set(begun))
        assert len(set(ended) - set(one["measured"])) <= 1, "more was lost than what was running"
        assert {key: one["measured"][key] for key in before} == before
        before = one["measured"]
    assert any(one["survived"] for one in rounds if one["killed"] == CHILD)
    assert len(before) >= ROUNDS // 2
    check_resumed(tmp_path, before)


def check_resumed(folder, before):
    """The same search once more, to an end this time; then everything adds up."""
    bench = make_bench(folder)
    search(bench, folder, trials=len(before) + 5, seconds=0.0)
    after = measured(folder)
    assert {key: after[key] for key in before} == before

    candidates = bench.candidates()
    outcomes = [candidate.outcome for candidate in candidates]
    assert None not in outcomes
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert failures, "none of the children was killed while it measured"
    assert {failure.cause for failure in failures} == {CRASH}
    assert all("SIGKILL" in failure.message for failure in failures)

    points = [
        Point(trial=one.trial, label=one.label, policy=one.policy, measurement=one.outcome)
        for one in candidates
        if isinstance(one.outcome, Measurement)
    ]
    assert {p.trial for p in pareto(points, OBJECTIVES)} == {one.trial for one in candidates if one.on_front}

    states = [trial.state.name for trial in load_study(bench.url).trials]
    assert "RUNNING" not in states
    with closing(sqlite3.connect(folder / "precision.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
