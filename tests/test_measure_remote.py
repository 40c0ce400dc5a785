"""The evaluator in a process of its own, mostly with one that needs no JAX; test_measure_child.py has the real one."""

import gc
import json
import os
import sys
from pathlib import Path

import pytest

from search_spaces import Precision
from tests import misbehaving
from tests.search_bench import Bench, make_program
from tuner.drop import Drop
from tuner.errors import InputError, MeasuringStopped
from tuner.measure import IsolatedEvaluator, make_evaluator, remote
from tuner.measure.sending import CannotSend
from tuner.measurement import Confirmation, Failure, Measurement
from tuner.program import uniform_policy

TASK = misbehaving.make_task()
PROGRAM = make_program()


def isolated(program=PROGRAM, task=TASK, say=lambda text: None, **behavior):
    command = [sys.executable, "-m", "tests.fake_child", json.dumps(behavior)]
    return IsolatedEvaluator(task, program, max_drop=Drop(0.05), command=command, say=say)


def uniform(text, program=PROGRAM):
    return uniform_policy(program, Precision.parse(text))


BF16, I8, F32 = uniform("bf16/bf16/f32"), uniform("i8/i8/i32"), uniform("f32/f32/f32")


def test_what_the_child_measures_arrives_as_it_was_measured():
    with isolated() as evaluator:
        assert evaluator.baseline.latency.ratio == 1.0
        measured = evaluator.measure(BF16)
        assert isinstance(measured, Measurement)
        assert measured.latency.ratio == pytest.approx(0.85)
        assert measured.effective == {"layer_0": "as requested"}
        assert isinstance(evaluator.measure_cast("bf16"), Measurement)
        assert [type(one) for one in evaluator.confirm([BF16, I8])] == [Confirmation, Confirmation]
        assert evaluator.confirm([]) == []


@pytest.mark.parametrize(
    ("how", "cause", "message"),
    [
        ("SIGSEGV", "crash", "its process was ended by SIGSEGV while compiling"),
        ("SIGILL", "crash", "its process was ended by SIGILL while compiling"),
        (
            "SIGKILL",
            "crash",
            "its process was ended by SIGKILL, as a system short of memory does, while compiling",
        ),
        ("exit", "crash", "its process ended itself with status 3 while compiling"),
        ("hang", "deadline", "compiling was not done after 0.3 s, and its process was ended"),
        (
            "F1201 check failed: x == y",
            "crash",
            "its process was ended by SIGABRT while compiling; its last words: F1201 check failed: x == y",
        ),
        (
            "terminate called after throwing 'std::bad_alloc'",
            "out of memory",
            "its process was ended by SIGABRT while compiling; its last words: terminate called after throwing "
            "'std::bad_alloc'",
        ),
    ],
)
def test_a_lost_child_is_the_candidates_failure_and_the_next_one_gets_another(how, cause, message):
    with isolated(i8=how) as evaluator:
        outcome = evaluator.measure(I8)
        assert isinstance(outcome, Failure)
        assert (outcome.cause, outcome.message, outcome.pruned) == (cause, message, False)
        baseline = evaluator.baseline
        assert isinstance(evaluator.measure(BF16), Measurement)
        assert evaluator.baseline is baseline


def test_three_lost_in_a_row_are_enough():
    with isolated(i8="SIGSEGV", bf16="SIGSEGV", f32="SIGABRT") as evaluator:
        for policy in (I8, BF16, F32):
            evaluator.check()
            assert isinstance(evaluator.measure(policy), Failure)
        with pytest.raises(MeasuringStopped, match=r"last 3 candidates each ended .* The last: .* SIGABRT"):
            evaluator.measure(I8)


def test_the_same_candidate_lost_again_and_one_that_lives_are_no_reason_to_stop():
    with isolated(i8="SIGSEGV", bf16="SIGSEGV") as evaluator:
        for policy in (I8, I8, BF16, F32, I8, BF16):
            evaluator.measure(policy)
        evaluator.check()


