"""Keras models on the JAX back end as tasks."""

import jax
import numpy as np
import pytest

from search_spaces import Precision
from tests.libraries import batch, check, images, settings
from tests.programs import normal
from tuner import Task, prepare, uniform_policy
from tuner.adapters.keras import to_function
from tuner.errors import InputError
from tuner.program import capture

keras = pytest.importorskip("keras", reason="keras is not installed")
layers = keras.layers

# Of Keras itself, as it saves a model.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(autouse=True)
def _names_start_anew():
    """Keras numbers the layers of a process: dense, dense_1, ..."""
    keras.utils.clear_session()


def own(model, x):
    """What the library itself computes, in one jitted program."""
    variables = model.trainable_variables, model.non_trainable_variables
    apply = jax.jit(lambda trained, others, x: model.stateless_call(trained, others, x, training=False)[0])
    return apply(*([variable.value for variable in group] for group in variables), x)


def small():
    model = keras.Sequential(
        [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Flatten(), layers.Dense(3)],
        name="net",
    )
    model.build((None, 8, 8, 3))
    return model


def test_state_is_carried():
    model = small()
    task = Task.from_keras(model, **settings(images(8)))
    check(task, ["net/conv2d", "net/dense"], own(model, *batch(task)))
    np.testing.assert_allclose(task.apply(task.params, *batch(task)), model(*batch(task)), rtol=1e-5)
    program = capture(task.apply, task.params, batch(task))
    packed = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/bf16"))).params
    assert {"net/batch_normalization/moving_mean", "net/batch_normalization/moving_variance"} <= set(
        packed["parameters"]
    )
    assert {str(value.dtype) for value in packed["parameters"].values()} == {"float32"}


def test_embedding_and_recurrent_layers():
    model = keras.Sequential([layers.Embedding(20, 8), layers.LSTM(6), layers.Dense(3)], name="text")
    model.build((None, 5))
    tokens = np.arange(40, dtype=np.int32).reshape(8, 5) % 20
    task = Task.from_keras(model, **settings(tokens))
    names = ["text/embedding", "text/lstm/lstm_cell", "text/lstm/lstm_cell/recurrent_kernel", "text/dense"]
    check(task, names, own(model, *batch(task)))


def test_several_inputs_are_one_list():
    query, value = keras.Input((5, 8)), keras.Input((4, 8))
    model = keras.Model([query, value], layers.MultiHeadAttention(2, 4, name="attn")(query, value))
    task = Task.from_keras(
        model, call=lambda model, pair: model(list(pair)), **settings(((normal(8, 5, 8), normal(8, 4, 8)),))
    )
    names = [f"attn/{part}" for part in ("query", "key", "value", "attention_output")]
    check(task, names, own(model, list(*batch(task))), precisions=("i8/i8/i32",))


def test_models_inside_a_model_may_use_the_same_names():
    def tower():
        given = keras.Input((6,))
        return keras.Model(given, layers.Dense(4, name="dense")(given))

    given = keras.Input((6,))
    model = keras.Model(given, layers.Add()([tower()(given), tower()(given)]))
    task = Task.from_keras(model, **settings(normal(8, 6)))
    check(task, ["dense", "dense.1"], own(model, *batch(task)), precisions=("i8/i8/i32",))


@pytest.mark.slow
def test_mobile_net():
    model = keras.applications.MobileNet((32, 32, 3), alpha=0.25, weights=None, classes=5)
    task = Task.from_keras(model, **settings(images(32)))
    blocks = [f"conv_{part}_{i}" for i in range(1, 14) for part in ("dw", "pw")]
    check(task, ["conv1", *blocks, "conv_preds"], own(model, *batch(task)), precisions=("i8/i8/i32",))


def test_another_back_end_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(InputError, match=r"Keras runs on 'torch'; set KERAS_BACKEND=jax in the environment before"):
        to_function(small())


def test_a_model_without_variables_yet_is_refused():
    with pytest.raises(InputError, match=r"the Keras model 'late' is not built .*; call it once, or build it"):
        to_function(keras.Sequential([layers.Dense(3)], name="late"))


def test_a_prepared_model_goes_back_as_a_layer():
    task = Task.from_keras(small(), **settings(images(8)))
    program = capture(task.apply, task.params, batch(task))
    prepared = prepare(task.apply, task.params, uniform_policy(program, Precision.parse("bf16/bf16/f32")))
    layer = layers.JaxLayer(lambda params, inputs, training: prepared(params, inputs), params=prepared.params)
    model = keras.Sequential([layer, layers.Softmax()])
    expected = jax.nn.softmax(prepared(prepared.params, *batch(task)))
    np.testing.assert_allclose(model(*batch(task)), expected, rtol=1e-5)
