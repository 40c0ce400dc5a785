"""Multiple-choice knapsack over all budgets at once: one option per item, the least cost for every loss.

Two ways, by size. Small problems keep every state that none dominates, item by item, thinned evenly where they become
many: exact as long as nothing is thinned. Large ones walk the lower convex hulls of their items from the steepest step
to the flattest: what that leaves out is worth at most one step of one item.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Picks = NDArray[np.int64]

# States that are kept from item to item, and the items from which on hulls are walked.
_STATES = 512
_MANY_ITEMS = 150


def solve(losses: Sequence[Floats], costs: Sequence[Floats], *, most: int = 256) -> Picks:
    """One row per solution, from the least loss to the least cost, with one option number per item.

    Args:
        losses: per item one loss per option; they add up.
        costs: the same for what is to be made small at each total loss.
        most: solutions that are wanted at most.
    """
    if not losses:
        return np.zeros((1, 0), np.int64)
    found = _walk_hulls(losses, costs) if len(losses) > _MANY_ITEMS else _keep_states(losses, costs)
    total = totals(found, losses)
    best = _undominated(total, totals(found, costs))
    return found[best[_spread(total[best], totals(found, costs)[best], most)]]


def totals(picks: Picks, values: Sequence[Floats]) -> Floats:
    """The sum over items of the values of the options that each row picks."""
    total = np.zeros(len(picks))
    for item, column in enumerate(values):
        total += column[picks[:, item]]
    return total


def _keep_states(losses: Sequence[Floats], costs: Sequence[Floats]) -> Picks:
    loss, cost = np.zeros(1), np.zeros(1)
    came_from, took = [], []
    for own_losses, own_costs in zip(losses, costs, strict=True):
        all_losses = (loss[:, None] + own_losses[None, :]).ravel()
        all_costs = (cost[:, None] + own_costs[None, :]).ravel()
        kept = _undominated(all_losses, all_costs)
        kept = kept[_spread(all_losses[kept], all_costs[kept], _STATES)]
        came_from.append(kept // len(own_losses))
        took.append(kept % len(own_losses))
        loss, cost = all_losses[kept], all_costs[kept]
    picks = np.empty((len(loss), len(losses)), np.int64)
    state = np.arange(len(loss))
    for item in reversed(range(len(losses))):
        picks[:, item] = took[item][state]
        state = came_from[item][state]
    return picks


def _walk_hulls(losses: Sequence[Floats], costs: Sequence[Floats]) -> Picks:
    """The policies at evenly spread points of the walk."""
    start = np.array([np.lexsort((cost, loss))[0] for loss, cost in zip(losses, costs, strict=True)])
    steps = [
        (slope, item, option)
        for item, (loss, cost) in enumerate(zip(losses, costs, strict=True))
        for slope, option in _hull_steps(loss, cost, int(start[item]))
    ]
    steps.sort()
    wanted = set(np.linspace(0, len(steps), min(len(steps) + 1, _STATES)).astype(int).tolist())
    pick, found = start.copy(), []
    for number in range(len(steps) + 1):
        if number in wanted:
            found.append(pick.copy())
        if number < len(steps):
            _, item, option = steps[number]
            pick[item] = option
    return np.array(found)


def _hull_steps(loss: Floats, cost: Floats, start: int) -> list[tuple[float, int]]:
    """(slope, option) of the lower convex hull from an item's least loss on, steepest (most negative) first."""
    steps: list[tuple[float, int]] = []
    here = start
    while True:
        cheaper = np.flatnonzero(cost < cost[here])
        if not len(cheaper):
            return steps
        rise = np.maximum(loss[cheaper] - loss[here], 1e-300)
        slopes = (cost[cheaper] - cost[here]) / rise
        best = int(np.lexsort((cost[cheaper], slopes))[0])
        here = int(cheaper[best])
        steps.append((float(slopes[best]), here))


def _undominated(loss: Floats, cost: Floats) -> NDArray[np.int64]:
    """Positions of those that none is as good as in both and better in one, by growing loss; one of each equal pair."""
    order = np.lexsort((cost, loss))
    sorted_costs = cost[order]
    before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_costs)[:-1]))
    return order[sorted_costs < before]


def _spread(loss: Floats, cost: Floats, most: int) -> NDArray[np.int64]:
    """Positions of at most so many, evenly spread along a front that is sorted by loss; both ends are kept."""
    if len(loss) <= most:
        return np.arange(len(loss))
    positive = loss[loss > 0]
    floor = positive.min() if len(positive) else 1.0
    logs = np.log(np.maximum(loss, floor / 10))
    steps = np.abs(np.diff(logs)) / (np.ptp(logs) or 1.0) + np.abs(np.diff(cost)) / (np.ptp(cost) or 1.0)
    way = np.concatenate(([0.0], np.cumsum(steps)))
    return np.unique(np.searchsorted(way, np.linspace(0.0, way[-1], most)).clip(0, len(loss) - 1))