def test_a_search_goes_on_after_a_loss_and_stops_after_three(tmp_path):
    bench = Bench(tmp_path / "precision.db")
    with isolated(bench.program, i8="SIGSEGV") as evaluator, pytest.raises(MeasuringStopped):
        bench.search(trials=60, evaluator=evaluator)
    outcomes = [candidate.outcome for candidate in bench.candidates()]
    causes = [outcome.cause for outcome in outcomes if isinstance(outcome, Failure)]
    assert causes == ["crash"] * len(causes)
    assert len(causes) >= 3
    assert all(outcome is not None for outcome in outcomes)
    assert all(isinstance(outcome, Failure) for outcome in outcomes[-3:])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_but_broken_candidates_end_normally_and_leave_nothing_behind(tmp_path, monkeypatch):
    """BROKEN=200 pytest ... for more of the same."""
    bench = Bench(tmp_path / "precision.db", layers=6)
    trials = int(os.environ.get("BROKEN", "20"))
    cycle = ["SIGSEGV", "hang", "non-finite", "throwing std::bad_alloc", "compile error"]
    sizes = []
    with isolated(bench.program, cycle=cycle, log=str(tmp_path / "log")) as evaluator:
        check = evaluator.check
        monkeypatch.setattr(evaluator, "check", lambda: (sizes.append(resident_bytes()), check()))
        study = bench.search(trials=trials, evaluator=evaluator)
    causes = [trial.outcome.cause for trial in study.trials() if isinstance(trial.outcome, Failure)]
    in_order = ["crash", "deadline", "non-finite", "out of memory", "compile error"]
    assert causes == [in_order[number % 5] for number in range(trials - 1)]
    assert sizes[-1] - sizes[5] < 50e6


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_who_is_lost_in_a_confirmation_is_left_out(tmp_path):
    with isolated(**{"confirm i8": "SIGSEGV"}) as evaluator:
        found = evaluator.confirm([BF16, I8, F32])
    assert [type(one) for one in found] == [Confirmation, Failure, Confirmation]
    assert found[1].message == "its process was ended by SIGSEGV while compiling and scoring"


def test_who_ends_the_common_timing_is_found():
    with isolated(**{"confirm timing": "i8"}) as evaluator:
        found = evaluator.confirm([BF16, I8, F32])
    assert [type(one) for one in found] == [Confirmation, Failure, Confirmation]


def test_a_baseline_that_ends_the_child_ends_the_search():
    with pytest.raises(MeasuringStopped, match=r"as written does not run .* SIGABRT while starting.* --isolation none"):
        isolated(start="SIGABRT")


def test_no_new_child_is_a_reason_to_stop(tmp_path):
    with isolated(i8="SIGSEGV") as evaluator:
        evaluator.measure(I8)
        evaluator._command = [sys.executable, "-c", "raise SystemExit(1)"]
        with pytest.raises(MeasuringStopped, match=r"no new process can be started .* status 1"):
            evaluator.measure(BF16)


def test_a_new_child_that_never_gets_ready_is_a_reason_to_stop():
    with isolated(i8="SIGSEGV") as evaluator:
        evaluator.measure(I8)
        evaluator._command = [sys.executable, "-c", "import time; time.sleep(600)"]
        evaluator._deadline_s, evaluator._start_s = 0.2, 0.02
        with pytest.raises(MeasuringStopped, match=r"can be started to measure in: starting was not done after 0.2 s"):
            evaluator.measure(BF16)


def test_other_casts_are_refused():
    with isolated() as evaluator, pytest.raises(InputError, match="cannot measure a cast to 'i8'"):
        evaluator.measure_cast("i8")


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next(monkeypatch):
    with isolated(seconds=0.2) as evaluator:
        receive = evaluator._child._channel.receive

        def interrupted(timeout):
            receive(timeout)
            raise KeyboardInterrupt

        monkeypatch.setattr(evaluator._child._channel, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            evaluator.measure(I8)
        assert evaluator.measure(BF16).latency.ratio == pytest.approx(0.85)


def test_closing_ends_the_child_and_gives_back_what_it_took():
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    evaluator = isolated()
    pid = evaluator._child.pid
    evaluator.close()
    evaluator.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_cannot_be_sent_is_measured_here_and_that_is_said_once(monkeypatch):
    said = []

    class Sticky:
        def __call__(self, outputs):
            return outputs

        def __reduce__(self):
            raise TypeError("cannot pickle a socket")

    task = misbehaving.make_task(bf16=Sticky())
    with pytest.raises(CannotSend, match="cannot pickle a socket"):
        isolated(task=task)
    monkeypatch.setattr(remote, "Evaluator", lambda *args, **settings: "in process")
    assert make_evaluator(task, PROGRAM, say=said.append, max_drop=Drop(0.05)) == "in process"
    assert said == [
        "Note: candidates run in this process, and one that crashes ends the search: the task cannot be copied to "
        "another process (TypeError: cannot pickle a socket)."
    ]
    assert make_evaluator(task, PROGRAM, isolation="none", say=said.append, max_drop=Drop(0.05)) == "in process"
    assert len(said) == 1


def test_where_memory_cannot_be_limited_that_is_said():
    said = []
    isolated(say=said.append, unlimited="darwin has no limit on the memory of one process").close()
    assert said == ["Note: candidates have no memory limit: darwin has no limit on the memory of one process."]


def test_a_precision_that_ends_the_child_cannot_run_and_stops_nothing():
    with isolated(attempt={"bf16/bf16/f32": "SIGILL"}) as evaluator:
        for _ in range(4):  # three lost children in a row stop a search, but not one that only tries
            refusal = evaluator.try_precision("matmul", Precision.parse("bf16/bf16/f32")).refusal
            assert refusal == "crash: its process was ended by SIGILL while trying matmul in bf16/bf16/f32"
        evaluator.check()
        assert evaluator.try_precision("matmul", Precision.parse("i8/i8/i32")).effective == "as requested"
