import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import optuna
import pytest
import sqlalchemy

from search_spaces import Precision
from tests.factories import make_metric
from tests.optuna_files import load_study
from tests.search_bench import SPACE, Bench, FakeEvaluator
from tuner.measurement import COMPILE_ERROR, SLOW, Failure, Measurement
from tuner.search.samplers import POPULATION

FIRST = ["baseline", "f32/f32/f32", "i8/i8/i32", "bf16/bf16/f32"]


def fastest_first(precisions: list[Precision]) -> list[Precision]:
    return sorted(precisions, key=lambda p: ["i8", "bf16", "f32"].index(p.weights.name))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "precision.db")


def optuna_trials(bench: Bench) -> list[optuna.trial.FrozenTrial]:
    return load_study(bench.url).trials


def labels(bench: Bench) -> list[str]:
    return [candidate.label for candidate in bench.candidates()]


def test_begins_with_what_a_person_would_try_then_the_hand_made_ways(bench):
    bench.search(trials=6, rank=fastest_first)
    assert labels(bench)[:6] == [*FIRST, "astype(bf16)", "astype(f16)"]
    assert [str(policy.precisions["layer_0"]) for policy in bench.evaluator.measured[:3]] == FIRST[1:]
    assert bench.evaluator.casts == ["bf16", "f16"]


def test_the_reference_points_are_there_however_few_the_trials(bench):
    study = bench.search(trials=1)
    assert [point.label for point in study.points()] == ["baseline", "astype(bf16)", "astype(f16)"]
    assert [candidate.trial for candidate in study.trials()] == [0]


def test_trials_is_the_total_and_a_resume_completes_it(bench):
    bench.search(trials=7)
    first = {policy.hash for policy in bench.evaluator.measured}
    assert len(bench.search(trials=7).trials()) == 7
    again = FakeEvaluator()
    assert len(bench.search(trials=16, evaluator=again).trials()) == 16
    second = [policy.hash for policy in again.measured]
    assert len(first) == 6  # the baseline is the evaluator's own
    assert len(second) == len(set(second)) == 9
    assert first.isdisjoint(second)
    assert again.casts == []


def test_every_policy_is_measured_once_and_then_it_ends(tmp_path):
    bench = Bench(tmp_path / "precision.db", layers=2)
    study = bench.search(trials=1000)
    assert len(study.trials()) == bench.space.size == 16
    assert len({policy.hash for policy in bench.evaluator.measured}) == len(bench.evaluator.measured) == 15


def test_exhaustive_enumerates(tmp_path):
    bench = Bench(tmp_path / "precision.db", layers=2)
    assert len(bench.search(trials=16, sampler="exhaustive").trials()) == 16


@pytest.mark.parametrize("limits", [{"trials": 5}, {"trials": 5, "budget": "1h"}])
def test_the_end_says_how_complete_the_front_is(tmp_path, limits):
    bench = Bench(tmp_path / "precision.db", layers=2)
    bench.search(**limits)
    assert bench.display.notes[0].startswith(
        "5 of 16 policies of this space are tried, and the front is the best of those"
    )
    bench.search(trials=16)
    assert "All 16 policies of this space are tried: the front is complete." in bench.display.notes


def test_a_space_without_a_choice_says_so(tmp_path):
    bench = Bench(tmp_path / "precision.db", space='[[rules]]\nprecisions = ["tf32/tf32/f32"]\n')
    assert len(bench.search(trials=5).trials()) == 1
    assert bench.display.notes[0].startswith("This space allows the program as written and nothing else")


def test_a_time_budget_says_how_complete_the_front_is(tmp_path):
    bench = Bench(tmp_path / "precision.db")
    bench.search(budget=0.05)
    assert " of 64 policies of this space are tried" in bench.display.notes[0]


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "random"])
def test_every_sampler_goes_on_after_its_first_generation(tmp_path, sampler):
    bench = Bench(tmp_path / "precision.db")
    assert len(bench.search(trials=2 * POPULATION + 3, sampler=sampler).trials()) == 2 * POPULATION + 3


def test_optuna_has_one_trial_each_with_a_parameter_per_layer(bench):
    study = bench.search(trials=12)
    trials = optuna_trials(bench)
    assert [trial.number for trial in trials] == list(range(12))
    assert all(list(trial.params) == ["input", "layer_0", "layer_1", "layer_2"] for trial in trials)
    for candidate, trial in zip(study.trials(), trials, strict=True):
        assert trial.params == {name: str(p) for name, p in candidate.policy.precisions.items()}
        outcome = candidate.outcome
        assert trial.values == [outcome.latency.ratio, outcome.quality.value, outcome.memory.total_bytes]
        assert trial.user_attrs["tuner"]["label"] == candidate.label
    directions = load_study(bench.url).directions
    assert [direction.name for direction in directions] == ["MINIMIZE", "MAXIMIZE", "MINIMIZE"]


