"""A search that is killed again and again: `python -m tests.kill_bench FOLDER ROUNDS SEED`, in a process without threads.

Everything is imported once and every round is a fork, so that a round costs what the search itself costs. Prints one JSON
line per round: what was killed, and what the database held afterwards.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from tests import misbehaving
from tests.search_bench import Bench
from tuner._jax_compat import backends_are_initialized
from tuner.drop import Drop
from tuner.measure import IsolatedEvaluator

LAYERS = 6
TRIALS = 2000
PARENT, CHILD, BOTH = "parent", "child", "both"


def make_bench(folder: Path) -> Bench:
    return Bench(folder / "precision.db", layers=LAYERS)


def search(bench: Bench, folder: Path, trials: int = TRIALS, seconds: float = 0.005) -> None:
    """One run, measured in a child that needs no JAX and writes down what it measures."""
    behavior = json.dumps({"log": str(folder / "log"), "seconds": seconds})
    command = [sys.executable, "-m", "tests.fake_child", behavior]
    task = misbehaving.make_task()
    with IsolatedEvaluator(task, bench.program, max_drop=Drop(0.05), command=command) as evaluator:
        (folder / "child").write_text(str(evaluator._child.pid))
        bench.search(trials=trials, evaluator=evaluator)


def measured(folder: Path) -> dict[str, str]:
    """Key -> when finished, of every candidate with an outcome, read without our own code."""
    file = folder / "precision.db"
    if not file.exists():
        return {}
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)
    try:
        return dict(connection.execute("SELECT key, finished FROM tuner_candidate WHERE finished IS NOT NULL"))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return {}
        raise
    finally:
        connection.close()


def main(folder: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    bench = make_bench(folder)
    if backends_are_initialized():
        raise SystemExit("JAX has begun: forking would copy its threads")
    for number in range(rounds):
        offset = (folder / "log").stat().st_size if (folder / "log").exists() else 0
        what = [PARENT, CHILD, BOTH][number % 3]
        (folder / "child").unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                search(bench, folder)
                code = 0
            finally:
                os._exit(code)
        if number % 5 == 4:  # while it is still beginning, too
            time.sleep(rng.uniform(0.0, 1.0))
        else:
            wait_for_candidate(folder / "log", offset)
            time.sleep(rng.uniform(0.0, 0.4))
        survived = kill(what, pid, folder, rng)
        log = (folder / "log").read_bytes()[offset:].decode().splitlines() if (folder / "log").exists() else []
        line = {"killed": what, "survived": survived, "log": log, "measured": measured(folder)}
        sys.stdout.write(json.dumps(line) + "\n")


def kill(what: str, pid: int, folder: Path, rng: random.Random) -> bool:
    """Kills; the parent in any case at the end of the round. True when it lived on without its child."""
    survived = False
    if what in (CHILD, BOTH) and (folder / "child").exists():
        signal_if_there(int((folder / "child").read_text() or 0))
    if what == CHILD:
        time.sleep(0.5 + rng.uniform(0.0, 0.3))
        survived = os.waitpid(pid, os.WNOHANG) == (0, 0)
        if not survived:
            return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return survived


def signal_if_there(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for_candidate(log: Path, offset: int) -> None:
    """Returns when this round measures its first one."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends and not (log.exists() and log.stat().st_size > offset):
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
