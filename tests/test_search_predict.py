import numpy as np
import pytest

from tuner.search.predict import LOG_ROOT, ROOT, Estimate, Predictor

OPTIONS = {f"p{i}": ("a", "b", "c") for i in range(5)}
COSTS = {name: {"a": 0.2, "b": 0.1, "c": 0.05 + 0.01 * i} for i, name in enumerate(OPTIONS)}
SQUARES = {name: {"a": 0.0, "b": 1e-6 * (i + 1), "c": 1e-4 * (i + 1)} for i, name in enumerate(OPTIONS)}


def table(costs):
    return np.array([[costs[name][choice] for choice in taken] for name, taken in OPTIONS.items()])


def total(costs, picks):
    return table(costs)[np.arange(len(OPTIONS)), picks].sum(axis=1)


@pytest.fixture
def picks():
    return np.random.default_rng(0).integers(0, 3, (200, len(OPTIONS)))


def test_before_any_measurement_it_is_the_estimate(picks):
    mean, spread = Predictor(OPTIONS, Estimate(base=0.1, costs=COSTS)).predict(picks)
    assert mean == pytest.approx(0.1 + total(COSTS, picks))
    assert (spread > 0).all()
    mean, _ = Predictor(OPTIONS, Estimate(base=0.9, costs=SQUARES, link=ROOT, slope=-2.0)).predict(picks)
    assert mean == pytest.approx(0.9 - 2.0 * np.sqrt(total(SQUARES, picks)))
    mean, _ = Predictor(OPTIONS, Estimate(costs=SQUARES, link=LOG_ROOT)).predict(np.ones((1, 5), int))
    assert np.exp(mean) == pytest.approx(np.sqrt(1.5e-5))


def test_what_is_measured_is_then_predicted(picks):
    predictor = Predictor(OPTIONS, Estimate(base=0.1, costs=COSTS))
    truth = 0.1 + 1.1 * total(COSTS, picks)
    predictor.fit(picks[:3], truth[:3], np.full(3, 1e-4))
    mean, spread = predictor.predict(picks[:3])
    assert mean == pytest.approx(truth[:3], abs=2e-3)
    assert (spread < 2e-3).all()


@pytest.mark.parametrize("count", [8, 30])
def test_measurements_correct_the_rest(picks, count):
    true_costs = {name: {c: v * 1.2 for c, v in costs.items()} for name, costs in COSTS.items()}
    true_costs["p3"]["c"] = 0.3  # which screening did not foresee
    truth = 0.1 + total(true_costs, picks)
    predictor = Predictor(OPTIONS, Estimate(base=0.1, costs=COSTS))
    before = np.abs(predictor.predict(picks)[0] - truth)
    predictor.fit(picks[:count], truth[:count], np.full(count, 0.002))
    after = np.abs(predictor.predict(picks)[0] - truth)
    assert after[count:].mean() < 0.5 * before[count:].mean()
    learned = predictor.costs()
    assert learned[3][2] > learned[2][2]


def test_an_interval_is_a_weight(picks):
    trusted, doubted = (Predictor(OPTIONS, Estimate(base=0.1, costs=COSTS)) for _ in range(2))
    prior = trusted.predict(picks[:1])[0]
    wrong = prior + 0.2
    trusted.fit(picks[:1], wrong, np.array([0.001]))
    doubted.fit(picks[:1], wrong, np.array([1.0]))
    assert abs(trusted.predict(picks[:1])[0] - wrong) < 0.02
    assert abs(doubted.predict(picks[:1])[0] - prior) < 0.02


def test_neighbors_that_cost_more_together_are_learned(picks):
    together = (picks[:, 1] == 2) & (picks[:, 2] == 2)
    truth = 0.1 + total(COSTS, picks) + 0.02 * together
    predictor = Predictor(OPTIONS, Estimate(base=0.1, costs=COSTS))
    predictor.fit(picks[:120], truth[:120], np.full(120, 0.001))
    mean = predictor.predict(picks[120:])[0]
    assert np.abs(mean - truth[120:]).mean() < 0.006


def test_without_an_estimate_all_is_learned(picks):
    truth = 5.0 + 3.0 * total(COSTS, picks)
    predictor = Predictor(OPTIONS, None)
    predictor.fit(picks[:60], truth[:60], np.full(60, 0.001))
    assert np.corrcoef(predictor.predict(picks[60:])[0], truth[60:])[0, 1] > 0.98


def test_errors_are_corrected_in_squares(picks):
    estimate = Estimate(base=0.0, costs=SQUARES, link=LOG_ROOT)
    predictor = Predictor(OPTIONS, estimate)
    squares = {
        name: {c: v * (9.0 if name == "p4" else 1.0) for c, v in costs.items()} for name, costs in SQUARES.items()
    }
    some = picks[total(SQUARES, picks) > 0]
    truth = 0.5 * np.log(total(squares, some))
    predictor.fit(some[:60], truth[:60], np.full(60, 0.01))
    assert np.abs(predictor.predict(some[60:])[0] - truth[60:]).mean() < 0.15
    assert predictor.is_root
    assert predictor.costs()[4][2] > 2 * SQUARES["p4"]["c"]
