import itertools

import numpy as np
import optuna
import pytest

import tuner
from tuner.errors import InputError
from tuner.search.hypervolume import hypervolume
from tuner.search.optuna_study import quiet_optuna
from tuner.search.predict import ROOT, Estimate
from tuner.search.screened import ScreenedSampler

CHOICES = ("original", "f32", "bf16", "i8")
LAYERS = 5
OPTIONS = {f"layer_{i}": CHOICES for i in range(LAYERS)}
SPACE = {name: optuna.distributions.CategoricalDistribution(taken) for name, taken in OPTIONS.items()}
RANDOM = np.random.default_rng(5)
TIMES = np.stack([np.ones(LAYERS), *(RANDOM.uniform(0.3, 1.1, LAYERS) for _ in range(3))], 1) * 0.17
ERRORS = np.stack([np.zeros(LAYERS), np.full(LAYERS, 1e-7), *(RANDOM.lognormal(c, 0.8, LAYERS) for c in (-6.5, -4))], 1)
REFERENCE = np.array([1.0, 0.01])


@pytest.fixture(autouse=True)
def _quiet():
    with quiet_optuna():
        yield


def truth(picks):
    rows = np.arange(LAYERS)
    latency = 0.15 + TIMES[rows, picks].sum() * 1.1 + 0.005 * (picks[0] != picks[1])
    return latency, 0.9 - 0.15 * np.sqrt((ERRORS[rows, picks] ** 2).sum())


def estimates(order=range(LAYERS)):
    times = {f"layer_{i}": dict(zip(CHOICES, TIMES[j], strict=True)) for i, j in enumerate(order)}
    squares = {f"layer_{i}": dict(zip(CHOICES, ERRORS[j] ** 2, strict=True)) for i, j in enumerate(order)}
    return [Estimate(base=0.15, costs=times), Estimate(base=0.9, costs=squares, link=ROOT, slope=-0.5)]


def picks_of(trial):
    return np.array([CHOICES.index(trial.params[name]) for name in OPTIONS])


def run(sampler, count, evaluate=lambda study, trial: study.tell(trial, truth(picks_of(trial)))):
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    for _ in range(count):
        evaluate(study, study.ask(SPACE))
    return study


def volume(study):
    done = [t.values for t in study.trials if t.state.name == "COMPLETE"]
    return hypervolume(np.array([[latency, 0.9 - quality] for latency, quality in done]), REFERENCE)


def best_volume():
    every = (truth(np.array(picks)) for picks in itertools.product(range(4), repeat=LAYERS))
    return hypervolume(np.array([[latency, 0.9 - quality] for latency, quality in every]), REFERENCE)


def make(estimates=None, seed=0, **settings):
    return ScreenedSampler(estimates, seed=seed, reference=[1.0, 0.89], options=OPTIONS, **settings)


@pytest.mark.parametrize("seed", range(3))
def test_the_front_is_found_in_a_handful_of_trials(seed):
    # 24 of 1024: the rest of the space need not be tried.
    assert volume(run(make(estimates(), seed), 24)) > 0.97 * best_volume()


def test_what_screening_says_matters():
    wrong = run(make(estimates([3, 0, 4, 1, 2])), 10)
    assert volume(run(make(estimates()), 10)) > volume(wrong)


def test_nothing_is_proposed_twice():
    study = run(make(estimates()), 40)
    assert len({tuple(picks_of(trial)) for trial in study.trials}) == 40


def test_the_first_trial_is_the_first_of_every_choice():
    assert picks_of(run(make(estimates()), 1).trials[0]).tolist() == [0] * LAYERS


def test_equal_seeds_give_equal_proposals():
    first, second = (run(make(estimates(), seed=7), 15) for _ in range(2))
    assert [t.params for t in first.trials] == [t.params for t in second.trials]


def test_it_works_without_estimates_and_inside_optimize():
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=tuner.ScreenedSampler(seed=0))

    def objective(trial):
        for name, taken in OPTIONS.items():
            trial.suggest_categorical(name, taken)
        return truth(picks_of(trial))

    study.optimize(objective, n_trials=30)
    assert len(study.best_trials) > 3


def test_one_objective_and_numbers_beside_choices():
    study = optuna.create_study(sampler=ScreenedSampler([estimates()[0]], seed=0))
    space = {**SPACE, "size": optuna.distributions.FloatDistribution(0, 1)}
    for _ in range(12):
        trial = study.ask(space)
        study.tell(trial, truth(picks_of(trial))[0] + 0.1 * trial.params["size"])
    fastest = 0.15 + TIMES.min(axis=1).sum() * 1.1
    assert study.best_value < fastest + 0.12


def test_a_choice_that_fails_is_avoided():
    def evaluate(study, trial):
        picks = picks_of(trial)
        if picks[2] == 3:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, truth(picks))

    study = run(make(estimates()), 24, evaluate)
    failed = [trial.number for trial in study.trials if trial.state.name == "FAIL"]
    assert len(failed) <= 4
    assert not failed or max(failed) < 16


def test_a_failure_that_names_its_layer_is_enough():
    def evaluate(study, trial):
        picks = picks_of(trial)
        if picks[1] >= 2:
            trial.set_user_attr("tuner", {"layer": "layer_1"})
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, truth(picks))

    study = run(make(estimates()), 20, evaluate)
    assert sum(trial.state.name == "FAIL" for trial in study.trials) <= 4


def test_constraints_are_kept():
    def evaluate(study, trial):
        picks = picks_of(trial)
        trial.set_constraint("few", float((picks == 3).sum() - 1.5))  # at most one layer in i8
        study.tell(trial, truth(picks))

    study = run(make(estimates()), 30, evaluate)
    late = study.trials[10:]
    assert sum(trial.constraints["few"] <= 0 for trial in late) > 0.6 * len(late)


def test_intervals_are_weights():
    def evaluate(study, trial):
        latency, quality = truth(picks_of(trial))
        noise = np.random.default_rng(trial.number).normal(0, 0.002)
        trial.set_user_attr("intervals", [None, [quality - 0.004, quality + 0.004]])
        study.tell(trial, (latency, quality + noise))

    assert volume(run(make(estimates()), 20, evaluate)) > 0.9 * best_volume()


def test_another_sampler_proposes_where_the_model_has_nothing_better():
    class Counting(optuna.samplers.RandomSampler):
        asked = 0

        def sample_relative(self, study, trial, search_space):
            Counting.asked += 1
            return {name: distribution.choices[-1] for name, distribution in search_space.items()}

    flat = [Estimate(base=1.0), Estimate(base=0.9)]
    study = optuna.create_study(
        directions=["minimize", "maximize"],
        sampler=ScreenedSampler(flat, seed=0, fallback=Counting(), reference=[0.5, 0.95], options=OPTIONS),
    )
    for _ in range(4):
        study.tell(study.ask(SPACE), (1.0, 0.9))
    assert Counting.asked == 3


def test_more_objectives_than_it_can_weigh_are_refused():
    with pytest.raises(InputError, match="4 estimates for the sampler; it works with up to three objectives"):
        ScreenedSampler([None] * 4)
