import numpy as np
import pytest

from tuner.search.hypervolume import hypervolume, improvements, undominated


def test_of_known_fronts():
    one = np.array([[0.25]])
    assert hypervolume(one, np.ones(1)) == 0.75
    two = np.array([[0.2, 0.6], [0.5, 0.1]])
    assert hypervolume(two, np.ones(2)) == pytest.approx(0.8 * 0.4 + 0.5 * 0.5)
    three = np.array([[0.0, 0.0, 0.5], [0.5, 0.5, 0.0]])
    assert hypervolume(three, np.ones(3)) == pytest.approx(0.5 + 0.25 * 0.5)


def test_what_is_not_better_than_the_reference_everywhere_counts_nothing():
    points = np.array([[0.0, 1.0], [2.0, 0.0]])
    assert hypervolume(points, np.ones(2)) == 0.0
    assert hypervolume(np.zeros((0, 2)), np.ones(2)) == 0.0


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_an_improvement_is_the_difference_it_makes(objectives):
    random = np.random.default_rng(objectives)
    front, candidates = random.uniform(0, 1.1, (15, objectives)), random.uniform(-0.1, 1.2, (40, objectives))
    reference = np.ones(objectives)
    before = hypervolume(front, reference)
    expected = [hypervolume(np.vstack([front, one[None]]), reference) - before for one in candidates]
    assert improvements(candidates, front, reference) == pytest.approx(expected)


def test_with_nothing_measured_all_is_improvement():
    assert improvements(np.array([[0.5, 0.5]]), np.zeros((0, 2)), np.ones(2)) == pytest.approx([0.25])
    assert improvements(np.array([[0.5, 0.5, 0.5]]), np.zeros((0, 3)), np.ones(3)) == pytest.approx([0.125])


def test_undominated_keeps_one_of_each():
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    assert undominated(points).tolist() == [[0.0, 1.0], [1.0, 0.0]]
