"""What an evaluator makes of a task that is timed with several kinds of call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.errors import PolicyError
from tuner.measure import Evaluator, IsolatedEvaluator
from tuner.measure.latency import Effort
from tuner.measurement import Failure, Measurement, reference_ms
from tuner.policy import Assignment
from tuner.program import make_policy, uniform_policy
from tuner.shapes import Shape
from tuner.task import Task

BRIEF = Effort(seconds=0.04)
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(96, 12, 32)).astype(np.float32)
PARAMS = {
    "up": RNG.normal(size=(32, 64)).astype(np.float32) / 6,
    "down": RNG.normal(size=(64, 5)).astype(np.float32) / 8,
}
BF16 = Precision.parse("bf16/bf16/f32")
SHAPES = {"prefill": Shape(batch_size=16), "decode": Shape(inputs=INPUTS[:1, :1], weight=64)}


def apply(params, x):
    return jnp.tanh(x @ params["up"]).mean(1) @ params["down"]


LABELS = np.asarray(apply(PARAMS, INPUTS)).argmax(1).astype(np.int32)


def make_task(apply=apply, shapes=SHAPES):
    fields = {"inputs": INPUTS, "labels": LABELS, "batch_size": 16, "shapes": shapes}
    return Task(name="seq", apply=apply, params=PARAMS, **fields)


def make(task, kind=Evaluator, **settings):
    program = capture_task(task)
    return kind(task, program, max_drop=Drop(0.05), effort=BRIEF, **settings), program


def check(measured):
    """One latency each, and their weighted sum."""
    assert list(measured.shapes) == ["prefill", "decode"]
    prefill, decode = measured.shapes.values()
    assert (prefill.weight, decode.weight) == (1, 64)
    milliseconds = prefill.latency.milliseconds + 64 * decode.latency.milliseconds
    assert measured.latency.milliseconds == pytest.approx(milliseconds)
    low, high = sorted((prefill.latency.ratio, decode.latency.ratio))
    assert low <= measured.latency.ratio <= high
    assert measured.latency.low <= measured.latency.ratio <= measured.latency.high


@pytest.mark.parametrize("baseline", ["resident", "alternate"])
def test_each_shape_has_a_latency_and_their_weighted_sum_is_the_latency(baseline):
    evaluator, program = make(make_task(), baseline=baseline)
    with evaluator:
        assert evaluator.baseline.latency.ratio == 1.0
        check(evaluator.baseline)
        measured = evaluator.measure(uniform_policy(program, BF16))
        assert isinstance(measured, Measurement)
        check(measured)
        ours, theirs = (
            {name: shape.latency.milliseconds / shape.latency.ratio for name, shape in one.shapes.items()}
            for one in (measured, evaluator.baseline)
        )
        assert ours == pytest.approx(theirs)
        assert measured.quality.examples == 48
        assert measured.memory.weight_bytes < evaluator.baseline.memory.weight_bytes
        (confirmed,) = evaluator.confirm([uniform_policy(program, BF16)])
        check(confirmed)


def test_the_reference_of_a_study_is_kept_for_each_shape():
    evaluator, program = make(make_task(), reference_ms={"prefill": 100.0, "decode": 10.0})
    with evaluator:
        assert reference_ms(evaluator.baseline) == pytest.approx({"prefill": 100.0, "decode": 10.0})
        assert evaluator.baseline.latency.milliseconds == pytest.approx(740.0)
        measured = evaluator.measure(uniform_policy(program, BF16))
        shapes = measured.shapes
        expected = (100 * shapes["prefill"].latency.ratio + 640 * shapes["decode"].latency.ratio) / 740
        assert measured.latency.ratio == pytest.approx(expected)


def test_what_ran_differently_at_one_shape_is_said():
    shapes = {"batch": Shape(batch_size=16), "row": Shape(inputs=INPUTS[:1, :1])}
    evaluator, program = make(make_task(shapes=shapes))
    with evaluator:
        measured = evaluator.measure(uniform_policy(program, BF16))
    if jax.devices()[0].platform == "cpu":  # where one row of bf16 runs as f32, and sixteen do not
        assert measured.effective == dict.fromkeys(("up", "down"), "different: f32 x f32 -> f32 in row")
    else:
        assert set(measured.effective) == {"up", "down"}


def narrow_fails(params, x, limit, failure):
    outputs = apply(params, x)
    return outputs * failure if params["up"].dtype != jnp.float32 and x.shape[1] < limit else outputs


def test_what_is_not_finite_at_another_shape_fails_and_names_it():
    task = make_task(lambda params, x: narrow_fails(params, x, 2, jnp.nan))
    evaluator, _ = make(task)
    with evaluator:
        failure = evaluator.measure_cast("bf16")
    assert isinstance(failure, Failure)
    assert failure.cause == "non-finite"
    assert failure.message == ("5 outputs of one call of shape 'decode' are NaN or infinite, 0 of the baseline's")


def test_what_is_too_slow_at_one_shape_is_cut_off_by_its_share_of_the_sum():
    def apply_slowly(params, x):
        outputs = apply(params, x)
        if params["up"].dtype == jnp.float32 or x.shape[1] > 1:
            return outputs
        slow = jnp.ones((256, 256), outputs.dtype)
        for _ in range(40):
            slow = jnp.tanh(slow @ slow)
        return outputs + 0 * slow.sum()

    evaluator, _ = make(make_task(apply_slowly))
    with evaluator:
        failure = evaluator.measure_cast("bf16")
    assert isinstance(failure, Failure)
    assert failure.cause == "slow"
    assert failure.message.startswith("one call of shape 'decode' takes ")


@pytest.mark.slow
def test_a_measuring_process_answers_with_every_shape():
    evaluator, program = make(make_task(), kind=IsolatedEvaluator)
    with evaluator:
        check(evaluator.baseline)
        check(evaluator.measure(uniform_policy(program, BF16)))
        table = evaluator.time_kernels({"up": [BF16]}, known={}, budget_s=2.0)
        assert [count for _, count in table.signatures["up"]] == [1, 64]


def test_kernels_are_chosen_by_their_weighted_times():
    evaluator, program = make(make_task())
    with evaluator:
        table = evaluator.time_kernels({"up": [BF16], "down": [BF16]}, known={}, budget_s=5.0)
    (batch, once), (row, often) = table.signatures["up"]
    assert (once, often) == (1, 64)
    assert batch != row
    # What pays for one row only is timed for the batch as well.
    assert "padded" in table.kernels["up", BF16]
    of = {name: table.times[f"{name} {BF16} padded"] for name in (batch, row)}
    assert table.seconds("up", BF16, "padded") == pytest.approx(of[batch] + 64 * of[row])
    policy = make_policy(program, {"up": Assignment(precision=BF16, kernel="padded")}, elsewhere=table.kernels)
    assert policy["up"].kernel == "padded"
    with pytest.raises(PolicyError, match="layer 'up' has no kernel 'padded' in bf16/bf16/f32; use"):
        make_policy(program, {"up": Assignment(precision=BF16, kernel="padded")})
