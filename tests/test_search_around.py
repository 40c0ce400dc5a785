import pytest

from tests.search_bench import Bench, FakeEvaluator
from tuner.errors import InputError
from tuner.leave_one_out import leave_one_out, unmeasured_layers

I8 = "i8/i8/i32"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "precision.db", layers=4)


def test_every_layer_of_a_trial_is_put_back_once_and_nothing_else_is_measured(bench):
    study = bench.search(trials=6)
    everywhere = next(trial for trial in study.trials() if trial.label == I8)
    before = {trial.key for trial in study.trials()}
    evaluator = FakeEvaluator()
    study = bench.search(around=everywhere.trial, evaluator=evaluator)
    for policy in evaluator.measured:
        different = [name for name, p in everywhere.policy.precisions.items() if policy.precisions[name] != p]
        assert len(different) == 1
        assert policy.precisions[different[0]].is_original
        assert policy.hash not in before
    effects = leave_one_out(study.point(everywhere.trial), study.points())
    assert {effect.layer for effect in effects} == {f"layer_{i}" for i in range(4)}
    assert unmeasured_layers(study.point(everywhere.trial), effects) == []


def test_with_trials_the_search_goes_on_behind_it(bench):
    study = bench.search(trials=6)
    everywhere = next(trial for trial in study.trials() if trial.label == I8)
    study = bench.search(around=everywhere.trial, trials=14)
    assert len(study.trials()) == 14
    assert len(leave_one_out(study.point(everywhere.trial), study.points())) == 4


def test_layers_of_a_group_go_back_together(tmp_path):
    space = f"""
    [[rules]]
    kinds = ["matmul"]
    precisions = ["{I8}"]
    [[groups]]
    name = "pair"
    layers = "layer_[01]"
    """
    bench = Bench(tmp_path / "precision.db", layers=3, space=space)
    study = bench.search(trials=2)
    evaluator = FakeEvaluator()
    bench.search(around=study.trials()[-1].trial, evaluator=evaluator)
    back = [{n for n, p in policy.precisions.items() if p.is_original} - {"input"} for policy in evaluator.measured]
    assert sorted(map(sorted, back)) == [["layer_0", "layer_1"], ["layer_2"]]


@pytest.mark.parametrize(
    ("around", "words"),
    [
        (99, "the study has no trial 99 with a policy to look around; `tuner trials` lists"),
        (-1, "around=-1 is not the number"),
    ],
)
def test_a_trial_that_is_not_there_is_named(bench, around, words):
    bench.search(trials=2)
    with pytest.raises(InputError, match=words):
        bench.search(around=around)
