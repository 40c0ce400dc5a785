import numpy as np

from tuner.search.predict import ROOT, Estimate, Predictor
from tuner.search.proposals import expected_gains, predicted_members

OPTIONS = {f"p{i}": ("a", "b", "c") for i in range(4)}
SLOWER = {name: {"a": 0.25, "b": 0.15, "c": 0.1} for name in OPTIONS}
SQUARES = {name: {"a": 0.0, "b": 1e-6, "c": 1e-4} for name in OPTIONS}
SIZES = {name: {"a": 4.0, "b": 2.0, "c": 1.0} for name in OPTIONS}


def predictors():
    quality = Estimate(base=0.9, costs=SQUARES, link=ROOT, slope=-1.0)
    return [Predictor(OPTIONS, one) for one in (Estimate(costs=SLOWER), quality, Estimate(costs=SIZES))]


def test_members_go_from_exact_to_fastest():
    rows = predicted_members(predictors(), np.array([1.0, -1.0, 1.0])).tolist()
    assert [0] * 4 in rows
    assert [2] * 4 in rows
    assert len(rows) > 4


def test_one_objective_has_one_member():
    assert predicted_members(predictors()[:1], np.ones(1)).tolist() == [[2] * 4]


def test_what_is_large_is_made_small_by_its_sign():
    large = Predictor(OPTIONS, Estimate(costs=SLOWER))
    assert predicted_members([large], np.array([-1.0])).tolist() == [[0] * 4]


def test_the_better_is_expected_to_gain_more():
    pool = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]])
    gains = expected_gains(
        predictors()[:2],
        np.array([1.0, -1.0]),
        pool,
        np.array([[1.0, -0.9]]),
        np.array([1.0, -0.89]),
        np.random.default_rng(0),
    )
    assert gains[1] > gains[2]
    assert gains[1] > gains[0]
