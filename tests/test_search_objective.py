from pathlib import Path

import optuna
import pytest

from tests.optuna_files import load_study
from tests.search_bench import Bench, FakeEvaluator
from tuner.errors import StoreError
from tuner.program import make_policy
from tuner.search.interrupts import Interrupts
from tuner.search.objective import Objective, directions
from tuner.search.optuna_study import OptunaStudy, quiet_optuna
from tuner.store import Owner, Store


class SameAgain(optuna.samplers.BaseSampler):
    """Proposes the same every time, as samplers that know no duplicates do."""

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.choices[-1]


class Made:
    """An objective on a real store and a real Optuna study."""

    def __init__(self, file: Path) -> None:
        bench = Bench(file)
        self.space = bench.space
        self.program = bench.program
        self.store = Store.open(bench.url)
        self.record = bench._create(self.store, "random")
        self.study = OptunaStudy(self.store, "bench", directions(self.record.objectives, True), SameAgain())
        self.evaluator = FakeEvaluator()
        self.objective = Objective(
            study=self.study,
            store=self.store,
            study_id=self.record.id,
            objectives=self.record.objectives,
            make_policy=lambda proposal: make_policy(self.program, self.space.precisions(proposal)),
            evaluator=self.evaluator,
            interrupts=Interrupts(),
        )
        self.url = bench.url

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        return load_study(self.url).trials


@pytest.fixture
def made(tmp_path):
    with quiet_optuna():
        made = Made(tmp_path / "precision.db")
        yield made
        made.store.close()


def test_a_duplicate_is_told_what_is_known_and_never_measured_again(made):
    first = made.objective.run(made.study.ask(made.space.distributions), "first")
    second = made.objective.run(made.study.ask(made.space.distributions), "second")
    assert (first[1], second[1]) == (True, False)
    assert first[0].latency == second[0].latency
    assert len(made.evaluator.measured) == 1
    before, after = made.trials()
    assert before.values == after.values
    intervals = [[0.78, 0.8], [0.886, 0.89], None]
    assert after.user_attrs["tuner"] == {"label": "first", "same_policy_as": 0, "intervals": intervals}
    assert [candidate.trial for candidate in made.store.candidates(made.record.id)] == [0]


def test_what_another_process_has_in_hand_is_left_to_it(made):
    asked = made.study.ask(made.space.distributions)
    policy = make_policy(made.program, made.space.precisions(asked.params))
    made.store.claim(made.record.id, key=policy.hash, policy=policy, label="x", trial=99, owner=Owner.current())
    assert made.objective.run(asked, "mine") == (None, False)
    assert made.evaluator.measured == []
    (trial,) = made.trials()
    assert (trial.state.name, trial.user_attrs["tuner"]["cause"]) == ("FAIL", "measured by another process")


def test_an_outcome_that_cannot_be_kept_can_be_measured_again(made, monkeypatch):
    def full(candidate_id, outcome):
        raise StoreError("the disk is full")

    asked = made.study.ask(made.space.distributions)
    with monkeypatch.context() as patched:
        patched.setattr(made.store, "record", full)
        with pytest.raises(StoreError, match="the disk is full"):
            made.objective.run(asked, "first")
    outcome, is_new = made.objective.run(made.study.ask(made.space.distributions), "second")
    assert (is_new, outcome is None) == (True, False)


def test_the_direction_follows_the_metric():
    names = [direction.name for direction in directions(("latency", "quality", "memory"), larger_is_better=False)]
    assert names == ["MINIMIZE", "MINIMIZE", "MINIMIZE"]
    assert [direction.name for direction in directions(("quality",), larger_is_better=True)] == ["MAXIMIZE"]


def test_telling_twice_keeps_the_first(made):
    asked = made.study.ask(made.space.distributions)
    outcome, _ = made.objective.run(asked, "first")
    made.objective.fail(asked.number, "late")
    assert made.trials()[0].state.name == "COMPLETE"
    assert outcome is not None
