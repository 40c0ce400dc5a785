import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tuner.drop import Drop
from tuner.errors import InputError, PolicyError
from tuner.measure import Evaluator
from tuner.measure.latency import Effort
from tuner.measurement import Confirmation, Failure, Measurement
from tuner.metrics import Metric
from tuner.policy import Policy
from tuner.program import capture, make_policy, original_policy, uniform_policy
from tuner.task import Task

BRIEF = Effort(seconds=0.02)
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(600, 16)).astype(np.float32)
PARAMS = {
    "fc1": {"w": RNG.normal(size=(16, 32)).astype(np.float32) / 4, "b": np.zeros(32, np.float32)},
    "fc2": {"w": RNG.normal(size=(32, 5)).astype(np.float32) / 6, "b": np.zeros(5, np.float32)},
}


def apply(params, x):
    x = jax.nn.relu(x @ params["fc1"]["w"] + params["fc1"]["b"])
    return x @ params["fc2"]["w"] + params["fc2"]["b"]


LABELS = np.asarray(apply(PARAMS, INPUTS)).argmax(1).astype(np.int32)


def make_task(apply=apply, metric="top1", params=PARAMS, **more):
    fields = {"inputs": INPUTS, "labels": LABELS, "batch_size": 64, **more}
    return Task(name="small", apply=apply, params=params, metric=metric, **fields)


def make_evaluator(task, **settings):
    inputs, _, _ = next(task.search.batches(task.batch_size))
    program = capture(task.apply, task.params, inputs)
    return Evaluator(task, program, max_drop=Drop(0.05), effort=BRIEF, **settings), program


@pytest.fixture(scope="module")
def evaluated():
    evaluator, program = make_evaluator(make_task())
    with evaluator:
        yield evaluator, program


def uniform(program, text):
    return uniform_policy(program, Precision.parse(text))


def test_the_baseline_is_one(evaluated):
    evaluator, _ = evaluated
    baseline = evaluator.baseline
    assert (baseline.latency.ratio, baseline.latency.low, baseline.latency.high) == (1.0, 1.0, 1.0)
    assert baseline.latency.milliseconds > 0
    assert (baseline.quality.value, baseline.quality.drop) == (1.0, 0.0)
    assert baseline.quality.examples == 300
    weights = 4 * (16 * 32 + 32 + 32 * 5 + 5)
    assert baseline.memory.weight_bytes == weights
    assert baseline.memory.total_bytes >= weights
    assert not baseline.effective


def test_two_policies_are_compared_by_time_alone(evaluated):
    evaluator, program = evaluated
    compared = evaluator.compare(uniform(program, "bf16/bf16/f32"), uniform(program, "f32/f32/f32"))
    assert 0 < compared.low <= compared.ratio <= compared.high
    assert compared.problem == ""


def test_no_two_candidates_are_compared_where_weights_fit_once():
    evaluator, program = make_evaluator(make_task(), baseline="alternate")
    with evaluator:
        compared = evaluator.compare(uniform(program, "bf16/bf16/f32"), uniform(program, "f32/f32/f32"))
    assert compared.problem == "the weights of two candidates do not fit the device at once"


def test_a_policy_is_measured(evaluated):
    evaluator, program = evaluated
    measured = evaluator.measure(uniform(program, "bf16/bf16/f32"))
    assert isinstance(measured, Measurement)
    latency, quality = measured.latency, measured.quality
    assert 0 < latency.low <= latency.ratio <= latency.high
    assert latency.milliseconds == pytest.approx(latency.ratio * evaluator.baseline.latency.milliseconds)
    assert quality.drop == pytest.approx(1.0 - quality.value)
    assert quality.drop_low <= quality.drop <= quality.drop_high
    assert 0 < quality.fidelity < 0.02
    assert measured.memory.weight_bytes < 0.6 * evaluator.baseline.memory.weight_bytes
    assert set(measured.effective) == {"fc1", "fc2"}
    costs = measured.costs
    assert min(costs.prepare_s, costs.trace_s, costs.compile_s, costs.quality_s, costs.latency_s) > 0


def test_the_original_policy_is_measured_like_any_other(evaluated):
    evaluator, program = evaluated
    measured = evaluator.measure(original_policy(program))
    assert isinstance(measured, Measurement)
    assert (measured.quality.fidelity, measured.quality.drop) == (0.0, 0.0)
    assert measured.memory == evaluator.baseline.memory
    assert not measured.effective


def test_input_layers_are_part_of_what_is_reported(evaluated):
    evaluator, program = evaluated
    measured = evaluator.measure(make_policy(program, {"input": Precision.parse("bf16")}))
    assert measured.effective == {"input": "as requested"}


def test_hand_made_casts_are_measured(evaluated):
    evaluator, _ = evaluated
    for format in ("bf16", "f16"):
        measured = evaluator.measure_cast(format)
        assert isinstance(measured, Measurement)
        assert measured.memory.weight_bytes * 2 == evaluator.baseline.memory.weight_bytes
        assert not measured.effective


