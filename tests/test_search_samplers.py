import importlib.util

import optuna
import pytest

from search_spaces import SearchSpace
from tests.search_bench import make_program
from tuner.errors import InputError
from tuner.search.choices import ChoiceSpace
from tuner.search.optuna_study import quiet_optuna
from tuner.search.samplers import SAMPLERS, TiedSampler, check_sampler, make_sampler
from tuner.search.spaces import resolve_space

RULES = '[[rules]]\nkinds = ["matmul"]\nprecisions = ["f32/f32/f32", "i8/i8/i32"]\n'
GROUP = '[[groups]]\nname = "pair"\nlayers = "layer_[12]"\n'
HERE = [name for name in SAMPLERS if name != "gp" or importlib.util.find_spec("torch")]


@pytest.fixture(autouse=True)
def _quiet():
    with quiet_optuna():
        yield


def make_space(text: str = RULES, layers: int = 3) -> ChoiceSpace:
    resolved = resolve_space(SearchSpace.parse(text, "test"), make_program(layers))
    return ChoiceSpace.from_resolution(resolved.resolution)


def ask_all(sampler: TiedSampler, space: ChoiceSpace, count: int) -> list[dict[str, str]]:
    """Asks and tells, every fifth trial as pruned and every seventh as failed."""
    study = optuna.create_study(directions=["minimize", "maximize", "minimize"], sampler=sampler)
    proposals = []
    for number in range(count):
        trial = study.ask(dict(space.distributions))
        proposals.append(dict(trial.params))
        sampler.mark_seen(trial.params)
        cost = sum(text != "original" for text in trial.params.values())
        if number % 5 == 4:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        elif number % 7 == 6:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, [3.0 - cost, -float(cost), cost / 2])
    return proposals


@pytest.mark.parametrize("name", HERE)
def test_never_proposes_the_same_twice_while_anything_is_left(name):
    space = make_space()
    sampler = TiedSampler(make_sampler(name, 0), space, 0)
    proposals = ask_all(sampler, space, space.size)
    assert {space.key(proposal) for proposal in proposals} == {space.key(proposal) for proposal in space.all()}
    assert sampler.exhausted


@pytest.mark.parametrize("name", HERE)
def test_groups_move_together(name):
    space = make_space(RULES + GROUP)
    for proposal in ask_all(TiedSampler(make_sampler(name, 1), space, 1), space, space.size):
        assert proposal["layer_1"] == proposal["layer_2"]


@pytest.mark.parametrize("name", HERE)
def test_the_plan_comes_first_and_what_is_seen_is_skipped(name):
    space = make_space()
    planned = [space.expand({"layer_0": text}) for text in ("i8/i8/i32", "original", "f32/f32/f32")]
    sampler = TiedSampler(make_sampler(name, 0), space, 0)
    sampler.plan(planned)
    sampler.mark_seen(planned[1])
    assert ask_all(sampler, space, 3)[:2] == [planned[0], planned[2]]
    assert not sampler.has_plan


def test_the_same_seed_proposes_the_same():
    space = make_space()
    for name in HERE:
        runs = [ask_all(TiedSampler(make_sampler(name, 7), space, 7), space, 15) for _ in range(2)]
        assert runs[0] == runs[1]


def test_a_space_of_one_proposal_can_be_asked():
    space = make_space('[[rules]]\nkinds = ["conv"]\nprecisions = ["f32/f32/f32"]\noptional = true\n')
    assert space.size == 1
    assert ask_all(TiedSampler(make_sampler("nsga2", 0), space, 0), space, 2) == [space.expand({})] * 2


def test_planned_candidates_are_the_first_generation_of_nsga2():
    space = make_space(layers=4)
    sampler = TiedSampler(make_sampler("nsga2", 0), space, 0)
    planned = list(space.all())[:8]
    sampler.plan(planned)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    for number in range(8):
        trial = study.ask(dict(space.distributions))
        sampler.mark_seen(trial.params)
        study.tell(trial, [float(number), -float(number)])
    generations = {trial.system_attrs["NSGAIISampler:generation"] for trial in study.trials}
    assert generations == {0}


def test_an_unknown_sampler_is_refused_with_the_accepted_names():
    with pytest.raises(InputError) as caught:
        check_sampler("cmaes")
    assert str(caught.value) == "unknown sampler 'cmaes'; use one of screened, nsga2, tpe, gp, random, exhaustive"


def test_gp_without_its_libraries_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        check_sampler("gp")
    assert str(caught.value) == (
        "the sampler 'gp' needs torch and scipy, not installed here; run: pip install 'jax-precision-tuner[gp]'"
    )
