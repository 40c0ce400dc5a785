import pytest

from tuner.errors import InputError
from tuner.search.budget import Budget, check_trials, parse_budget, read_count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("90s", 90), ("1h30m", 5400), ("1h", 3600), ("45", 45), ("0.5m", 30), (" 2 min ", 120), (12.5, 12.5)],
)
def test_durations(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0m", "the budget '0m' is zero"),
        (0, "the budget 0 is zero"),
        ("-5m", "the budget '-5m' is negative"),
        (-1.0, "the budget -1.0 is negative"),
        (float("nan"), "the budget nan is not a time"),
        ("", "cannot read the budget ''"),
        ("soon", "cannot read the budget 'soon'"),
        ("5 days", "cannot read the budget '5 days'"),
        ("5m3h", "cannot read the budget '5m3h'"),
    ],
)
def test_unusable_durations(text, problem):
    with pytest.raises(InputError) as caught:
        parse_budget(text)
    assert str(caught.value) == f"{problem}; give a positive time such as 5m, 90s or 1h30m"


@pytest.mark.parametrize(("trials", "problem"), [(0, "is zero"), (-3, "is negative"), (1.5, "is not a whole number")])
def test_unusable_numbers_of_trials(trials, problem):
    with pytest.raises(InputError, match=problem):
        check_trials(trials)


@pytest.mark.parametrize(("text", "problem"), [("0", "zero"), ("-2", "negative"), ("many", "not a whole number")])
def test_counts_as_typed(text, problem):
    with pytest.raises(InputError, match=rf"--trials .*{text}.* is {problem}; give 1 or more"):
        read_count(text, "--trials")
    assert read_count("12", "--trials") == 12


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_trials_limit_and_estimate():
    clock = Clock()
    budget = Budget(trials=10, seconds=None, clock=clock)
    assert budget.left(0) is None
    for seconds in (2.0, 30.0, 4.0):
        budget.note_trial(seconds)
    assert budget.left(3) == 7 * 4.0
    assert budget.allows(9)
    assert not budget.allows(10)


def test_whichever_ends_first():
    clock = Clock()
    budget = Budget(trials=10, seconds=60, clock=clock)
    budget.note_trial(20.0)
    clock.now = 45.0
    assert budget.left(1) == 15.0
    assert budget.allows(1)
    clock.now = 60.0
    assert not budget.allows(1)


def test_time_is_kept_for_the_confirmation_but_no_more_than_half():
    clock = Clock()
    budget = Budget(trials=None, seconds=100, clock=clock)
    budget.note_trial(5.0)
    clock.now = 84.0
    assert budget.allows(9, confirmations=3)
    clock.now = 85.0
    assert not budget.allows(9, confirmations=3)
    clock.now = 49.0
    assert budget.allows(9, confirmations=1000)


def test_the_first_trial_may_begin_however_late_it_is():
    clock = Clock()
    budget = Budget(trials=None, seconds=20, clock=clock)
    clock.now = 40.0  # the device was busy all the while
    assert budget.allows(0)
    assert not budget.allows(1)