def test_other_casts_are_refused(evaluated):
    with pytest.raises(InputError, match="cannot measure a cast to 'i8': the reference points are bf16, f16"):
        evaluated[0].measure_cast("i8")


def test_a_policy_of_another_program_is_the_callers_mistake(evaluated):
    evaluator, program = evaluated
    policy = uniform(program, "bf16/bf16/f32")
    with pytest.raises(PolicyError):
        evaluator.measure(Policy(policy.assignments[:-1]))


def test_milliseconds_refer_to_the_studys_baseline():
    evaluator, program = make_evaluator(make_task(), reference_ms=1000.0)
    assert evaluator.baseline.latency.milliseconds == 1000.0
    measured = evaluator.measure(original_policy(program))
    assert measured.latency.milliseconds == pytest.approx(1000.0 * measured.latency.ratio)


def test_confirmation_is_on_the_holdout_split(evaluated):
    evaluator, program = evaluated
    policies = [uniform(program, "bf16/bf16/f32"), original_policy(program)]
    confirmed = evaluator.confirm(policies)
    assert [type(one) for one in confirmed] == [Confirmation, Confirmation]
    assert all(one.quality.examples == 300 for one in confirmed)
    assert confirmed[0].latency.pairs == confirmed[1].latency.pairs
    assert confirmed[0].quality.fidelity > 0 == confirmed[1].quality.fidelity
    assert evaluator.confirm([]) == []


class Broken:
    """`apply` whose rewritten copies misbehave: the baseline is traced first, and a candidate carries bf16 weights."""

    def __init__(self, misbehave):
        self.misbehave = misbehave

    def __call__(self, params, x):
        return self.misbehave(apply(params, x)) if params["fc1"]["w"].dtype == jnp.bfloat16 else apply(params, x)


def cast_of(misbehave, **settings):
    evaluator, _ = make_evaluator(make_task(Broken(misbehave)), **settings)
    return evaluator.measure_cast("bf16")


def test_what_does_not_compile_is_a_compile_error():
    def misbehave(outputs):
        raise TypeError("lax.dot requires arguments of equal dtype\nand so on")

    outcome = cast_of(misbehave)
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.message) == ("compile error", "TypeError: lax.dot requires arguments of equal dtype")
    assert not outcome.pruned


def test_what_fails_when_it_runs_is_an_error():
    def misbehave(outputs):
        def fail(_):
            raise RuntimeError("the device fell off")

        return jax.pure_callback(fail, jax.ShapeDtypeStruct(outputs.shape, outputs.dtype), outputs)

    outcome = cast_of(misbehave)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "error"
    assert outcome.costs.compile_s > 0


def test_what_does_not_fit_is_out_of_memory():
    def misbehave(outputs):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999999999 bytes.")

    assert cast_of(misbehave).cause == "out of memory"


def test_not_a_number_is_found_before_anything_is_timed():
    outcome = cast_of(lambda outputs: outputs * jnp.nan)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "non-finite"
    assert outcome.message == "320 of 320 outputs of one batch are NaN or infinite where the baseline's are finite"
    assert (outcome.costs.quality_s, outcome.layer, outcome.pruned) == (0.0, None, False)


def test_a_candidate_that_overflows_says_in_which_layer():
    params = {"fc1": PARAMS["fc1"], "fc2": {"w": 1e7 * PARAMS["fc2"]["w"], "b": PARAMS["fc2"]["b"]}}
    evaluator, program = make_evaluator(make_task(params=params))
    outcome = evaluator.measure(make_policy(program, {"fc2": "f16/f16/f32"}))
    assert isinstance(outcome, Failure)
    assert (outcome.cause, outcome.layer) == ("non-finite", "fc2")
    assert "outputs of one batch are NaN or infinite where the baseline's are finite; layer 'fc2'" in outcome.message
    assert "weights" in outcome.message
    assert "f16 ends at 65504" in outcome.message


def test_the_layer_is_looked_for_on_the_batch_that_fails():
    """Only the last batch overflows: the first one is fine."""
    inputs = INPUTS.copy()
    order = np.asarray(make_task().search.inputs[0])
    last = np.flatnonzero((inputs[:, None] == order[-1]).all(axis=2).any(axis=1))
    inputs[last] = 1e6
    evaluator, program = make_evaluator(make_task(inputs=inputs))
    outcome = evaluator.measure(make_policy(program, {"fc1": "f16/f16/f32"}))
    assert isinstance(outcome, Failure)
    assert "outputs of batch 4" in outcome.message
    assert outcome.layer == "fc1"
    assert "activations" in outcome.message


def test_a_certain_loser_is_not_timed():
    outcome = cast_of(lambda outputs: -outputs)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "certain loser"
    assert "top1 drops by" in outcome.message
    assert "twice the allowed drop is 0.1" in outcome.message
    assert outcome.pruned


def slow(outputs):
    def wait(values):
        time.sleep(0.1)
        return values

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(outputs.shape, outputs.dtype), outputs)


