import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tuner.measure import locate
from tuner.measure.locate import Locator
from tuner.measurement import NON_FINITE, Costs, Failure
from tuner.program import capture, make_policy
from tuner.task import Task

RNG = np.random.default_rng(0)
PARAMS = {
    "first": {"w": RNG.normal(size=(8, 16)).astype(np.float32)},
    "second": {"w": 1e4 * RNG.normal(size=(16, 16)).astype(np.float32)},
    "last": {"w": RNG.normal(size=(16, 3)).astype(np.float32)},
}
X = RNG.normal(size=(40, 8)).astype(np.float32)
FAILURE = Failure(cause=NON_FINITE, message="60 of 60 outputs are NaN", costs=Costs(compile_s=1.0))


def apply(params, x):
    for name in ("first", "second", "last"):
        x = jax.nn.relu(x @ params[name]["w"])
    return x


def explain(precisions, apply=apply, failure=FAILURE, begin=lambda: None, **settings):
    task = Task(name="t", apply=apply, params=PARAMS, inputs=X, labels=np.zeros(40, np.int32), batch_size=8)
    program = capture(apply, PARAMS, (X[:8],))
    locator = Locator(task, program, settings.pop("deadline_s", 300.0))
    return locator.explain(failure, make_policy(program, precisions), (X[:8],), begin)


def test_the_failure_says_which_layer_with_the_numbers():
    found = explain({"last": "f16/f16/f32"})
    assert found.layer == "last"
    assert found.message.startswith(
        "60 of 60 outputs are NaN; layer 'last' (f16/f16/f32) is the first that is not finite: "
    )
    assert "activations" in found.message
    assert "and f16 ends at 65504" in found.message
    assert (found.cause, found.costs) == (FAILURE.cause, FAILURE.costs)


def test_a_failure_without_a_layer_stays_as_it_is():
    assert explain({"last": "bf16/bf16/f32"}) == FAILURE


def masked(params, x):
    """A layer that is minus infinity on purpose, and another one that reads large numbers."""
    scores = jnp.where(x > 1e9, x, -jnp.inf) @ jnp.abs(params["first"]["w"])
    hidden = jnp.exp(scores) + 1e5 * jnp.abs(x).sum(axis=1, keepdims=True)
    return hidden @ params["last"]["w"]


def test_what_the_untouched_program_has_infinite_is_not_blamed():
    assert explain({"last": "f16/f16/f32"}, masked).layer == "last"
    assert explain({"last": "bf16/bf16/f32"}, masked) == FAILURE


def test_a_program_that_takes_long_to_compile_is_not_compiled_once_more():
    begun = []
    assert explain({"last": "f16/f16/f32"}, deadline_s=3.9, begin=lambda: begun.append(1)) == FAILURE
    assert begun == []
    assert explain({"last": "f16/f16/f32"}, deadline_s=4.1, begin=lambda: begun.append(1)).layer == "last"
    assert begun == [1]


def test_looking_never_takes_more_than_its_share_of_the_time(monkeypatch):
    clock = iter(range(0, 10_000, 100))  # every look takes 100 s
    monkeypatch.setattr(locate.time, "monotonic", lambda: float(next(clock)))
    task = Task(name="t", apply=apply, params=PARAMS, inputs=X, labels=np.zeros(40, np.int32), batch_size=8)
    program = capture(apply, PARAMS, (X[:8],))
    locator = Locator(task, program, 300.0)
    looked = []
    monkeypatch.setattr(locator, "_explain", lambda *_: looked.append(1) or FAILURE)
    for _ in range(12):
        locator.explain(FAILURE, make_policy(program, {}), (X[:8],), lambda: None)
    assert len(looked) == 2  # at 100 s, and when 1,000 s are over


def test_whatever_goes_wrong_while_looking_the_failure_stays(monkeypatch):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr(locate, "find_stability", refuse)
    assert explain({"last": "f16/f16/f32"}) == FAILURE


def test_ctrl_c_passes(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(locate, "find_stability", interrupt)
    with pytest.raises(KeyboardInterrupt):
        explain({"last": "f16/f16/f32"})
