"""Integers, booleans and keys are kept as they are, and named."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.programs import normal
from tuner.program import capture, prepare, uniform_policy


def apply(params: Any, x: Any, mask: Any, key: Any) -> Any:
    noise = jax.random.uniform(jax.random.fold_in(key, params["step"]), x.shape)
    h = jnp.where(mask, x + noise, 0) @ params["w"]
    return h, params["step"] + 1, jax.random.split(params["key"]), mask


def everything() -> tuple[Any, tuple[Any, ...]]:
    params = {"w": normal(6, 4), "step": np.int32(3), "key": jax.random.key(1)}
    return params, (normal(2, 6), np.array([True, False] * 3), jax.random.key(2))


def test_they_are_named_with_their_dtypes() -> None:
    params, inputs = everything()
    program = capture(apply, params, inputs)
    assert program.notes == (
        "kept as they are, being no floating-point numbers: key (key<fry>), step (int32), input/1 (bool), "
        "input/2 (key<fry>)",
    )
    assert [layer.name for layer in program.layers] == ["input/0", "w"]


def test_and_come_out_as_they_went_in() -> None:
    params, inputs = everything()
    program = capture(apply, params, inputs)
    model = prepare(apply, params, uniform_policy(program, "bf16/bf16/bf16"), program=program)
    assert model.params["parameters"]["step"].dtype == jnp.int32
    assert model.params["parameters"]["key"].dtype == params["key"].dtype
    assert model.cast_inputs(*inputs)[1:] == inputs[1:]
    expected, found = jax.jit(apply)(params, *inputs), jax.jit(model)(model.params, *inputs)
    for mine, other in zip(found[1:], expected[1:], strict=True):
        assert mine.dtype == other.dtype
        if jnp.issubdtype(mine.dtype, jax.dtypes.prng_key):
            mine, other = jax.random.key_data(mine), jax.random.key_data(other)
        np.testing.assert_array_equal(mine, other)


def test_many_are_counted() -> None:
    params = {"w": normal(6, 4)} | {f"n{i}": np.int32(i) for i in range(10)}
    (note,) = capture(lambda p, x: x @ p["w"], params, (normal(2, 6),)).notes
    assert note.endswith("n7 (int32), ... 2 more")


def test_floats_alone_make_no_note_and_neither_do_integers_that_a_weight_is_made_of() -> None:
    params = {"w": np.ones((6, 4), np.int8), "scale": normal(4)}
    program = capture(lambda p, x: x @ (p["w"].astype(jnp.float32) * p["scale"]), params, (normal(2, 6),))
    assert program.notes == ()
