import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tuner
from tuner.errors import InputError, NonFiniteError, PolicyError
from tuner.program import capture, make_policy, uniform_policy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)
PARAMS = {
    "first": {"w": RNG.normal(size=(8, 8)).astype(np.float32)},
    "blocks": {"w": 100 * RNG.normal(size=(4, 8, 8)).astype(np.float32)},
    "last": {"w": RNG.normal(size=(8, 3)).astype(np.float32)},
}
NAMED = r"layer 'blocks' \(f16/f16/f32\) is the first whose results are NaN or infinite; run it in a wider format"


def apply(params, x):
    x = x @ params["first"]["w"]
    x, _ = jax.lax.scan(lambda carry, w: (jax.nn.relu(carry @ w), None), x, params["blocks"]["w"])
    return jnp.tanh(x @ params["last"]["w"])


def prepare(precision, apply=apply, params=PARAMS, inputs=(X,), check="finite"):
    program = capture(apply, params, inputs)
    policy = uniform_policy(program, precision) if isinstance(precision, str) else make_policy(program, precision)
    return tuner.prepare(apply, params, policy, check=check, program=program)


def test_a_model_whose_values_are_finite_gives_what_it_gives_unchecked():
    for precision in ("i8/i8/i32", "bf16/bf16/f32", {}):
        checked, plain = prepare(precision), prepare(precision, check=None)
        expected = jax.jit(plain)(plain.params, X)
        np.testing.assert_array_equal(checked(checked.params, X), expected)
        np.testing.assert_array_equal(jax.jit(checked)(checked.params, X), expected)


def test_the_first_layer_that_is_not_finite_is_named():
    model = prepare("f16/f16/f32")
    with pytest.raises(NonFiniteError, match=NAMED):
        model(model.params, X)


def test_a_compiled_program_fails_as_a_whole_and_names_it_too():
    model = prepare("f16/f16/f32")
    with pytest.raises(jax.errors.JaxRuntimeError, match=NAMED):
        jax.block_until_ready(jax.jit(lambda x: {"y": model(model.params, x) + 1})(X))


def test_a_vmapped_program_fails_where_one_example_does():
    model = prepare("f16/f16/f32", inputs=(X[:1],))
    one_by_one = jax.jit(jax.vmap(lambda x: model(model.params, x[None])))
    assert np.isfinite(one_by_one(1e-6 * X)).all()
    with pytest.raises(jax.errors.JaxRuntimeError, match=NAMED):
        jax.block_until_ready(one_by_one(np.concatenate([1e-6 * X, X])))


def test_the_fault_is_a_value_for_programs_that_cannot_raise():
    model = prepare("f16/f16/f32")
    run = jax.jit(model.checked)
    fault, outputs = run(model.params, 1e-6 * X)
    model.raise_for(fault)
    assert (fault.shape, outputs.shape) == ((), (6, 3))
    with pytest.raises(NonFiniteError, match=NAMED):
        model.raise_for(run(model.params, X)[0])
    text = jax.export.export(run)(model.params, X).mlir_module()
    assert "callback" not in text


def test_nothing_is_called_back_while_all_is_well():
    model = prepare({})
    called = []
    jax.jit(lambda x: model(model.params, x))(X)
    object.__setattr__(model, "raise_for", lambda fault: called.append(fault))
    np.asarray(jax.jit(lambda x: model(model.params, x))(X))
    assert called == []


def test_inputs_and_outputs_are_checked_as_well():
    model = prepare({})
    with pytest.raises(
        NonFiniteError, match=r"input 'input' \(original\) holds NaN or infinite values; mend what calls"
    ):
        model(model.params, X * np.nan)
    model = prepare({}, lambda params, x: jnp.log(-jnp.abs(apply(params, x))))
    with pytest.raises(
        NonFiniteError, match="every layer's results are finite and outputs are NaN or infinite, through"
    ):
        model(model.params, X)


def test_what_a_later_operation_hides_is_found():
    """An infinity that becomes a one on the way out is wrong all the same."""
    params = PARAMS | {"last": {"w": np.full((8, 3), 3e38, np.float32)}}
    model = prepare({}, params=params)
    assert np.isfinite(apply(params, np.ones_like(X))).all()
    with pytest.raises(
        NonFiniteError, match=r"layer 'last' \(original\) is the first whose results are NaN or infinite"
    ):
        model(model.params, np.ones_like(X))


