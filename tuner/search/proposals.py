"""Proposals: what a screened search may try next, and what each is expected to add to the hypervolume."""

import itertools
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from tuner.search import knapsack
from tuner.search.hypervolume import improvements
from tuner.search.lessons import Lessons
from tuner.search.predict import Floats, Picks, Predictor

_POOL = 600
_PREDICTED = 64
_AROUND = 12
_DRAWS = 16
# The chance that what made one trial fail works in another.
_WORKS_AFTER_ALL = 0.05


def make_pool(
    predictors: Sequence[Predictor],
    signs: Floats,
    known: Lessons,
    front: Floats,
    taken: AbstractSet[tuple[int, ...]],
    random: np.random.Generator,
) -> Picks:
    """Predicted members of the front and single changes around the measured one, none of which was tried."""
    predicted = {tuple(row) for row in predicted_members(predictors, signs).tolist()} - taken
    around = {row for row in _around(predictors, known, front, random) if row not in taken} - predicted
    rows = [*sorted(predicted), *sorted(around)]
    if len(rows) > _POOL:
        chosen = random.choice(np.arange(len(predicted), len(rows)), max(0, _POOL - len(predicted)), replace=False)
        rows = [*rows[: len(predicted)], *(rows[number] for number in sorted(chosen))]
    return np.array(rows, np.int64).reshape(len(rows), known.picks.shape[1])


def predicted_members(predictors: Sequence[Predictor], signs: Floats) -> Picks:
    """Members of the front that the corrected costs predict, for several weights of what is not the loss.

    Args:
        predictors: one per objective; the loss is the first whose costs are squared errors, else the second.
        signs: per objective -1 where it is to be made large.
    """
    costs = [
        own if predictor.is_root else [sign * one for one in own]
        for predictor, sign, own in zip(predictors, signs, (p.costs() for p in predictors), strict=True)
    ]
    if len(costs) == 1:
        return np.array([[int(np.argmin(one)) for one in costs[0]]], np.int64)
    roots = [number for number, predictor in enumerate(predictors) if predictor.is_root]
    loss = roots[0] if roots else 1
    others = [_scaled(one) for number, one in enumerate(costs) if number != loss]
    weights = [(1.0,)] if len(others) == 1 else [(1.0, 0.0), (0.7, 0.3), (0.3, 0.7), (0.0, 1.0)]
    found = []
    for shares in weights:
        mixed = [sum(w * part for w, part in zip(shares, parts, strict=True)) for parts in zip(*others, strict=True)]
        found.append(knapsack.solve(costs[loss], mixed, most=_PREDICTED))
    return np.unique(np.concatenate(found), axis=0)


def _scaled(costs: Sequence[Floats]) -> list[Floats]:
    """Costs whose largest and smallest total are one apart."""
    span = sum(float(np.ptp(one)) for one in costs) or 1.0
    return [one / span for one in costs]


def _around(
    predictors: Sequence[Predictor], known: Lessons, front: Floats, random: np.random.Generator
) -> list[tuple[int, ...]]:
    """Every policy that differs from a member of the measured front in one parameter; of a large front, of some."""
    on_front = [
        number
        for number in np.flatnonzero(known.feasible)
        if len(front) and (front == known.values[number]).all(axis=1).any()
    ]
    if len(on_front) > _AROUND:
        on_front = sorted(random.choice(on_front, _AROUND, replace=False).tolist())
    sizes = [len(one) for one in known.blame]
    moves = [(place, option) for place, size in enumerate(sizes) for option in range(size)]
    most = 4 * _POOL // max(1, len(on_front))
    if len(moves) > most:
        moves = [moves[number] for number in sorted(random.choice(len(moves), most, replace=False))]
    found = []
    for number, (place, option) in itertools.product(on_front, moves):
        row = known.picks[number].tolist()
        if row[place] != option:
            row[place] = option
            found.append(tuple(row))
    return found


def expected_gains(
    predictors: Sequence[Predictor],
    signs: Floats,
    pool: Picks,
    front: Floats,
    reference: Floats,
    random: np.random.Generator,
) -> Floats:
    """What each policy of the pool is expected to add to the hypervolume."""
    told = [predictor.predict(pool) for predictor in predictors]
    means = np.stack([sign * mean for sign, (mean, _) in zip(signs, told, strict=True)], axis=1)
    spreads = np.stack([spread for _, spread in told], axis=1)
    draws = random.standard_normal((_DRAWS // 2, len(signs)))
    total = np.zeros(len(pool))
    for draw in (*draws, *-draws):
        total += improvements(means + spreads * draw, front, reference)
    return total / _DRAWS


def chances(known: Lessons, options: Mapping[str, Sequence[Any]], pool: Picks) -> Floats:
    """The chance of each policy of the pool to work and to keep every constraint."""
    chance = np.ones(len(pool))
    for number, blame in enumerate(known.blame):
        chance *= _WORKS_AFTER_ALL ** blame[pool[:, number]]
    for picks, values in known.constraints.values():
        predictor = Predictor(options, None)
        predictor.fit(picks, values, np.zeros(len(values)))
        mean, spread = predictor.predict(pool)
        chance *= 0.5 * (
            1.0 + np.array([math.erf(-m / (s * math.sqrt(2.0) + 1e-12)) for m, s in zip(mean, spread, strict=True)])
        )
    return chance
