"""Shares of a program's time, each operation in turns with the whole program."""

import time
from typing import Any

import pytest

from search_spaces import Precision
from tests.programs import normal
from tuner.measure import layer_shares as module
from tuner.measure.layer_shares import layer_shares
from tuner.program import capture, make_policy

I8 = Precision.parse("i8/i8/i32")


def program() -> Any:
    params = {"a": normal(8, 4), "b": normal(4, 4)}
    return capture(lambda p, x: x @ p["a"] @ p["b"] @ p["b"], params, (normal(3, 8),))


@pytest.fixture(autouse=True)
def _slow_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of 8 x 4 weights take 20 ms, the others 10 ms."""

    def alone(site: Any, assignment: Any) -> Any:
        if assignment.precision == I8:
            return lambda: time.sleep(0.04)
        assert assignment.precision.is_original
        seconds = 0.02 if site.eqn.invars[1].aval.shape == (8, 4) else 0.01
        return lambda: time.sleep(seconds)

    monkeypatch.setattr(module, "compile_alone", alone)


def test_a_share_counts_every_use_of_a_layer() -> None:
    shares = layer_shares([(1.0, program())], [lambda: time.sleep(0.1)], 60.0)
    assert set(shares) == {"a", "b"}
    assert 0 < shares["a"] < 1
    assert 0 < shares["b"] < 1


def test_without_time_the_first_operations_alone_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOGETHER", 1)
    assert set(layer_shares([(1.0, program())], [lambda: time.sleep(0.01)], 0.0)) == {"a"}


def test_several_kinds_of_call_make_one_share() -> None:
    calls = [lambda: time.sleep(0.1), lambda: time.sleep(0.1)]
    shares = layer_shares([(1.0, program()), (10.0, program())], calls, 60.0)
    assert set(shares) == {"a", "b"}


def test_under_a_policy_each_layer_runs_as_it_says() -> None:
    policy = make_policy(program(), {"a": I8})
    shares = layer_shares([(1.0, program())], [lambda: time.sleep(0.1)], 60.0, policy)
    assert shares["a"] > shares["b"]