def test_losers_are_pruned_and_failures_failed_with_their_cause(bench):
    bench.evaluator.outcomes = {
        "bf16": Failure(cause=SLOW, message="seven times"),
        "i8": Failure(cause=COMPILE_ERROR, message="no such thing", layer="layer_1"),
    }
    study = bench.search(trials=12, rank=fastest_first)
    trials = {trial.user_attrs["tuner"]["label"]: trial for trial in optuna_trials(bench)}
    assert trials["bf16/bf16/f32"].state.name == "PRUNED"
    assert trials["bf16/bf16/f32"].user_attrs["tuner"]["cause"] == SLOW
    assert trials["i8/i8/i32"].state.name == "FAIL"
    assert trials["i8/i8/i32"].user_attrs["tuner"] == {
        "label": "i8/i8/i32",
        "cause": COMPILE_ERROR,
        "message": "no such thing",
        "layer": "layer_1",
    }
    assert len(study.trials()) == 12
    assert all(isinstance(candidate.outcome, Measurement) for candidate in study.trials() if candidate.on_front)


def test_the_front_is_confirmed_once(bench):
    study = bench.search(trials=10)
    confirmed = list(bench.evaluator.confirmed)
    front = study.front()
    assert {point.policy.hash for point in front if point.policy} == {policy.hash for policy in confirmed}
    assert all(point.confirmed for point in front if point.policy)
    bench.search(trials=10)
    assert bench.evaluator.confirmed == confirmed


def test_a_policy_to_start_from_comes_right_after_the_baseline(bench):
    start = bench.search(trials=8).trials()[7].policy
    other = Bench(Path("other.db"))
    other.search(trials=3, start=start)
    assert labels(other)[:2] == ["baseline", "start"]
    assert other.evaluator.measured[0].hash == start.hash


def test_one_objective_is_enough(tmp_path):
    bench = Bench(tmp_path / "precision.db", objectives=["latency"])
    study = bench.search(trials=12)
    assert len(study.front()) == 1
    assert all(len(trial.values) == 1 for trial in optuna_trials(bench))


def test_grouped_layers_move_together(tmp_path):
    bench = Bench(tmp_path / "precision.db", space=SPACE + '[[groups]]\nname = "all"\nlayers = "layer_*"\n')
    bench.search(trials=50)
    assert bench.space.size == 4
    assert all(len(set(map(str, list(policy.precisions.values())[1:]))) == 1 for policy in bench.evaluator.measured)


def interrupt_at(position: int):
    def on_measure(count: int) -> None:
        if count == position:
            raise KeyboardInterrupt

    return FakeEvaluator(on_measure)


@pytest.mark.parametrize("position", [0, 2, 5])
def test_control_c_fails_the_running_trial_and_a_resume_measures_it(bench, position):
    with pytest.raises(KeyboardInterrupt):
        bench.search(trials=8, evaluator=interrupt_at(position))
    last = optuna_trials(bench)[-1]
    assert (last.state.name, last.user_attrs["tuner"]) == ("FAIL", {"cause": "interrupted"})
    assert all(candidate.outcome is not None for candidate in bench.candidates())
    study = bench.search(trials=8)
    assert len(study.trials()) == 8
    assert {"baseline", "f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32"} <= {c.label for c in study.trials()}


def test_a_crash_of_ours_leaves_no_claim_behind(bench):
    def on_measure(count: int) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        bench.search(trials=3, evaluator=FakeEvaluator(on_measure))
    assert labels(bench) == ["baseline"]
    assert len(bench.search(trials=3).trials()) == 3


DIE_WHILE_MEASURING = """
evaluator = FakeEvaluator(lambda count: os._exit(9) if count == 3 else None)
"""
DIE_BETWEEN_THE_TWO_WRITES = """
evaluator = FakeEvaluator()
from tuner.search.objective import Objective
tell = Objective.tell
Objective.tell = lambda self, number, *rest: os._exit(9) if number == 4 else tell(self, number, *rest)
"""
DIE_BEFORE_THE_CLAIM = """
evaluator = FakeEvaluator()
from tuner.store import Store
claim = Store.claim
Store.claim = lambda self, *args, **rest: os._exit(9) if rest["trial"] == 4 else claim(self, *args, **rest)
"""


