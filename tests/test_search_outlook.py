import pytest

from tests.factories import make_measurement
from tests.search_bench import FakeEvaluator, make_program, make_table
from tests.test_search_estimates import I8, make_space
from tuner.measurement import SLOW, Failure
from tuner.search.estimates import make_estimates
from tuner.search.outlook import Outlook


@pytest.fixture
def outlook():
    space, evaluator = make_space(), FakeEvaluator()
    table = make_table(space.choices)
    screening = evaluator.screen(space.choices, {}, known={}, budget_s=1.0)
    estimates = make_estimates(
        make_program().layers, space, table, screening, evaluator.baseline, allowed_drop=0.01, larger_is_better=True
    )
    return space, Outlook(space, estimates, evaluator.baseline, larger_is_better=True)


def test_it_knows_the_baseline_and_what_is_cheaper(outlook):
    space, found = outlook
    written, small = found.predict(space.expand({})), found.predict(space.expand(dict.fromkeys(space.free, I8)))
    assert (written.latency, written.drop) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-6))
    assert small.latency < 0.9
    assert small.drop > 0
    assert small.fidelity == pytest.approx(0.004 * 3**0.5)


def test_it_learns_what_was_measured_and_nothing_from_failures(outlook):
    space, found = outlook
    proposal = space.expand(dict.fromkeys(space.free, I8))
    found.learn(proposal, Failure(cause=SLOW, message="slow"))
    before = found.predict(proposal)
    found.learn(proposal, make_measurement(0.55, 0.002, 700))
    after = found.predict(proposal)
    assert abs(after.latency - 0.55) < 0.1 * abs(before.latency - 0.55) + 0.01
    assert abs(after.memory - 700) < 30
    half = space.expand({space.free[0]: I8})
    assert found.predict(half).latency < 1.0
