"""Equinox models as tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.libraries import batch, check, settings
from tests.programs import normal
from tuner import Task, prepare, uniform_policy
from tuner.program import capture

eqx = pytest.importorskip("equinox", reason="equinox is not installed")


def mlp():
    return eqx.nn.MLP(8, 3, 16, 2, key=jax.random.key(0))


def test_mlp_takes_a_batch_of_examples():
    model = mlp()
    task = Task.from_equinox(model, **settings(normal(8, 8)))
    check(
        task,
        ["layers/0", "layers/1", "layers/2"],
        eqx.filter_jit(lambda model, x: jax.vmap(model)(x))(model, *batch(task)),
    )


def test_attention_is_called_as_the_user_says():
    model = eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    call = lambda model, x: jax.vmap(model)(x, x, x)
    task = Task.from_equinox(model, call=call, **settings(normal(8, 5, 8)))
    names = ["query_proj", "key_proj", "value_proj", "output_proj"]
    check(task, names, eqx.filter_jit(call)(model, *batch(task)))


def test_a_cell_is_scanned_as_the_user_says():
    cell = eqx.nn.LSTMCell(6, 8, key=jax.random.key(0))

    def call(cell, x):
        start = jnp.zeros((2, 8))
        last = lambda x: jax.lax.scan(lambda state, x: (cell(x, state), None), (start[0], start[1]), x)[0][0]
        return jax.vmap(last)(x)

    task = Task.from_equinox(cell, call=call, **settings(normal(8, 5, 6)))
    check(task, ["weight_ih", "weight_hh"], eqx.filter_jit(call)(cell, *batch(task)), precisions=("i8/i8/i32",))
    assert [layer.executions for layer in capture(task.apply, task.params, batch(task)).layers] == [1, 5, 5]


def test_an_embedding_of_single_tokens_is_a_look_up():
    model = eqx.nn.Embedding(20, 8, key=jax.random.key(0))
    task = Task.from_equinox(model, **settings(np.arange(8, dtype=np.int32)))
    expected = eqx.filter_jit(lambda model, x: jax.vmap(model)(x))(model, *batch(task))
    check(task, ["weight"], expected, precisions=("i8/i8/i32",))


def test_a_normalized_weight_is_named_by_its_parameters_and_not_by_state():
    make = lambda key: eqx.nn.SpectralNorm(eqx.nn.Linear(6, 4, key=key), "weight", key=key)
    model, state = eqx.nn.make_with_state(make)(jax.random.key(0))
    task = Task.from_equinox(model, state, **settings(normal(8, 6)))
    own = eqx.filter_jit(lambda model, x, state: batched(model)(x, state)[0])
    check(task, ["layer"], own(eqx.nn.inference_mode(model), *batch(task), state), precisions=("i8/i8/i32",))


def stateful():
    def make(key):
        layers = [eqx.nn.Conv2d(3, 4, 3, key=key), eqx.nn.BatchNorm(4, "batch", mode="ema"), eqx.nn.Dropout(0.5)]
        return eqx.nn.Sequential(layers)

    return eqx.nn.make_with_state(make)(jax.random.key(0))


def batched(model):
    return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))


def test_state_is_carried_in_inference_mode():
    model, state = stateful()
    x = normal(8, 3, 8, 8)
    _, state = batched(lambda x, state: model(x, state, key=jax.random.key(1)))(x, state)
    task = Task.from_equinox(model, state, **settings(x))
    assert set(task.params) == {"layers", "~state"}
    own = eqx.filter_jit(lambda model, x, state: batched(model)(x, state)[0])
    check(task, ["layers/0"], own(eqx.nn.inference_mode(model), *batch(task), state))
    program = capture(task.apply, task.params, batch(task))
    packed = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/bf16"))).params
    assert any(name.startswith("~state/") for name in packed["parameters"])
    assert not any("bfloat16" in str(value.dtype) for value in packed["parameters"].values())


def test_a_prepared_model_is_a_callable_tree_as_a_module_is():
    task = Task.from_equinox(mlp(), **settings(normal(8, 8)))
    program = capture(task.apply, task.params, batch(task))
    prepared = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("i8/i8/i32")))
    model = jax.tree_util.Partial(prepared, prepared.params)
    found = eqx.filter_jit(lambda model, x: model(x))(model, *batch(task))
    np.testing.assert_allclose(found, jax.jit(prepared)(prepared.params, *batch(task)), rtol=1e-4)
