"""Settings of one run of a search, checked before anything is loaded, traced or written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.drop import Drop
from tuner.errors import InputError
from tuner.front import OBJECTIVES, check_objectives
from tuner.isolation import CHILD, check_isolation
from tuner.measurement import ALTERNATE, RESIDENT
from tuner.policy import Policy
from tuner.policy_file import load_policy
from tuner.search.budget import DEFAULT_SECONDS, Budget, check_trials, parse_budget, parse_size
from tuner.search.goal import Goal
from tuner.search.samplers import SCREENED, check_sampler
from tuner.search.spaces import Space

DEFAULT_DROP = Drop(0.01)
DEFAULT_DEADLINE = "5m"
# Trials without a gain after which a search that only time limits stops; twice the choices where they are more.
_PATIENCE = 30
BASELINES = (RESIDENT, ALTERNATE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the user asked for. None means: as the study began, or for a new one the recommendation."""

    study: str
    storage: str
    trials: int | None
    seconds: float | None
    sampler: str = SCREENED
    seed: int = 0
    max_drop: Drop | None = None
    space: Space | None = None
    objectives: tuple[str, ...] | None = None
    start: Policy | None = None
    # What messages call it: the file, where it came from one.
    start_name: str = "the policy to start from"
    # A trial whose neighbors, one layer as written, are measured first; with no number of trials given, nothing else.
    around: int | None = None
    isolation: str = CHILD
    # Of one candidate: seconds to compile or to make one call, and bytes beyond the baseline's; None: nearly all.
    deadline_s: float = 300.0
    memory_limit: int | None = None
    # Whether the baseline's weights stay on the device beside a candidate's.
    baseline: str = RESIDENT
    # What to stop at, and after how many trials without a gain; None: as the sampler and the budget make sensible.
    goal: Goal | None = None
    patience: int | None = None
    # What the task's module recommends for a new study.
    recommended_drop: Drop = DEFAULT_DROP
    recommended_space: Space | None = None

    @property
    def only_around(self) -> bool:
        """True when nothing but the neighbors of a trial is to be measured."""
        return self.around is not None and self.trials is None

    def patience_for(self, choices: int) -> int:
        """After how many trials without a gain to stop, 0 for never.

        By default only a search that time alone limits, with the sampler that knows what it does not try.

        Args:
            choices: how many layers the sampler decides on.
        """
        if self.patience is not None:
            return self.patience
        return max(_PATIENCE, 2 * choices) if self.trials is None and self.sampler == SCREENED else 0

    def budget(self) -> Budget:
        """A budget that begins now."""
        return Budget(trials=self.trials, seconds=self.seconds)


def check_settings(
    *,
    study: str,
    storage: str,
    trials: int | None = None,
    budget: str | float | None = None,
    max_drop: Drop | str | float | None = None,
    space: Space | None = None,
    sampler: str = SCREENED,
    seed: int = 0,
    objectives: Sequence[str] | None = None,
    start: Policy | str | Path | None = None,
    around: int | None = None,
    isolation: str = CHILD,
    deadline: str | float = DEFAULT_DEADLINE,
    memory_limit: str | int | None = None,
    baseline: str = RESIDENT,
    goal: Goal | str | None = None,
    patience: int | None = None,
    recommended_trials: int | None = None,
    recommended_drop: str | float | None = None,
    recommended_space: Space | None = None,
) -> Settings:
    """The settings, each value checked.

    Raises:
        InputError: a value cannot be used; names it, shows it and says what to write.
        PolicyError: the file to start from cannot be read.
    """
    check_sampler(sampler)
    seconds = None if budget is None else parse_budget(budget)
    if trials is None and seconds is None:
        trials = recommended_trials if around is None else None
        seconds = DEFAULT_SECONDS if trials is None else None
    return Settings(
        study=_check_name(study),
        storage=storage,
        trials=None if trials is None else check_trials(trials),
        seconds=seconds,
        sampler=sampler,
        seed=_check_seed(seed),
        max_drop=None if max_drop is None else Drop.parse(max_drop),
        space=space,
        objectives=None if objectives is None else _in_order(objectives),
        start=load_policy(start) if isinstance(start, str | Path) else start,
        start_name=str(start) if isinstance(start, str | Path) else "the policy to start from",
        around=_check_around(around),
        isolation=check_isolation(isolation),
        deadline_s=parse_budget(deadline, "deadline"),
        memory_limit=None if memory_limit is None else parse_size(memory_limit),
        baseline=_check_baseline(baseline),
        goal=None if goal is None else Goal.parse(goal),
        patience=_check_patience(patience),
        recommended_drop=DEFAULT_DROP if recommended_drop is None else Drop.parse(recommended_drop),
        recommended_space=recommended_space,
    )


def _in_order(objectives: Sequence[str]) -> tuple[str, ...]:
    """The objectives in our order, so that naming them differently changes nothing."""
    given = objectives.split(",") if isinstance(objectives, str) else objectives
    checked = check_objectives([name.strip() for name in given])
    return tuple(name for name in OBJECTIVES if name in checked)


def _check_name(study: Any) -> str:  # whoever calls from Python may give anything
    if not isinstance(study, str) or not study.strip():
        raise InputError(f"the study name {study!r} is empty or no text; give a short name such as 'mnist'")
    return study


def _check_around(around: Any) -> int | None:
    if around is not None and (isinstance(around, bool) or not isinstance(around, int) or around < 0):
        raise InputError(f"around={around!r} is not the number of a trial; `tuner front` shows those of the front")
    return around


def _check_patience(patience: Any) -> int | None:
    if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int) or patience < 0):
        raise InputError(
            f"patience={patience!r} is not a number of trials; give one such as 30, or 0 to never stop for it"
        )
    return patience


def _check_baseline(baseline: str) -> str:
    if baseline not in BASELINES:
        raise InputError(
            f"baseline {baseline!r} is neither of {', '.join(BASELINES)}; give resident to time candidates call by call "
            "beside it, or alternate where the weights of two programs do not fit the device"
        )
    return baseline


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"the seed {seed!r} is not a whole number from 0 to {2**32 - 1}; give one, such as 0")
    return seed