def die(bench: Bench, how: str) -> None:
    """A search of a process that ends as a kill would end it."""
    file = bench.url.removeprefix("sqlite:///")
    script = f"""
import os
from itertools import pairwise
from pathlib import Path
from tests.optuna_files import load_study
from tests.search_bench import Bench, FakeEvaluator
{how}
Bench(Path({file!r})).search(trials=8, evaluator=evaluator)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 9, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [DIE_WHILE_MEASURING, DIE_BETWEEN_THE_TWO_WRITES, DIE_BEFORE_THE_CLAIM],
    ids=["measuring", "between the writes", "before the claim"],
)
def test_a_kill_loses_at_most_the_running_trial(bench, how):
    die(bench, how)
    before = {candidate.key for candidate in bench.candidates() if candidate.outcome is not None}
    left = [trial.number for trial in optuna_trials(bench) if trial.state.name == "RUNNING"]
    assert len(left) == 1
    study = bench.search(trials=8)
    assert len(study.trials()) == 8
    assert {policy.hash for policy in bench.evaluator.measured}.isdisjoint(before)
    states = [trial.state.name for trial in optuna_trials(bench)]
    assert "RUNNING" not in states
    told = optuna_trials(bench)[left[0]]
    if how == DIE_BETWEEN_THE_TWO_WRITES:
        assert told.state.name == "COMPLETE"
        assert told.values[0] == study.trials()[4].outcome.latency.ratio
    else:
        assert (told.state.name, told.user_attrs["tuner"]["cause"]) == ("FAIL", "its process died")
    assert {"baseline", "f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32"} <= {c.label for c in study.trials()}


def test_what_a_living_process_measures_is_left_alone(bench):
    """A second search meets the claim of the first, which is this very process, and goes around it."""

    def search_meanwhile(count: int) -> None:
        if count == 1:
            bench.search(trials=4, evaluator=other)

    other = FakeEvaluator()
    outer = FakeEvaluator(search_meanwhile)
    study = bench.search(trials=8, evaluator=outer)
    measured = [policy.hash for policy in (*outer.measured, *other.measured)]
    assert len(measured) == len(set(measured))
    assert [c.outcome for c in study.trials() if c.outcome is None] == []


def test_bookkeeping_stays_small_however_long_the_study(bench):
    """A trial that reads or writes more as the study grows would be felt in a long search."""
    counts = []
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    class Counting(FakeEvaluator):
        def measure(self, policy):
            counts.append(statements)
            return super().measure(policy)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", count)
    try:
        bench.search(trials=40, evaluator=Counting())
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", count)
    per_trial = [after - before for before, after in pairwise(counts)]
    assert max(per_trial[-10:]) <= max(per_trial[4:14]) + 5
    assert max(per_trial[4:]) < 90


def test_a_goal_ends_the_search(bench):
    study = bench.search(trials=30, goal="latency<=0.8x,drop<=2%", rank=fastest_first)
    assert len(study.trials()) < 30
    number = study.trials()[-1].trial
    assert f"The goal latency<=0.8x,drop<=2% is reached by trial {number}; {number + 1} of 64" in bench.display.notes[0]
    assert study.trials()[-1].outcome.latency.ratio <= 0.8


def test_a_goal_that_is_not_reached_is_named(bench):
    bench.search(trials=5, goal="latency<=0.1x")
    assert bench.display.notes[0].startswith("The goal latency<=0.1x is not reached. 5 of 64 policies")


def test_a_search_that_gains_nothing_stops(tmp_path):
    bench = Bench(tmp_path / "precision.db", layers=4)
    study = bench.search(budget="1h", patience=6)
    assert len(study.trials()) < bench.space.size
    assert (
        "the last 6 added less than a thousandth to the hypervolume of the front: it stops here"
        in bench.display.notes[0]
    )


def test_what_was_predicted_is_kept_and_compared(bench):
    study = bench.search(trials=12)
    # With no kernel timed, times are learned from the first three.
    assert [trial.predicted.latency is not None for trial in study.trials()] == [False] * 3 + [True] * 9
    (note,) = [note for note in bench.display.notes if note.startswith("Predicted before it was measured")]
    assert "latency with Spearman" in note


def test_constraints_reach_optuna(bench):
    metric = make_metric(drop=0.3, allowed=0.1)
    usual = bench.evaluator._numbers
    bench.evaluator._numbers = lambda weights: replace(usual(weights), metrics={"agreement": metric})
    bench.search(trials=6)
    assert optuna_trials(bench)[3].constraints == {"agreement": pytest.approx(0.2)}
