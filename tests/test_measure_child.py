"""The real child: each way to go wrong, how it gets its task, and that it does not outlive its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search_spaces import Precision
from tests import misbehaving
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.measure import IsolatedEvaluator
from tuner.measure.latency import Effort
from tuner.measurement import Confirmation, Failure, Measurement
from tuner.program import original_policy, uniform_policy
from tuner.task_reference import load_task

ROOT = Path(__file__).resolve().parent.parent
BRIEF = Effort(seconds=0.02)
pytestmark = pytest.mark.timeout(120)


def isolated(task, **settings):
    program = capture_task(task)
    settings = {"max_drop": Drop(0.5), "effort": BRIEF, **settings}
    return IsolatedEvaluator(task, program, **settings), program


def cause(evaluator, cast):
    outcome = evaluator.measure_cast(cast)
    assert isinstance(outcome, Failure)
    return outcome.cause, outcome.message


def test_what_ends_the_process_costs_its_candidate_and_no_other():
    evaluator, program = isolated(misbehaving.make_task(bf16=misbehaving.abort, f16=misbehaving.segfault))
    with evaluator:
        baseline = evaluator.baseline
        assert cause(evaluator, "bf16")[0] == "crash"
        assert cause(evaluator, "f16") == ("crash", "its process was ended by SIGSEGV while making the first call")
        policy = uniform_policy(program, Precision.parse("i8/i8/i32"))
        measured = evaluator.measure(policy)
        assert isinstance(measured, Measurement)
        assert measured.latency.milliseconds == pytest.approx(measured.latency.ratio * baseline.latency.milliseconds)
        assert [type(one) for one in evaluator.confirm([policy])] == [Confirmation]
        compared = evaluator.compare(policy, original_policy(program))
        assert set(evaluator.layer_shares(5.0)) == {"w"}
        assert 0 < compared.low <= compared.high
        table = evaluator.time_kernels({"w": [Precision.parse("i8/i8/i32")]}, known={}, budget_s=1.0)
        int8 = Precision.parse("i8/i8/i32")
        assert table.seconds("w", int8, "plain") > 0
        screened = evaluator.screen({"w": [int8]}, {("w", int8): "plain"}, known={}, budget_s=60.0)
        assert 0 < screened.effects["w"]["i8/i8/i32"].error < 1
        (foreseen,) = evaluator.foresee({"w": [int8]}, {}, [{"w": int8}], 1.0)
        assert foreseen.drop == measured.quality.drop


def test_the_child_is_told_that_the_baseline_makes_room():
    evaluator, program = isolated(misbehaving.make_task(), baseline="alternate")
    with evaluator:
        measured = evaluator.measure(uniform_policy(program, Precision.parse("i8/i8/i32")))
        assert (measured.latency.baseline, evaluator.baseline.latency.baseline) == ("alternate", "alternate")


def test_what_hangs_is_ended_at_its_deadline():
    task = misbehaving.make_task(bf16=misbehaving.hangs, f16=misbehaving.hangs_while_compiling)
    evaluator, _ = isolated(task, deadline_s=2.0)
    with evaluator:
        late = "was not done after 2 s, and its process was ended"
        assert cause(evaluator, "bf16") == ("deadline", f"making the first call {late}")
        assert cause(evaluator, "f16") == ("deadline", f"compiling {late}")


def test_what_fails_in_python_or_in_a_compiler_costs_no_process():
    task = misbehaving.make_task(bf16=misbehaving.raises, f16=misbehaving.does_not_compile)
    evaluator, program = isolated(task)
    with evaluator:
        child = evaluator._child
        assert cause(evaluator, "bf16")[0] == "error"
        assert cause(evaluator, "f16")[0] == "compile error"
        assert isinstance(evaluator.measure(original_policy(program)), Measurement)
        assert evaluator._child is child


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")
def test_a_candidate_may_not_take_more_memory_than_allowed():
    task = misbehaving.make_task(bf16=misbehaving.too_large_on_the_host, f16=misbehaving.not_a_number)
    evaluator, program = isolated(task, memory_limit=2 * 2**30)
    with evaluator:
        assert cause(evaluator, "bf16")[0] == "out of memory"
        assert cause(evaluator, "f16")[0] == "non-finite"
        assert isinstance(evaluator.measure(original_policy(program)), Measurement)


def test_a_task_goes_by_reference_where_it_has_one():
    task = load_task("tests.misbehaving:task")
    evaluator, _ = isolated(task)
    with evaluator:
        assert evaluator._packed is None
        assert cause(evaluator, "bf16")[0] == "crash"


def test_a_reference_that_gives_another_task_each_time_is_not_followed(tmp_path):
    file = tmp_path / "changing.py"
    file.write_text(
        "import os, numpy\nfrom tests import misbehaving\n"
        "def task():\n    misbehaving.PARAMS = {'w': numpy.full((8, 4), os.getpid(), 'f4')}\n"
        "    return misbehaving.make_task()\n"
    )
    params = dict(misbehaving.PARAMS)
    try:
        evaluator, _ = isolated(load_task(str(file)))
    finally:
        misbehaving.PARAMS = params
    with evaluator:
        assert evaluator._packed is not None


SCRIPT = """
import sys
import jax
import numpy as np
import tuner

jax.config.update("jax_default_matmul_precision", "highest")
print("imported as", __name__)
scale = 2.0

def apply(params, x):
    jax.debug.print("printed by the model")
    return scale * (x @ params["w"])

x = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
w = np.random.default_rng(1).normal(size=(8, 4)).astype("f4")
task = tuner.Task(name="script", apply=apply, params={"w": w}, inputs=x, labels=(x @ w).argmax(1), batch_size=16)
study = tuner.search(task, trials=1, storage=sys.argv[1])
print("done", len(study.trials()))
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    storage = f"sqlite:///{tmp_path / 'precision.db'}"
    done = subprocess.run(
        [sys.executable, str(script), storage], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["imported as __main__", "done 1"]
    assert "printed by the model" in done.stderr
    assert "run in this process" not in done.stderr


PARENT = """
import os, sys, time
from tests import misbehaving
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.measure import IsolatedEvaluator

task = misbehaving.make_task(bf16=getattr(misbehaving, sys.argv[1]))
evaluator = IsolatedEvaluator(task, capture_task(task), max_drop=Drop(0.5))
print(evaluator._child.pid, flush=True)
evaluator.measure_cast("bf16")
"""


@pytest.mark.parametrize("doing", ["hangs", "hangs_while_compiling"])
def test_a_child_does_not_outlive_its_parent(doing):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, doing], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        os.kill(child, 0)
        os.kill(child, signal.SIGINT)  # Ctrl-C is for the parent
        os.kill(child, 0)
    finally:
        parent.kill()
        parent.communicate()
    wait_until_gone(child)


def wait_until_gone(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # dead, and nobody here collects it
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} lives on")