def test_of_two_faults_in_a_loop_the_earlier_iteration_counts():
    """`second` breaks in an iteration before `first`: the order of the program alone would name `first`."""
    big, one = 3e38 * np.eye(2), np.eye(2)
    weights = {"first": [one, one, big], "second": [one, big, one]}
    params = {name: {"w": np.stack(stack).astype(np.float32)} for name, stack in weights.items()}

    def loop(params, x):
        def body(carry, ws):
            for w in ws:
                carry = jnp.clip(carry @ w, 0, 1e5)
            return carry, None

        return jax.lax.scan(body, x, (params["first"]["w"], params["second"]["w"]))[0]

    x = np.full((1, 2), 1e5, np.float32)
    model = prepare({}, loop, params, (x,))
    assert np.isfinite(loop(params, x)).all()
    with pytest.raises(NonFiniteError, match="layer 'second'"):
        model(model.params, x)


def test_while_loops_and_branches_carry_the_fault_out():
    def looping(params, x):
        def body(state):
            value, count = state
            branches = [lambda v: v, lambda v: jax.nn.sigmoid(v @ params["square"]["w"])]
            return jax.lax.switch((count == 1).astype(jnp.int32), branches, value), count + 1

        return jax.lax.while_loop(lambda state: state[1] < 3, body, (x, 0))[0]

    params = {"square": {"w": np.full((8, 8), 3e38, np.float32)}}
    x = np.abs(X)
    model = prepare({}, looping, params)
    assert np.isfinite(looping(params, x)).all()
    with pytest.raises(NonFiniteError, match="layer 'square'"):
        model(model.params, x)


def test_other_input_shapes_are_checked_too():
    model = prepare("f16/f16/f32")
    with pytest.raises(NonFiniteError, match=NAMED):
        model(model.params, np.concatenate([X, X]))


def test_whole_numbers_and_empty_arrays_are_finite():
    apply = lambda params, x, tokens: (x @ params["first"]["w"], tokens)
    model = prepare({}, apply, inputs=(X, np.arange(3)))
    rows, tokens = model(model.params, X[:0], np.arange(3))
    assert (rows.shape, tokens.tolist()) == ((0, 8), [0, 1, 2])


def test_weak_types_are_kept():
    apply = lambda params, x: (
        jax.lax.full_like(x, 0.0) * 0 + 2.0,
        (x @ params["first"]["w"]).sum() * 0 + 1,
        3.0 * len(x),
    )
    checked, plain = prepare({}, apply), prepare({}, apply, check=None)
    mine, theirs = (jax.tree_util.tree_leaves(jax.eval_shape(one, one.params, X)) for one in (checked, plain))
    assert [(o.dtype, o.weak_type) for o in mine] == [(o.dtype, o.weak_type) for o in theirs]
    assert any(o.weak_type for o in mine)


def test_random_keys_pass_through():
    apply = lambda params, x, key: (x @ params["first"]["w"], jax.random.split(key))
    key = jax.random.key(0)
    model = prepare({}, apply, PARAMS, (X, key))
    _, keys = jax.jit(model)(model.params, X, key)
    assert (jax.random.key_data(keys) == jax.random.key_data(jax.random.split(key))).all()


def test_gradients_are_refused_as_ever():
    model = prepare({})
    with pytest.raises(TypeError, match="a prepared model cannot be differentiated"):
        jax.grad(lambda x: model(model.params, x).sum())(X)


def test_a_model_that_checks_nothing_says_how_to_make_one_that_does():
    model = prepare({}, check=None)
    with pytest.raises(
        PolicyError, match=r'this model checks nothing; make it with tuner.prepare\(..., check="finite"\)'
    ):
        model.checked(model.params, X)


@pytest.mark.parametrize("check", ["nan", "FINITE", True])
def test_an_unknown_check_is_refused(check):
    with pytest.raises(InputError, match=f"check={check!r} is not available; give 'finite', or None to check nothing"):
        prepare({}, check=check)


def test_where_there_are_several_devices_a_compiled_program_is_refused_before_it_hangs(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    model = prepare({})
    model(model.params, X)
    with pytest.raises(
        PolicyError, match=r"cannot stop a compiled program where there are several devices; call the model"
    ):
        jax.jit(model)(model.params, X)
    model.raise_for(jax.jit(model.checked)(model.params, X)[0])
