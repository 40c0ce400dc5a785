"""Flax Linen models as tasks."""

import jax
import numpy as np
import pytest

from search_spaces import Precision
from tests.libraries import batch, check, settings
from tests.programs import normal
from tuner import Task, prepare, uniform_policy
from tuner.errors import InputError
from tuner.program import capture

nn = pytest.importorskip("flax.linen", reason="flax is not installed")
optax = pytest.importorskip("optax", reason="optax, which comes with flax, is not installed")
TrainState = pytest.importorskip("flax.training.train_state", reason="flax is not installed").TrainState


def test_attention():
    model, x = nn.MultiHeadDotProductAttention(2), normal(8, 5, 8)
    variables = model.init(jax.random.key(0), x)
    task = Task.from_linen(model, variables, **settings(x))
    check(task, ["query", "key", "value", "out"], jax.jit(model.apply)(variables, *batch(task)))


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("LSTMCell", [f"{side}{gate}" for side in "ih" for gate in "ifgo"]),
        ("OptimizedLSTMCell", ["{if,ig,ii,io}", "{hf,hg,hi,ho}"]),  # one product for all gates
    ],
)
def test_recurrent_networks(cell, names):
    model, x = nn.RNN(getattr(nn, cell)(8)), normal(8, 5, 6)
    variables = model.init(jax.random.key(0), x)
    task = Task.from_linen(model, variables, **settings(x))
    expected = jax.jit(model.apply)(variables, *batch(task))
    check(task, [f"cell/{name}" for name in names], expected, precisions=("i8/i8/i32",))


def test_a_normalized_weight_is_named_by_its_parameters_and_not_by_state():
    model, x = nn.SpectralNorm(nn.Dense(4)), normal(8, 6)
    variables = model.init(jax.random.key(0), x, update_stats=False)
    task = Task.from_linen(model, variables, call=lambda model, x: model(x, update_stats=False), **settings(x))
    expected = jax.jit(model.apply, static_argnames="update_stats")(variables, *batch(task), update_stats=False)
    check(task, ["layer_instance"], expected, precisions=("i8/i8/i32",))


def convolutional():
    layers = [nn.Conv(4, (3, 3)), nn.BatchNorm(use_running_average=True), nn.Dropout(0.5, deterministic=True)]
    model = nn.Sequential([*layers, nn.Conv(3, (1, 1))])
    return model, model.init(jax.random.key(0), normal(1, 8, 8, 3))


def test_collections_are_carried():
    model, variables = convolutional()
    task = Task.from_linen(model, variables, **settings(normal(8, 8, 8, 3)))
    assert set(task.params) == {"layers_0", "layers_1", "layers_3", "~batch_stats"}
    check(task, ["layers_0", "layers_3"], jax.jit(model.apply)(variables, *batch(task)))
    program = capture(task.apply, task.params, batch(task))
    packed = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/bf16"))).params
    assert {"~batch_stats/layers_1/mean", "~batch_stats/layers_1/var"} <= set(packed["parameters"])
    assert {str(value.dtype) for value in packed["parameters"].values()} == {"float32"}


def test_the_call_may_choose_how_and_draw_with_keys_of_the_task():
    model, x = nn.Dropout(0.5), normal(8, 6)
    key = jax.random.key(1)
    task = Task.from_linen(
        model, {"params": {"unused": x[0]}}, rngs={"dropout": key}, call=lambda m, x: m(x, False), **settings(x)
    )
    expected = jax.jit(lambda x: model.apply({}, x, False, rngs={"dropout": key}))(*batch(task))
    check(task, [], expected)
    assert task.params["~rngs"]["dropout"] is key


def test_boxes_around_partitioned_parameters_leave_no_trace_in_names():
    init = nn.with_partitioning(nn.initializers.lecun_normal(), ("in", "out"))
    model, x = nn.Sequential([nn.Dense(4, kernel_init=init)]), normal(8, 6)
    task = Task.from_linen(model, model.init(jax.random.key(0), x), **settings(x))
    assert [layer.name for layer in capture(task.apply, task.params, batch(task)).layers] == ["input", "layers_0"]


def test_parameters_alone_are_refused():
    with pytest.raises(InputError, match=r"the collections Dense_0, and no 'params'; give what module.init returned"):
        Task.from_linen(nn.Dense(3), {"Dense_0": {}}, **settings(normal(8, 6)))


def test_a_prepared_model_goes_back_where_apply_and_params_were():
    model, variables = convolutional()
    task = Task.from_linen(model, variables, **settings(normal(8, 8, 8, 3)))
    program = capture(task.apply, task.params, batch(task))
    prepared = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("i8/i8/i32")))
    state = TrainState.create(apply_fn=prepared, params=prepared.params, tx=optax.identity())
    found = jax.jit(lambda state, x: state.apply_fn(state.params, x))(state, *batch(task))
    np.testing.assert_array_equal(found, jax.jit(prepared)(prepared.params, *batch(task)))
