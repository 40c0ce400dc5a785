"""The whole path on a real model, in processes of their own: search, look, export, verify, apply; and a kill in between."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tuner

TASK = "studies.digits_mlp"
# The device's lock makes a search wait for whoever measures on this machine at the same time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*argv: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "tuner", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout


def outcomes() -> dict[str, tuple[int, str]]:
    """Key -> (trial, when finished) of every candidate with an outcome, read without our own code."""
    with sqlite3.connect("file:precision.db?mode=ro", uri=True) as connection:
        query = "SELECT key, trial, finished FROM tuner_candidate WHERE finished IS NOT NULL"
        found = {key: (trial, finished) for key, trial, finished in connection.execute(query)}
    connection.close()
    return found


def test_search_look_export_verify_prepare():
    out = run("search", TASK, "--trials", "8")
    assert "astype(bf16)" in out
    front = json.loads(run("front", "digits_mlp", "--json"))
    assert front["format"] == 1
    trials = run("trials", "digits_mlp", "--csv").splitlines()
    assert len(trials) == 1 + 8
    confirmed = [point for point in front["points"] if point["confirmed"]]
    assert [point for point in front["points"] if point["policy"] and not point["confirmed"]] == []
    for point in front["points"]:
        assert point["latency_low"] <= point["latency_ratio"] <= point["latency_high"]
        assert point["drop_low"] <= point["quality_drop"] <= point["drop_high"]

    smallest = min(confirmed, key=lambda point: point["weight_bytes"])
    run("export", "digits_mlp", "--point", str(smallest["trial"]), "-o", "policy.json")
    policy = tuner.load_policy("policy.json")
    assert {name: str(precision) for name, precision in policy.precisions.items()} == smallest["policy"]

    # The verdict on latency belongs to the machine's mood; that there is one, and what it says of quality, does not.
    command = [sys.executable, "-m", "tuner", "verify", "policy.json", TASK, "--json"]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    form = json.loads(verified.stdout)
    assert verified.returncode == (0 if form["holds"] else 1)
    assert form["quality_holds"]
    assert form["differences"] == {}

    apply_and_compare(policy, smallest)


def apply_and_compare(policy: tuner.Policy, point: dict[str, object]) -> None:
    """What was exported is what was measured: same weights, same quality on the same examples."""
    task = tuner.load_task(TASK)
    model = tuner.prepare(task.apply, task.params, policy)
    assert model.weight_bytes == point["weight_bytes"]
    hits = []
    for inputs, labels, mask in task.search.batches(task.batch_size):
        outputs = model(model.params, *model.cast_inputs(*inputs))
        hits.append((np.asarray(outputs).argmax(-1) == labels)[mask])
    assert abs(np.concatenate(hits).mean() - point["quality"]) < 0.005


def test_a_killed_search_resumes_and_measures_nothing_twice():
    command = [sys.executable, "-m", "tuner", "search", TASK, "--trials", "6", "--seed", "3"]
    search = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_outcomes(search, 3)
    finally:
        search.kill()
        search.wait()
    before = outcomes()
    run("search", TASK, "--trials", "6", "--seed", "3")
    after = outcomes()
    assert {key: after[key] for key in before} == before
    trials = [trial for trial, _ in after.values() if trial >= 0]
    assert len(trials) == len(set(trials)) == 6
    assert running_trials() == 0
    front = json.loads(run("front", "digits_mlp", "--json"))
    assert all(point["confirmed"] for point in front["points"] if point["policy"])


def test_control_c_ends_cleanly_with_130():
    command = [sys.executable, "-m", "tuner", "search", TASK, "--trials", "50"]
    search = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_outcomes(search, 1)
        os.kill(search.pid, signal.SIGINT)
        _, err = search.communicate(timeout=120)
    finally:
        search.kill()
    assert search.returncode == 130, err
    assert "Traceback" not in err
    assert "The same command goes on from here." in err
    assert running_trials() == 0


def wait_for_outcomes(search: "subprocess.Popen[str] | subprocess.Popen[bytes]", count: int) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        if search.poll() is not None:
            pytest.fail(f"the search ended by itself with {search.returncode}")
        if Path("precision.db").exists():
            try:
                if len(outcomes()) >= count:
                    return
            except sqlite3.OperationalError:  # its tables are being made
                pass
        time.sleep(0.1)
    pytest.fail("the search measured too little in 400 s")


def running_trials() -> int:
    """How many of Optuna's trials say that they run."""
    with sqlite3.connect("file:precision.db?mode=ro", uri=True) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM trials WHERE state = 'RUNNING'").fetchall()
    connection.close()
    return count
