import itertools

import numpy as np
import pytest

from tuner.search import knapsack
from tuner.search.knapsack import solve, totals


def problem(items, seed=0):
    random = np.random.default_rng(seed)
    losses = [np.concatenate(([0.0], random.lognormal(-6, 2, 3))) for _ in range(items)]
    costs = [np.concatenate(([1.0], random.uniform(0.2, 1.2, 3))) * random.uniform(0.1, 5) for _ in range(items)]
    return losses, costs


def front_by_trying_all(losses, costs):
    picks = np.array(list(itertools.product(*(range(len(one)) for one in losses))))
    points = sorted(zip(totals(picks, losses), totals(picks, costs), strict=True))
    best, found = np.inf, []
    for loss, cost in points:
        if cost < best:
            best = cost
            found.append((loss, cost))
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_are_solved_exactly_for_every_budget(seed):
    losses, costs = problem(6, seed)
    found = solve(losses, costs, most=10_000)
    assert np.allclose(
        np.stack([totals(found, losses), totals(found, costs)], 1), front_by_trying_all(losses, costs), rtol=1e-9
    )


def test_from_the_least_loss_to_the_least_cost():
    losses, costs = problem(20)
    found = solve(losses, costs)
    loss, cost = totals(found, losses), totals(found, costs)
    assert (np.diff(loss) > 0).all()
    assert (np.diff(cost) < 0).all()
    assert loss[0] == 0.0
    assert cost[-1] == pytest.approx(sum(one.min() for one in costs))
    assert len(found) <= 256


def test_walking_hulls_comes_near_what_keeping_states_finds(monkeypatch):
    losses, costs = problem(60)
    exact = solve(losses, costs)
    monkeypatch.setattr(knapsack, "_MANY_ITEMS", 1)
    walked = solve(losses, costs)
    step = max(np.ptp(one) for one in costs)
    for loss, cost in zip(totals(walked, losses), totals(walked, costs), strict=True):
        reachable = totals(exact, costs)[totals(exact, losses) <= loss]
        assert cost <= reachable.min() + step


def test_thousands_of_items_have_a_front():
    losses, costs = problem(3000)
    found = solve(losses, costs, most=64)
    assert found.shape[1] == 3000
    assert totals(found, costs)[-1] == pytest.approx(sum(one.min() for one in costs))


def test_no_item_is_one_empty_solution():
    assert solve([], []).shape == (1, 0)
