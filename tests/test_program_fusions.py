import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

import tuner
from search_spaces import Precision
from tests.conformance import bounds
from tuner.errors import PolicyError
from tuner.policy import Assignment, Fusion
from tuner.policy_json import policy_from_json, policy_to_json
from tuner.program import capture
from tuner.program.fusions import available_fusions
from tuner.program.policies import make_policy, uniform_policy

IMAGES = np.random.default_rng(0).normal(size=(3, 6, 6, 5)).astype(np.float32)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(5, 8, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.second = nnx.Conv(8, 8, (3, 3), feature_group_count=8, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.first(x)))
        return self.head(self.second(x).mean((1, 2)))


@pytest.fixture(scope="module")
def net():
    model = Net(nnx.Rngs(0))
    rng = np.random.default_rng(1)
    norm = model.norm
    norm.mean[...], norm.var[...] = rng.normal(size=8), rng.uniform(0.5, 2, size=8)
    norm.scale[...], norm.bias[...] = rng.normal(size=8), rng.normal(size=8)
    task = tuner.Task.from_nnx(model, name="net", inputs=IMAGES, labels=np.zeros(3, int), batch_size=3)
    return task.apply, task.params


def fused(program, precision):
    policy = uniform_policy(program, precision)
    return dataclasses.replace(policy, fusions=available_fusions(program, policy))


@pytest.mark.parametrize(
    "precision", ["f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/f32->bf16", "i8/i8/i32", "i8/f32/f32"]
)
def test_folded_results_are_the_unfused_ones_to_the_rounding_of_the_formats(net, precision):
    apply, params = net
    program = capture(apply, params, (IMAGES,))
    policy = fused(program, precision)
    assert [str(fusion) for fusion in policy.fusions] == ["affine first"]
    plain = dataclasses.replace(policy, fusions=())
    reference, given = (tuner.prepare(apply, params, p, program=program) for p in (plain, policy))
    expected, found = (jax.jit(model)(model.params, IMAGES) for model in (reference, given))
    (allowed,) = bounds.allowed(apply, params, IMAGES, [np.asarray(expected)], bounds.formats_of(policy))
    assert bounds.distance(np.asarray(found), np.asarray(expected)) <= allowed < bounds.size(np.asarray(expected))


def test_what_is_folded_is_neither_kept_nor_computed(net):
    apply, params = net
    program = capture(apply, params, (IMAGES,))
    policy = fused(program, "f32/f32/f32")
    model = tuner.prepare(apply, params, policy, program=program)
    assert not any("norm" in path for path in model.params["parameters"])
    text = str(jax.make_jaxpr(model)(model.params, IMAGES))
    assert (text.count("rsqrt"), text.count(" sub ")) == (0, 0)


def test_a_layer_as_written_keeps_what_follows_it(net):
    apply, params = net
    program = capture(apply, params, (IMAGES,))
    policy = make_policy(program, {"second": "bf16/bf16/f32"})
    assert available_fusions(program, policy) == ()
    wanted = dataclasses.replace(policy, fusions=(Fusion("affine", ("first",)),))
    with pytest.raises(PolicyError, match=r"does not allow the fusion 'affine first' \(allowed .*: none\); remove it"):
        tuner.prepare(apply, params, wanted, program=program)


def test_a_weight_that_two_layers_read_is_not_changed():
    params = {"w": np.eye(4, dtype=np.float32), "g": np.arange(4, dtype=np.float32)}
    program = capture(lambda p, x: (x @ p["w"] * p["g"] + 1) @ p["w"], params, (np.ones((2, 4), np.float32),))
    assert available_fusions(program, uniform_policy(program, "f32/f32/f32")) == ()


def test_stacked_weights_are_folded_for_all_iterations():
    rng = np.random.default_rng(2)
    params = {name: rng.normal(size=(3, *shape)).astype(np.float32) for name, shape in {"w": (4, 4), "g": (4,)}.items()}
    layer = lambda x, p: (jax.numpy.tanh(x @ p["w"] * p["g"] - 1.0), None)
    apply = lambda p, x: jax.lax.scan(layer, x, p)[0]
    x = rng.normal(size=(2, 4)).astype(np.float32)
    program = capture(apply, params, (x,))
    policy = fused(program, "f32/f32/f32")
    assert len(policy.fusions) == 1
    model = tuner.prepare(apply, params, policy, program=program)
    np.testing.assert_allclose(model(model.params, x), apply(params, x), rtol=1e-5, atol=1e-5)