def test_a_slow_candidate_is_not_scored():
    outcome = cast_of(slow, objectives=("latency", "quality"))
    assert isinstance(outcome, Failure)
    assert outcome.cause == "slow"
    assert "more than 3 times is not measured further" in outcome.message
    assert (outcome.costs.quality_s, outcome.pruned) == (0.0, True)


def test_coming_back_after_the_deadline_is_a_failure():
    outcome = cast_of(lambda outputs: outputs + 1, deadline_s=1e-6)
    assert isinstance(outcome, Failure)
    assert outcome.cause == "deadline"
    assert "compiling took" in outcome.message


def test_ctrl_c_passes(evaluated, monkeypatch):
    evaluator, program = evaluated

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluator, "_judge", interrupt)
    with pytest.raises(KeyboardInterrupt):
        evaluator.measure(original_policy(program))


def test_a_smaller_is_better_metric_finds_its_losers():
    evaluator, _ = make_evaluator(make_task(Broken(lambda outputs: outputs + 10), metric="cross_entropy"))
    assert isinstance(evaluator.measure_cast("bf16"), Measurement)  # a softmax does not see a shift
    evaluator, _ = make_evaluator(make_task(Broken(lambda outputs: -3 * outputs), metric="cross_entropy"))
    assert evaluator.measure_cast("bf16").cause == "certain loser"


CONSTRAINTS = {"cross_entropy": "2%rel", "agreement": 0.1, "perplexity": None}


def test_further_metrics_are_measured_on_both_splits():
    evaluator, program = make_evaluator(make_task(constraints=CONSTRAINTS))
    own = evaluator.baseline.metrics
    assert list(own) == list(CONSTRAINTS)
    assert own["agreement"].value == 1.0
    assert own["cross_entropy"].allowed == pytest.approx(0.02 * own["cross_entropy"].value)
    policy = uniform(program, "i8/i8/i32")
    measured = evaluator.measure(policy)
    (confirmed,) = evaluator.confirm([policy])
    for found in (measured, confirmed):
        assert found.metrics["agreement"].value > 0.9
        entropy, perplexity = found.metrics["cross_entropy"], found.metrics["perplexity"]
        assert perplexity.value == pytest.approx(np.exp(entropy.value), rel=1e-5)
        assert perplexity.drop_low <= perplexity.drop <= perplexity.drop_high
    assert measured.metrics["cross_entropy"].value != confirmed.metrics["cross_entropy"].value


def test_a_certain_loser_in_a_constraint_is_not_timed():
    shifted = Broken(lambda outputs: jnp.roll(outputs, 1, axis=1))
    task = make_task(
        shifted, metric=Metric(name="zero", score=lambda o, y: 0.0 * o[:, 0]), constraints={"agreement": 0.05}
    )
    outcome = make_evaluator(task)[0].measure_cast("bf16")
    assert isinstance(outcome, Failure)
    assert outcome.cause == "certain loser"
    assert "agreement drops by 1 on" in outcome.message
    assert "twice the allowed drop is 0.1" in outcome.message


def test_a_metric_of_ones_own():
    margin = Metric(name="margin", score=lambda outputs, labels: jnp.sort(outputs, axis=1)[:, -1])
    evaluator, program = make_evaluator(make_task(metric=margin))
    measured = evaluator.measure(uniform(program, "i8/i8/i32"))
    assert measured.quality.method == "paired bootstrap"


def test_closing_lets_go_of_the_device():
    evaluator, _ = make_evaluator(make_task())
    evaluator.close()
    evaluator.close()
    assert not hasattr(evaluator, "_baseline")


def test_a_baseline_that_alternates_leaves_the_device_to_the_candidate():
    on_device = []

    class Spy(Broken):
        def __call__(self, params, x):
            return apply(params, x)

    evaluator, program = make_evaluator(make_task(Spy(None)), baseline="alternate")
    held = evaluator._baseline.scored.held
    first_call = evaluator._first_call
    evaluator._first_call = lambda *given: (
        on_device.append(isinstance(held.tree["fc1"]["w"], jax.Array)) or first_call(*given)
    )
    measured = evaluator.measure(uniform(program, "bf16/bf16/f32"))
    assert isinstance(measured, Measurement)
    assert measured.latency.baseline == evaluator.baseline.latency.baseline == "alternate"
    assert measured.latency.pairs >= 6
    assert on_device == [False]
    assert not isinstance(held.tree["fc1"]["w"], jax.Array)
    (confirmed,) = evaluator.confirm([uniform(program, "i8/i8/i32")])
    assert confirmed.latency.baseline == "alternate"
    assert confirmed.quality.examples == 300
    assert not isinstance(held.tree["fc1"]["w"], jax.Array)


def test_parameters_spread_over_devices_do_not_alternate(monkeypatch):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    monkeypatch.setattr("tuner.measure.evaluator.place_of", lambda params: spread)
    with pytest.raises(InputError, match=r"spread over several devices; leave --baseline at resident"):
        make_evaluator(make_task(), baseline="alternate")
