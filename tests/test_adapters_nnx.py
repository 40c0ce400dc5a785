"""Flax NNX models as tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces import Precision
from tests.libraries import batch, check, settings
from tests.programs import normal
from tuner import Task, make_policy, prepare
from tuner.program import capture, uniform_policy

nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")


def attention(**changes):
    return nnx.MultiHeadAttention(2, 8, rngs=nnx.Rngs(0), decode=False, **changes)


def own(model, task):
    """What the library itself computes."""
    return nnx.jit(lambda model, x: model(x))(model, *batch(task))


def test_attention():
    model = attention()
    task = Task.from_nnx(model, **settings(normal(8, 5, 8)))
    check(task, ["query", "key", "value", "out"], own(model, task))


@pytest.mark.parametrize(
    ("cell", "names"),
    [("LSTMCell", ["ii", "if_", "ig", "io", "hi", "hf", "hg", "ho"]), ("GRUCell", ["dense_i", "dense_h"])],
)
def test_recurrent_networks(cell, names):
    model = nnx.RNN(getattr(nnx, cell)(6, 8, rngs=nnx.Rngs(0)))
    task = Task.from_nnx(model, **settings(normal(8, 5, 6)))
    check(task, [f"cell/{name}" for name in names], own(model, task), precisions=("i8/i8/i32",))
    assert {layer.executions for layer in capture(task.apply, task.params, batch(task)).layers[1:]} == {5}


def test_embeddings_low_rank_and_normalized_weights():
    tokens = np.arange(8, dtype=np.int32)
    table = nnx.Embed(20, 8, rngs=nnx.Rngs(0))
    task = Task.from_nnx(nnx.Sequential(table), **settings(tokens))
    check(task, ["layers/0"], own(nnx.Sequential(table), task), precisions=("i8/i8/i32",))
    lora = nnx.LoRALinear(6, 4, lora_rank=2, rngs=nnx.Rngs(0))
    task = Task.from_nnx(lora, **settings(normal(8, 6)))
    check(task, ["kernel", "lora/lora_a", "lora/lora_b"], own(lora, task), precisions=("i8/i8/i32",))
    spectral = nnx.SpectralNorm(nnx.Linear(6, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    call = lambda model, x: model(x, update_stats=False)
    task = Task.from_nnx(spectral, call=call, **settings(normal(8, 6)))
    check(task, ["layer_instance"], nnx.jit(call)(spectral, *batch(task)), precisions=("i8/i8/i32",))


def test_state_is_carried_and_layers_are_named_by_attributes_and_positions():
    model = nnx.Sequential(
        nnx.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0)),
        nnx.BatchNorm(4, rngs=nnx.Rngs(1)),
        jax.nn.relu,
        nnx.Dropout(0.5, rngs=nnx.Rngs(2)),
        nnx.Sequential(lambda x: x.mean((1, 2)), nnx.Linear(4, 3, rngs=nnx.Rngs(3))),
    )
    model(normal(2, 8, 8, 3))  # moves the running averages and the dropout counter
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Any(nnx.Param, nnx.BatchStat))))
    task = Task.from_nnx(model, **settings(normal(8, 8, 8, 3)))
    state = task.params["~state"]["layers"]
    assert set(task.params["layers"]["1"]) == {"scale", "bias"}
    assert set(state["1"]) == {"mean", "var"}
    assert jax.random.key_data(state["3"]["rngs"]["key"]).shape == (2,)
    assert state["3"]["rngs"]["count"] == 1
    evaluated = nnx.clone(model)
    evaluated.eval()
    check(task, ["layers/0", "layers/4/layers/1"], own(evaluated, task))
    after = nnx.to_pure_dict(nnx.state(model, nnx.Any(nnx.Param, nnx.BatchStat)))
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert model.layers[3].deterministic is False
    assert len(task.fingerprints()["parameters"]) == 64


def test_a_policy_casts_no_state():
    model = nnx.Sequential(nnx.Linear(6, 8, rngs=nnx.Rngs(0)), nnx.BatchNorm(8, rngs=nnx.Rngs(1)))
    task = Task.from_nnx(model, **settings(normal(8, 6)))
    program = capture(task.apply, task.params, batch(task))
    packed = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/bf16"))).params
    assert packed["layers"]["layers/0"]["weight"].dtype == jnp.bfloat16
    assert {str(value.dtype) for value in packed["parameters"].values()} == {"float32"}
    assert {"~state/layers/1/mean", "~state/layers/1/var"} <= set(packed["parameters"])


def test_the_call_may_draw_random_numbers_with_the_models_own_keys():
    def call(model, x):
        model.train()
        return model(x)

    model = attention(dropout_rate=0.5, deterministic=False)
    task = Task.from_nnx(model, call=call, **settings(normal(8, 5, 8)))
    check(task, ["query", "key", "value", "out"], own(nnx.clone(model), task), precisions=("i8/i8/i32",))


def test_a_prepared_model_goes_back_into_a_module():
    class Tuned(nnx.Module):
        def __init__(self, prepared):
            self.run = prepared
            self.packed = nnx.Variable(prepared.params)

        def __call__(self, *inputs):
            return self.run(self.packed.get_value(), *inputs)

    task = Task.from_nnx(nnx.Linear(6, 3, rngs=nnx.Rngs(0)), **settings(normal(8, 6)))
    program = capture(task.apply, task.params, batch(task))
    prepared = prepare(task.apply, task.params, make_policy(program, {"kernel": "i8/i8/i32"}))
    module = Tuned(prepared)
    np.testing.assert_array_equal(nnx.jit(module)(*batch(task)), jax.jit(prepared)(prepared.params, *batch(task)))