def convolve(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual_net(p, x):
    x = nnx.relu(convolve(x, p["a"]))
    x = nnx.relu(x + convolve(x, p["b"]))
    x = nnx.max_pool(convolve(x, p["c"]), (2, 2), (2, 2))
    return convolve(nnx.relu(x), p["d"]).mean((1, 2))


def calibrated_net(precision, kernels=()):
    rng = np.random.default_rng(3)
    params = {name: rng.normal(size=(3, 3, 5, 5)).astype(np.float32) / 6 for name in "abcd"}
    task = tuner.Task(name="net", apply=residual_net, params=params, inputs=IMAGES, metric="agreement", batch_size=3)
    program = capture(task.apply, task.params, (IMAGES,))
    chosen = {
        name: Assignment(precision=Precision.parse(precision), kernel=dict(kernels).get(name, "plain"))
        for name in "abcd"
    }
    return task, program, tuner.calibrate(task, make_policy(program, chosen))


def run(task, program, policy):
    model = tuner.prepare(task.apply, task.params, policy, program=program)
    return np.asarray(jax.jit(model)(model.params, IMAGES)), str(jax.make_jaxpr(model)(model.params, IMAGES))


@pytest.mark.parametrize("kernels", [{}, {"d": "patches", "b": "matmuls"}])
def test_through_pooling_integers_give_the_same_to_the_bit_and_a_residual_is_off_by_half_a_scale(kernels):
    task, program, policy = calibrated_net("i8/i8/i32@static", kernels)
    found = {str(fusion): fusion for fusion in available_fusions(program, policy)}
    assert sorted(found) == ["pass a > b", "pass c > d"]
    plain, _ = run(task, program, policy)
    pooled, text = run(task, program, dataclasses.replace(policy, fusions=(found["pass c > d"],)))
    np.testing.assert_array_equal(pooled, plain)
    assert any("reduce_window_max" in line and ":i8[" in line for line in text.splitlines())
    both, _ = run(task, program, dataclasses.replace(policy, fusions=tuple(sorted(found.values()))))
    # The residual is one of five roundings by calibrated scales, half a scale each: together they may move the result as far.
    (reference,) = [np.asarray(residual_net(task.params, IMAGES))]
    assert 0 < bounds.distance(both, plain) < bounds.distance(plain, reference)


@pytest.mark.parametrize(
    "precision", ["i8/i8/i32", "i8/f32/f32", "f8_e4m3fn/f8_e4m3fn/f32@static", "i8/i8/i32@static,asym"]
)
def test_only_calibrated_integers_without_a_zero_point_are_passed_on(precision):
    _, program, policy = calibrated_net(precision)
    assert available_fusions(program, policy) == ()


def test_fusions_travel_with_the_policy(net, tmp_path):
    apply, params = net
    program = capture(apply, params, (IMAGES,))
    policy = fused(program, "i8/i8/i32")
    read = tuner.load_policy(policy.save(tmp_path / "policy.json"))
    assert (read.fusions, read.hash) == (policy.fusions, policy.hash)
    plain = dataclasses.replace(policy, fusions=())
    assert plain.hash != policy.hash
    assert "fusions" not in policy_to_json(plain)


@pytest.mark.parametrize(
    ("fusions", "message"),
    [
        ({}, "field 'fusions'"),
        ([{"kind": "affine"}], "fusion 1 has no field 'layers'"),
        ([{"kind": "affine", "layers": ["fourth"]}], "fusion 1 is of layer 'fourth', which it does not list"),
        ([{"kind": "affine", "layers": [], "more": 1}], "fusion 1 has an unknown field 'more'"),
    ],
)
def test_fusions_that_are_none_are_refused_by_name(net, fusions, message):
    apply, params = net
    program = capture(apply, params, (IMAGES,))
    document = {**policy_to_json(uniform_policy(program, "i8/i8/i32")), "fusions": fusions}
    with pytest.raises(PolicyError, match=message):
        policy_from_json(document, "policy.json")
