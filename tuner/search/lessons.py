"""Lessons: what the trials of an Optuna study teach a model, in the numbers that it works with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.predict import Floats, Picks

# User attribute of a trial: per objective the 95 % interval (low, high) of its value, None where there is none.
INTERVALS = "intervals"
# Ours, which holds the intervals and, of a failed trial, the layer that caused it.
FACTS = "tuner"

# Half the width of a 95 % interval in standard deviations, twice.
_WIDTH = 3.92
# What a failure that names its parameter counts, against one that may be any of several.
_NAMED = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lessons:
    """What the trials of a study say, in the numbers that the model works with; everything is made small."""

    picks: Picks
    values: Floats
    noise: Floats
    feasible: NDArray[np.bool_]
    constraints: Mapping[str, tuple[Picks, Floats]]
    seen: frozenset[tuple[int, ...]]
    # Per parameter and choice how many failures it is to blame for.
    blame: list[Floats]


def signs_of(study: optuna.Study) -> Floats:
    """Per objective what makes it small: -1 where it is to be made large."""
    return np.array([-1.0 if way == StudyDirection.MAXIMIZE else 1.0 for way in study.directions])


def read_lessons(study: optuna.Study, options: Mapping[str, Sequence[Any]]) -> Lessons:
    """What the trials say that have just these parameters."""
    signs, place = signs_of(study), {name: {c: i for i, c in enumerate(taken)} for name, taken in options.items()}
    trials = [
        (trial, tuple(place[name][trial.params[name]] for name in options))
        for trial in study.get_trials(deepcopy=False)
        if all(name in trial.params and trial.params[name] in place[name] for name in options)
    ]
    done = [(trial, pick) for trial, pick in trials if trial.state == TrialState.COMPLETE and _finite(trial)]
    picks = np.array([pick for _, pick in done], np.int64).reshape(len(done), len(options))
    values = np.array([trial.values for trial, _ in done], float).reshape(len(done), len(signs)) * signs
    constraints: dict[str, list[tuple[tuple[int, ...], float]]] = {}
    for trial, pick in done:
        for name, value in trial.constraints.items():
            constraints.setdefault(name, []).append((pick, value))
    lost = (TrialState.FAIL, TrialState.PRUNED)
    return Lessons(
        picks=picks,
        values=values,
        noise=np.array([_noise(trial, len(signs)) for trial, _ in done], float).reshape(len(done), len(signs)),
        feasible=np.array([all(v <= 0 for v in trial.constraints.values()) for trial, _ in done], bool),
        constraints={
            name: (np.array([p for p, _ in found], np.int64), np.array([v for _, v in found]))
            for name, found in constraints.items()
        },
        seen=frozenset(pick for _, pick in trials),
        blame=_blame(options, picks, [(_culprit(t), pick) for t, pick in trials if t.state in lost]),
    )


def _finite(trial: FrozenTrial) -> bool:
    return all(math.isfinite(value) for value in trial.values)


def _noise(trial: FrozenTrial, count: int) -> list[float]:
    """The standard deviation of each value, 0 where nothing is said of it."""
    facts = trial.user_attrs.get(FACTS) or {}
    intervals = trial.user_attrs.get(INTERVALS) or facts.get(INTERVALS) or [None] * count
    return [0.0 if one is None else abs(one[1] - one[0]) / _WIDTH for one in intervals]


def _culprit(trial: FrozenTrial) -> str | None:
    facts = trial.user_attrs.get(FACTS) or {}
    layer = facts.get("layer")
    return layer if isinstance(layer, str) else None


def _blame(
    options: Mapping[str, Sequence[Any]], worked: Picks, failed: Sequence[tuple[str | None, tuple[int, ...]]]
) -> list[Floats]:
    """Per parameter and choice how many failures it is to blame for.

    The parameter that a failure names is to blame; otherwise all choices that never worked are, evenly.
    """
    blame = [np.zeros(len(choices)) for choices in options.values()]
    cleared = [{0, *worked[:, number].tolist()} for number in range(len(options))]
    names = list(options)
    for culprit, pick in failed:
        if culprit is not None and culprit in options:
            number = names.index(culprit)
            if pick[number] not in cleared[number]:
                blame[number][pick[number]] += _NAMED
                continue
        suspects = [number for number, option in enumerate(pick) if option not in cleared[number]]
        for number in suspects:
            blame[number][pick[number]] += 1.0 / len(suspects)
    return blame
