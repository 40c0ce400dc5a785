import numpy as np
import optuna
import pytest

from tuner.search.lessons import read_lessons, signs_of
from tuner.search.optuna_study import quiet_optuna

OPTIONS = {"a": ("x", "y", "z"), "b": ("x", "y", "z")}
SPACE = {name: optuna.distributions.CategoricalDistribution(taken) for name, taken in OPTIONS.items()}


@pytest.fixture
def study():
    with quiet_optuna():
        yield optuna.create_study(directions=["minimize", "maximize"])


def add(study, picks, values=None, state="COMPLETE", **more):
    params = {name: OPTIONS[name][pick] for name, pick in zip(OPTIONS, picks, strict=True)}
    state = optuna.trial.TrialState[state]
    study.add_trial(optuna.trial.create_trial(state=state, params=params, distributions=SPACE, values=values, **more))


def test_everything_is_made_small(study):
    add(study, (0, 1), [0.5, 0.9])
    lessons = read_lessons(study, OPTIONS)
    assert signs_of(study).tolist() == [1.0, -1.0]
    assert lessons.values.tolist() == [[0.5, -0.9]]
    assert lessons.picks.tolist() == [[0, 1]]
    assert lessons.noise.tolist() == [[0.0, 0.0]]


def test_intervals_are_read_wherever_they_are_kept(study):
    add(study, (0, 0), [1.0, 0.9], user_attrs={"intervals": [[0.0, 3.92], None]})
    add(study, (0, 1), [1.0, 0.9], user_attrs={"tuner": {"label": "x", "intervals": [None, [0.8, 1.192]]}})
    assert read_lessons(study, OPTIONS).noise == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.1]]))


def test_a_failure_is_the_fault_of_what_never_worked(study):
    add(study, (0, 1), [0.5, 0.9])
    add(study, (2, 1), state="FAIL")
    lessons = read_lessons(study, OPTIONS)
    assert [one.tolist() for one in lessons.blame] == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert lessons.seen == {(0, 1), (2, 1)}


def test_several_suspects_share_the_blame_unless_one_is_named(study):
    add(study, (1, 2), state="PRUNED")
    assert [one.tolist() for one in read_lessons(study, OPTIONS).blame] == [[0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]
    add(study, (2, 2), state="FAIL", user_attrs={"tuner": {"layer": "a"}})
    blame = read_lessons(study, OPTIONS).blame
    assert blame[0][2] > 1.0
    assert blame[1][2] == 0.5


def test_trials_of_other_parameters_are_passed_over(study):
    study.add_trial(optuna.trial.create_trial(values=[1.0, 1.0]))
    assert len(read_lessons(study, OPTIONS).values) == 0


def test_a_broken_constraint_is_known(study):
    add(study, (0, 0), [1.0, 0.9], system_attrs={"constraints:size": 0.5})
    add(study, (0, 1), [1.0, 0.9], system_attrs={"constraints:size": -0.5})
    lessons = read_lessons(study, OPTIONS)
    assert lessons.feasible.tolist() == [False, True]
    picks, values = lessons.constraints["size"]
    assert (picks.tolist(), values.tolist()) == ([[0, 0], [0, 1]], [0.5, -0.5])
