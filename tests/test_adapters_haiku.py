"""Haiku models as tasks."""

import jax
import numpy as np
import pytest

from search_spaces import Precision
from tests.libraries import batch, check, images, settings
from tests.programs import normal
from tuner import Task, prepare, uniform_policy
from tuner.errors import InputError
from tuner.program import capture

hk = pytest.importorskip("haiku", reason="dm-haiku is not installed")


@pytest.mark.parametrize("without_rng", [False, True])
def test_mlp(without_rng):
    function = hk.transform(lambda x: hk.nets.MLP([8, 3])(x))
    x = normal(8, 6)
    params = function.init(jax.random.key(0), x)
    expected = lambda *inputs: jax.jit(function.apply)(params, None, *inputs)
    task = Task.from_haiku(hk.without_apply_rng(function) if without_rng else function, params, **settings(x))
    check(task, ["mlp/~/linear_0", "mlp/~/linear_1"], expected(*batch(task)))


def mobile_net():
    """(transformed, parameters, state) of the smallest network of its kind."""
    function = hk.transform_with_state(
        lambda x, is_training: hk.nets.MobileNetV1([1], [8], num_classes=3)(x, is_training)
    )
    return function, *function.init(jax.random.key(0), images(), is_training=True)


def in_evaluation(model, x):
    return model(x, is_training=False)


def test_state_is_carried():
    function, params, state = mobile_net()
    _, state = function.apply(params, state, None, images(), is_training=True)
    task = Task.from_haiku(function, params, state, call=in_evaluation, **settings(images()))
    block = "mobile_net_v1/mobile_net_v1_block/"
    names = ["mobile_net_v1/conv2_d", f"{block}depthwise_conv", f"{block}pointwise_conv", "mobile_net_v1/logits"]
    expected, _ = jax.jit(function.apply, static_argnames="is_training")(
        params, state, None, *batch(task), is_training=False
    )
    check(task, names, expected)
    program = capture(task.apply, task.params, batch(task))
    packed = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/bf16"))).params
    assert any(name.startswith("~state/") for name in packed["parameters"])
    assert {str(value.dtype) for value in packed["parameters"].values()} == {"float32"}


def test_recurrent_networks_and_attention():
    def both(x):
        core = hk.LSTM(8)
        h, _ = hk.dynamic_unroll(core, x, core.initial_state(len(x)), time_major=False)
        return hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(h, h, h)

    function, x = hk.without_apply_rng(hk.transform(both)), normal(8, 5, 6)
    params = function.init(jax.random.key(0), x)
    task = Task.from_haiku(function, params, **settings(x))
    names = ["lstm/linear", *(f"multi_head_attention/{part}" for part in ("query", "key", "value", "linear"))]
    check(task, names, jax.jit(function.apply)(params, *batch(task)), precisions=("i8/i8/i32",))


@pytest.mark.slow
def test_a_residual_network():
    sizes = {"blocks_per_group": [1, 1, 1, 1], "channels_per_group": [4, 4, 8, 8], "bottleneck": False}
    function = hk.transform_with_state(lambda x, is_training: hk.nets.ResNet(num_classes=3, **sizes)(x, is_training))
    params, state = function.init(jax.random.key(0), images(32), is_training=True)
    task = Task.from_haiku(function, params, state, call=in_evaluation, **settings(images(32)))
    blocks = [f"res_net/~/block_group_{i}/~/block_0/~/" for i in range(4)]
    convs = [block + part for block in blocks for part in ("shortcut_conv", "conv_0", "conv_1")]
    apply = jax.jit(function.apply, static_argnames="is_training")
    expected, _ = apply(params, state, None, *batch(task), is_training=False)
    names = ["res_net/~/initial_conv", *convs, "res_net/~/logits"]
    check(task, names, expected, precisions=("bf16/bf16/f32",))


def test_a_product_with_state_is_listed_and_never_cast():
    def quantized(x):
        return hk.nets.VectorQuantizerEMA(6, 10, 0.25, 0.9)(hk.Linear(6)(x), is_training=False)["quantize"]

    function, x = hk.without_apply_rng(hk.transform_with_state(quantized)), normal(8, 6)
    params, state = function.init(jax.random.key(0), x)
    task = Task.from_haiku(function, params, state, **settings(x))
    program = capture(task.apply, task.params, batch(task))
    layers = {layer.name: layer.reason for layer in program.layers if layer.params}
    assert layers.pop("linear") is None
    assert len(layers) == 2  # the distances to the codebook, and the look-up in it
    assert all(name.startswith("~state/vector_quantizer_ema") for name in layers)
    assert set(layers.values()) == {"what it reads is state that the model carries, not a parameter, and is never cast"}
    packed = prepare(task.apply, task.params, uniform_policy(program, "bf16/bf16/bf16"), program=program).params
    assert set(packed["layers"]) == {"linear"}
    assert packed["parameters"]["~state/vector_quantizer_ema/embeddings"].dtype == np.float32


def test_a_random_key_is_carried():
    function = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, hk.Linear(3)(x)))
    x, key = normal(8, 6), jax.random.key(7)
    params = function.init(jax.random.key(0), x)
    task = Task.from_haiku(function, params, rng=key, **settings(x))
    assert task.params["~rng"] is key
    check(task, ["linear"], jax.jit(function.apply)(params, key, *batch(task)), precisions=("i8/i8/i32",))


def test_a_stateful_function_without_its_state_is_refused():
    function, params, _ = mobile_net()
    with pytest.raises(InputError, match=r"hk.transform_with_state needs its state; give from_haiku\(function, params"):
        Task.from_haiku(function, params, **settings(images()))


def test_a_prepared_model_is_a_transformed_function_again():
    function = hk.transform(lambda x: hk.nets.MLP([8, 3])(x))
    x = normal(8, 6)
    task = Task.from_haiku(function, function.init(jax.random.key(0), x), **settings(x))
    program = capture(task.apply, task.params, batch(task))
    prepared = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("i8/i8/i32")))
    again = hk.Transformed(function.init, lambda params, rng, *inputs: prepared(params, *inputs))
    found = jax.jit(hk.without_apply_rng(again).apply)(prepared.params, *batch(task))
    np.testing.assert_array_equal(found, jax.jit(prepared)(prepared.params, *batch(task)))


def test_parameters_of_no_module_are_parameters():
    def network(x):
        w = hk.get_parameter("w", [6, 8], init=hk.initializers.RandomNormal())
        return hk.Linear(3)(jax.nn.relu(x @ w))

    function, x = hk.transform(network), normal(8, 6)
    params = function.init(jax.random.key(0), x)
    task = Task.from_haiku(function, params, **settings(x))
    check(task, ["~", "linear"], jax.jit(function.apply)(params, None, *batch(task)))
