import pytest

from tuner.drop import Drop
from tuner.errors import InputError, PolicyError
from tuner.search.settings import Settings, check_settings


def settings(**changes: object) -> Settings:
    return check_settings(**{"study": "mnist", "storage": "sqlite:///x.db", **changes})


def test_ten_minutes_when_neither_trials_nor_budget_is_given():
    assert (settings().trials, settings().seconds) == (None, 600.0)


def test_isolation_is_child_unless_asked_otherwise():
    assert settings().isolation == "child"
    assert settings(isolation="none").isolation == "none"
    with pytest.raises(InputError, match="isolation 'docker' is neither of child, none; give child to measure in a"):
        settings(isolation="docker")


def test_the_baseline_is_resident_unless_asked_otherwise():
    assert settings().baseline == "resident"
    assert settings(baseline="alternate").baseline == "alternate"
    with pytest.raises(InputError, match="baseline 'none' is neither of resident, alternate; give resident to time"):
        settings(baseline="none")


def test_what_one_candidate_may_take():
    assert (settings().deadline_s, settings().memory_limit) == (300.0, None)
    given = settings(deadline="90s", memory_limit="1.5GB")
    assert (given.deadline_s, given.memory_limit) == (90.0, 1_500_000_000)
    assert settings(memory_limit=2**30).memory_limit == 2**30
    with pytest.raises(InputError, match="cannot read the deadline 'soon'; give a positive time such as 5m"):
        settings(deadline="soon")
    for wrong in ("much", "0GB", "-1", True):
        with pytest.raises(InputError, match=f"the memory limit {wrong!r} is not a size; give one such as 8GB"):
            settings(memory_limit=wrong)


def test_the_recommended_trials_stand_in_for_ten_minutes_only():
    assert (settings(recommended_trials=30).trials, settings(recommended_trials=30).seconds) == (30, None)
    given = settings(recommended_trials=30, budget="5m")
    assert (given.trials, given.seconds) == (None, 300.0)
    both = settings(trials=4, budget="5m")
    assert (both.trials, both.seconds) == (4, 300.0)


def test_objectives_are_kept_in_one_order_however_given():
    assert settings(objectives="memory, latency").objectives == ("latency", "memory")
    assert settings(objectives=["quality"]).objectives == ("quality",)


def test_drops_are_read():
    assert settings(max_drop="2%").max_drop == Drop(0.02)
    assert settings().max_drop is None
    assert settings(recommended_drop="1%rel").recommended_drop == Drop(0.01, relative=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"trials": 0},
        {"budget": "-1s"},
        {"max_drop": "some"},
        {"sampler": "cmaes"},
        {"objectives": []},
        {"objectives": "speed"},
        {"seed": 2**32},
        {"seed": 1.5},
        {"study": ""},
        {"study": 3},
    ],
)
def test_unusable_values_are_refused(changes):
    with pytest.raises(InputError):
        settings(**changes)


def test_a_start_that_does_not_exist_is_refused():
    with pytest.raises(PolicyError, match=r"absent.json does not exist"):
        settings(start="absent.json")


def test_around_a_trial_the_recommended_number_of_trials_does_not_count():
    assert check_settings(study="a", storage="b", around=3, recommended_trials=40).trials is None
    assert check_settings(study="a", storage="b", around=3, recommended_trials=40).seconds is not None
    assert check_settings(study="a", storage="b", recommended_trials=40).trials == 40
